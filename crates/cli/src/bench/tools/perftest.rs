//! perftest, unmodified, over `userdma run`: what the C interface costs beside the Rust API.

use super::child::{client, free_port, server};
use super::{Place, Tool};
use crate::bench::report::Figures;
use crate::failure::Failure;

/// Half a round trip of SENDs.
pub(super) const SEND_LAT: Tool = Tool {
    id: "ib_send_lat",
    program: "ib_send_lat",
    package: PACKAGE,
    about: "over userdma run, 8 bytes, both poll; a median",
    memory: "its own",
    run: |place| latency(&run(place, "ib_send_lat", &["-s", "8", "-n", "50000"])?, "8"),
};

/// Half a round trip of WRITEs.
pub(super) const WRITE_LAT: Tool = Tool {
    id: "ib_write_lat",
    program: "ib_write_lat",
    package: PACKAGE,
    about: "over userdma run, 8 bytes, both poll memory; a median",
    memory: "its own",
    run: |place| latency(&run(place, "ib_write_lat", &["-s", "8", "-n", "50000"])?, "8"),
};

/// Goodput of WRITEs.
pub(super) const WRITE_BW: Tool = Tool {
    id: "ib_write_bw",
    program: "ib_write_bw",
    package: PACKAGE,
    about: "over userdma run, WRITE of 1 MiB, completions polled",
    memory: "its own",
    run: |place| {
        let text = run(place, "ib_write_bw", &["-s", "1048576", "-n", "2000", "--report_gbits"])?;
        Ok(Figures { gb_per_s: Some(field(&text, "1048576", AVERAGE_BW)? / 8.0), ..Figures::default() })
    },
};

/// Both sides have a loopback address of their own, and meet on `place`'s by TCP.
fn run(place: &Place, tool: &str, how: &[&str]) -> Result<String, Failure> {
    let exe = std::env::current_exe()?.display().to_string();
    let port = free_port(place)?;
    let (port_text, address) = (port.to_string(), place.address.to_string());
    let common = ["--", tool, "-d", "roce_lo", "-F", "-p", &port_text];
    let _server = server(place, port, &[&[&exe, "run", "--device", SERVER], &common[..], how].concat(), &[])?;
    client(place, &[&[&exe, "run", "--device", CLIENT], &common[..], how, &[&address]].concat(), &[])
}

fn latency(text: &str, size: &str) -> Result<Figures, Failure> {
    Ok(Figures { half_trip_us: Some(field(text, size, TYPICAL)?), ..Figures::default() })
}

/// A column of the line for messages of `size`.
fn field(text: &str, size: &str, column: usize) -> Result<f64, Failure> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.rfind(|fields| fields.first() == Some(&size));
    let value = line.and_then(|fields| fields.get(column)?.parse().ok());
    value.ok_or_else(|| Failure::new(format!("perftest prints no line for {size} bytes: {}", text.trim())))
}

/// Of latencies: `#bytes #iterations t_min t_max t_typical …`.
const TYPICAL: usize = 4;
/// Of goodput: `#bytes #iterations BW peak BW average …`.
const AVERAGE_BW: usize = 3;
const PACKAGE: &str = "perftest";
const SERVER: &str = "127.0.28.1";
const CLIENT: &str = "127.0.28.2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_understood() {
        let text = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                    8       1000          2.71           31.65        2.90     	       2.99\n";
        assert_eq!(field(text, "8", TYPICAL).unwrap(), 2.90);
        assert!(field(text, "16", TYPICAL).is_err() && field("", "8", TYPICAL).is_err());
    }
}
