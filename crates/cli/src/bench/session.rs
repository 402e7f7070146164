//! The two processes of a run, and their rigs. After a failure another session is begun.

use std::net::IpAddr;
use std::time::Duration;

use userdma::AccessFlags;
use userdma_link::clock;

use super::report::Figures;
use crate::failure::Failure;
use crate::measure::rounds::{measure, prepare, seed};
use crate::measure::{Kind, Order, Rig, Setup};
use crate::pair::addresses::Pair;
use crate::pair::process::SecondProcess;
use crate::pair::protocol::{Opened, Request};
use crate::pair::side::Side;
use crate::pair::watchdog::Watchdog;

/// Two processes that measure. Fields end in this order: first what talks, then the watchdog with the second process.
pub(super) struct Session {
    rigs: Vec<(Setup, Rig)>,
    b: SecondProcess,
    a: Side,
    pair: Pair,
    watchdog: Watchdog,
}

impl Session {
    /// Opens this process's side, pinned already, and starts the second process.
    pub(super) fn start(named: Option<[IpAddr; 2]>, cpu_b: Option<usize>) -> Result<Self, Failure> {
        let watchdog = Watchdog::start_sparing("start", STEP);
        let (pair, a) = Side::open_first(named, AccessFlags::LOCAL_WRITE)?;
        let mut b = SecondProcess::start(&pair, cpu_b, &watchdog)?;
        b.ask::<Opened>(&Request::Open)?;
        Ok(Self { rigs: Vec::new(), b, a, pair, watchdog })
    }

    /// Measures once.
    pub(super) fn measure(
        &mut self,
        kind: Kind,
        len: Option<usize>,
        setup: Setup,
        slice_ns: u64,
    ) -> Result<Figures, Failure> {
        self.watchdog.step(&format!("{kind:?}"), STEP + 4 * Duration::from_nanos(slice_ns));
        let rig = self.rig(setup)?;
        let mut order = Order { rig, ..Order::new(kind, slice_ns, seed(0, 0, clock::now())) };
        order.len = len.unwrap_or(order.len);
        let sample = measure(&mut self.rigs[rig].1, &mut self.b, order, 0)?;
        // Other programs come between; they have times of their own.
        self.watchdog.step("rest", REST);
        let outcome = sample.outcome;
        let is_latency = outcome.half_trip_us.is_some();
        Ok(Figures {
            half_trip_us: outcome.half_trip_us,
            gb_per_s: (!is_latency).then(|| outcome.gb_per_s()),
            m_per_s: (!is_latency).then(|| outcome.m_per_s()),
            cpu_s_per_gb: (!is_latency && outcome.bytes > 0).then(|| sample.cpu_s_per_gb()),
        })
    }

    /// The number of the rig with this setup; it is made if there is none.
    fn rig(&mut self, setup: Setup) -> Result<usize, Failure> {
        if let Some(index) = self.rigs.iter().position(|(other, _)| *other == setup) {
            return Ok(index);
        }
        let rig = prepare(&self.a, setup, self.pair.a, &mut self.b)?;
        self.rigs.push((setup, rig));
        Ok(self.rigs.len() - 1)
    }
}

/// What may lie between two steps: all other programs, each at its longest, many times over.
const REST: Duration = Duration::from_secs(3600);
/// What a step may take besides its slice.
const STEP: Duration = Duration::from_secs(15);
