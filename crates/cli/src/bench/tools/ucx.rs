//! UCX over TCP: active messages of 8 bytes.

use super::child::{client, free_port, server};
use super::{Place, Tool};
use crate::bench::report::Figures;
use crate::failure::Failure;

/// Half a round trip.
pub(super) const AM_LAT: Tool = Tool {
    id: "ucx_am_lat",
    program: "ucx_perftest",
    package: "ucx-utils",
    about: "ucp_am_lat over tcp, 8 bytes; a median",
    memory: "its own",
    run: |place| {
        let text = run(place, &["-t", "ucp_am_lat", "-s", "8", "-n", "20000"])?;
        Ok(Figures { half_trip_us: Some(column(&text, "50.0_percentile_lat")?), ..Figures::default() })
    },
};

/// Messages a second.
pub(super) const AM_BW: Tool = Tool {
    id: "ucx_am_bw",
    program: "ucx_perftest",
    package: "ucx-utils",
    about: "ucp_am_bw over tcp, 8 bytes",
    memory: "its own",
    run: |place| {
        let text = run(place, &["-t", "ucp_am_bw", "-s", "8", "-n", "100000"])?;
        Ok(Figures { m_per_s: Some(column(&text, "overall_mr")? / 1e6), ..Figures::default() })
    },
};

/// `-f -v` prints the result alone, as CSV.
fn run(place: &Place, how: &[&str]) -> Result<String, Failure> {
    let port = free_port(place)?;
    let (port_text, address) = (port.to_string(), place.address.to_string());
    let env = [("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")];
    let _server = server(place, port, &["ucx_perftest", "-p", &port_text], &env)?;
    client(place, &[&["ucx_perftest", &address, "-p", &port_text, "-f", "-v"], how].concat(), &env)
}

fn column(text: &str, name: &str) -> Result<f64, Failure> {
    let find = || {
        let header = text.lines().position(|line| line.starts_with("iterations,"))?;
        let index = text.lines().nth(header)?.split(',').position(|column| column == name)?;
        text.lines().nth(header + 1)?.split(',').nth(index)?.trim().parse().ok()
    };
    find().ok_or_else(|| Failure::new(format!("ucx_perftest prints no {name}: {}", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_understood() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    50000,6.823,58.559,233.446,0.13,0.03,17077,4284\n";
        assert_eq!(column(text, "50.0_percentile_lat").unwrap(), 6.823);
        assert_eq!(column(text, "overall_mr").unwrap(), 4284.0);
        assert!(column("", "overall_mr").is_err());
    }
}
