//! Other programs beside us: run as children, where they are installed. One file each.

mod child;
mod iperf3;
mod libfabric;
mod perftest;
mod qperf;
mod ucx;

use std::net::IpAddr;
use std::path::PathBuf;

use super::report::Figures;
use crate::failure::Failure;

pub(crate) use child::run as run_child;

/// Another program, used in one way.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The name of its series.
    pub(crate) id: &'static str,
    /// What is run.
    pub(crate) program: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// What it measures.
    pub(crate) about: &'static str,
    /// Which memory it uses.
    pub(crate) memory: &'static str,
    /// Measures once.
    pub(crate) run: fn(&Place) -> Result<Figures, Failure>,
}

/// Where its two sides run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The client's and the server's CPU, if they are to be pinned.
    pub(crate) cpus: Option<[usize; 2]>,
    /// A loopback address for both.
    pub(crate) address: IpAddr,
}

impl Tool {
    /// Why it cannot run here, if it cannot.
    pub(crate) fn absence(&self) -> Option<String> {
        if find(self.program).is_some() {
            return None;
        }
        Some(format!("{} is not installed (Debian: {})", self.program, self.package))
    }
}

/// A program in one of the folders of `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Half round trips of sides that spin.
pub(crate) const LATENCIES: &[&Tool] = &[&libfabric::DGRAM, &libfabric::RXD, &ucx::AM_LAT];
/// Half round trips of sides that block.
pub(crate) const BLOCKING: &[&Tool] = &[&qperf::UDP_LAT];
/// Half round trips of unmodified verbs programs over us.
pub(crate) const UNMODIFIED: &[&Tool] = &[&perftest::SEND_LAT, &perftest::WRITE_LAT];
/// Their goodput.
pub(crate) const UNMODIFIED_STREAMS: &[&Tool] = &[&perftest::WRITE_BW];
/// Goodput.
pub(crate) const STREAMS: &[&Tool] = &[&iperf3::UDP, &qperf::UDP_BW, &iperf3::TCP];
/// Messages a second.
pub(crate) const RATES: &[&Tool] = &[&ucx::AM_BW];
