//! libfabric over UDP: datagrams as they are, and made reliable.

use super::child::{client, free_port, server};
use super::{Place, Tool};
use crate::bench::report::Figures;
use crate::failure::Failure;

/// Unreliable datagrams.
pub(super) const DGRAM: Tool = Tool {
    id: "fi_dgram",
    program: "fi_pingpong",
    package: "libfabric-bin",
    about: "fi_pingpong -p udp -e dgram, 8 bytes; a mean",
    memory: "its own",
    run: |place| run(place, &["-p", "udp", "-e", "dgram"]),
};

/// Reliable datagrams.
pub(super) const RXD: Tool = Tool {
    id: "fi_rxd",
    program: "fi_pingpong",
    package: "libfabric-bin",
    about: "fi_pingpong -p udp;ofi_rxd -e rdm, 8 bytes; a mean",
    memory: "its own",
    run: |place| run(place, &["-p", "udp;ofi_rxd", "-e", "rdm"]),
};

fn run(place: &Place, how: &[&str]) -> Result<Figures, Failure> {
    let port = free_port(place)?;
    let (port_text, address) = (port.to_string(), place.address.to_string());
    let common = ["-I", "10000", "-S", "8"];
    let command = [&["fi_pingpong"], how, &common[..], &["-B", &port_text]].concat();
    let _server = server(place, port, &command, &[])?;
    let command = [&["fi_pingpong"], how, &common[..], &["-P", &port_text, &address]].concat();
    let half_trip_us = Some(parse(&client(place, &command, &[])?)?);
    Ok(Figures { half_trip_us, ..Figures::default() })
}

/// A table with one line; the last but one column is the time of half a round trip.
fn parse(text: &str) -> Result<f64, Failure> {
    let find = || {
        let header = text.lines().position(|line| line.starts_with("bytes"))?;
        let index = text.lines().nth(header)?.split_whitespace().position(|name| name == "usec/xfer")?;
        text.lines().nth(header + 1)?.split_whitespace().nth(index)?.parse().ok()
    };
    find().ok_or_else(|| Failure::new(format!("fi_pingpong prints no usec/xfer: {}", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_understood() {
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    8       20k     =20k     312k        5.77s      0.06     144.19       0.01\n";
        assert_eq!(parse(text).unwrap(), 144.19);
        assert!(parse("").is_err());
    }
}
