//! iperf3: one TCP stream, and UDP datagrams as long as our packets.

use serde::Deserialize;

use super::child::{client, free_port, server};
use super::{Place, Tool};
use crate::bench::report::Figures;
use crate::failure::Failure;

/// A TCP stream.
pub(super) const TCP: Tool = Tool {
    id: "iperf3_tcp",
    program: "iperf3",
    package: "iperf3",
    about: "one TCP stream, 128 KiB a call, 1 s",
    memory: "its own",
    run: |place| run(place, &["-l", "128K"]),
};

/// UDP, as fast as it sends; what is received counts.
pub(super) const UDP: Tool = Tool {
    id: "iperf3_udp",
    program: "iperf3",
    package: "iperf3",
    about: "UDP datagrams of 4112 bytes, unpaced, 1 s; what was received",
    memory: "its own",
    run: |place| run(place, &["-u", "-b", "0", "-l", "4112"]),
};

fn run(place: &Place, how: &[&str]) -> Result<Figures, Failure> {
    let port = free_port(place)?;
    let (port_text, address) = (port.to_string(), place.address.to_string());
    let _server = server(place, port, &["iperf3", "-s", "-1", "-B", &address, "-p", &port_text], &[])?;
    let command = ["iperf3", "-c", &address, "-B", &address, "-p", &port_text, "-t", "1", "-i", "0", "-J"];
    parse(&client(place, &[&command[..], how].concat(), &[])?)
}

/// What `-J` prints, as far as it is needed.
#[derive(Deserialize)]
struct Output {
    end: End,
}

#[derive(Deserialize)]
struct End {
    sum_received: Sum,
    cpu_utilization_percent: Cpu,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: f64,
}

/// Percent of one CPU, of each side.
#[derive(Deserialize)]
struct Cpu {
    host_total: f64,
    remote_total: f64,
}

fn parse(text: &str) -> Result<Figures, Failure> {
    let output: Output =
        serde_json::from_str(text).map_err(|error| Failure::new(format!("output of iperf3: {error}")))?;
    let End { sum_received: Sum { seconds, bytes }, cpu_utilization_percent: cpu } = output.end;
    if bytes <= 0.0 || seconds <= 0.0 {
        return Err(Failure::new("iperf3 received nothing"));
    }
    let cpu_seconds = (cpu.host_total + cpu.remote_total) / 100.0 * seconds;
    Ok(Figures {
        gb_per_s: Some(bytes / seconds / 1e9),
        cpu_s_per_gb: Some(cpu_seconds / (bytes / 1e9)),
        ..Figures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_understood() {
        let tcp = parse(include_str!("samples/iperf3-tcp.json")).unwrap();
        assert!((tcp.gb_per_s.unwrap() - 0.3227).abs() < 1e-3, "{tcp:?}");
        assert!((tcp.cpu_s_per_gb.unwrap() - 0.5036).abs() < 1e-3, "{tcp:?}");
        // What the server received, not what the client sent.
        let udp = parse(include_str!("samples/iperf3-udp.json")).unwrap();
        assert!((udp.gb_per_s.unwrap() - 0.03878).abs() < 1e-4, "{udp:?}");
    }

    #[test]
    fn an_error_is_one() {
        assert!(parse("{\"start\":{},\"error\":\"unable to connect\"}").is_err());
        assert!(parse("iperf3: error").is_err());
    }
}
