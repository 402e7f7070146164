//! qperf: UDP with blocking calls.

use super::child::{client, free_port, server};
use super::{Place, Tool};
use crate::bench::report::Figures;
use crate::failure::Failure;

/// Half a round trip of 8 bytes.
pub(super) const UDP_LAT: Tool = Tool {
    id: "qperf_udp_lat",
    program: "qperf",
    package: "qperf",
    about: "udp_lat, 8 bytes, 1 s; a mean",
    memory: "its own",
    run: |place| {
        let ns = field(&run(place, &["-m", "8", "udp_lat"])?, "latency", "ns")?;
        Ok(Figures { half_trip_us: Some(ns / 1e3), ..Figures::default() })
    },
};

/// Datagrams as long as our packets.
pub(super) const UDP_BW: Tool = Tool {
    id: "qperf_udp_bw",
    program: "qperf",
    package: "qperf",
    about: "udp_bw, datagrams of 4112 bytes, 1 s; what was received",
    memory: "its own",
    run: |place| {
        let bytes = field(&run(place, &["-m", "4112", "udp_bw"])?, "recv_bw", "bytes/sec")?;
        Ok(Figures { gb_per_s: Some(bytes / 1e9), ..Figures::default() })
    },
};

/// `-uu` prints in the smallest units, without thousands.
fn run(place: &Place, how: &[&str]) -> Result<String, Failure> {
    let port = free_port(place)?;
    let (port_text, address) = (port.to_string(), place.address.to_string());
    let _server = server(place, port, &["qperf", "-lp", &port_text], &[])?;
    client(place, &[&["qperf", &address, "-lp", &port_text, "-t", "1", "-uu"], how].concat(), &[])
}

/// A line `name  =  number unit`.
fn field(text: &str, name: &str, unit: &str) -> Result<f64, Failure> {
    let value = text.lines().find_map(|line| {
        let (field, value) = line.split_once('=')?;
        let number = value.trim().strip_suffix(unit)?.trim();
        (field.trim() == name).then(|| number.replace(',', "").parse().ok())?
    });
    value.ok_or_else(|| Failure::new(format!("qperf prints no {name} in {unit}: {}", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_understood() {
        let lat = include_str!("samples/qperf-udp_lat.txt");
        assert_eq!(field(lat, "latency", "ns").unwrap(), LATENCY_NS);
        let bw = include_str!("samples/qperf-udp_bw.txt");
        assert_eq!(field(bw, "recv_bw", "bytes/sec").unwrap(), RECV_BW);
        assert!(field(bw, "recv_bw", "ns").is_err() && field("", "latency", "ns").is_err());
    }

    const LATENCY_NS: f64 = 12_833.0;
    const RECV_BW: f64 = 319_632_681.0;
}
