//! Rounds: everything once, then again. What fails says so and is left out from then on; the rest goes on.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr};

use super::facts::Facts;
use super::report::{Figures, Measured};
use super::series::{Series, Source};
use super::session::Session;
use super::tools::Place;
use super::{cache_line, memcpy};
use crate::failure::Failure;

/// How it is to be done.
pub(super) struct Plan {
    pub(super) rounds: u32,
    pub(super) slice_ms: u64,
    pub(super) addresses: Option<[IpAddr; 2]>,
    pub(super) cpus: Option<[usize; 2]>,
}

/// Measures all of `series` in interleaved rounds.
pub(super) fn all(plan: &Plan, series: &[Series], facts: &mut Facts) -> Vec<Measured> {
    let mut results: Vec<_> = series.iter().map(empty).collect();
    let mut bench = Bench { plan, session: None };
    let progress = Progress { is_terminal: std::io::stderr().is_terminal(), rounds: plan.rounds };
    for round in 0..plan.rounds {
        progress.round(round);
        facts.look_at_others();
        for (series, result) in series.iter().zip(&mut results) {
            if result.failure.is_some() || result.absent.is_some() {
                result.rounds.push(None);
                continue;
            }
            progress.step(round, &series.id);
            match bench.measure(series) {
                Ok(figures) => result.rounds.push(Some(figures)),
                Err(failure) => {
                    progress.failed(&series.id, &failure);
                    result.rounds.push(None);
                    result.failure = Some(failure.to_string());
                }
            }
        }
    }
    progress.end();
    results
}

fn empty(series: &Series) -> Measured {
    let (tool, absent) = match series.source {
        Source::Tool(tool) => (tool.program, tool.absence()),
        Source::Pair { kind, .. } if !kind.is_plain() => ("userdma", None),
        Source::Pair { .. } | Source::Memcpy | Source::CacheLine => ("own program, plain sockets", None),
    };
    let tool = if matches!(series.source, Source::Memcpy | Source::CacheLine) { "own program" } else { tool };
    Measured {
        id: series.id.clone(),
        about: series.about.clone(),
        tool: tool.to_owned(),
        memory: series.memory.clone(),
        len: series.len,
        rounds: Vec::new(),
        failure: None,
        absent,
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    session: Option<Session>,
}

impl Bench<'_> {
    fn measure(&mut self, series: &Series) -> Result<Figures, Failure> {
        // Curves have many points.
        let share = if series.len.is_some() { 5 } else { 1 };
        let slice_ns = self.plan.slice_ms * 1_000_000 / share;
        match series.source {
            Source::Pair { kind, len, setup } => {
                let result = self.session()?.measure(kind, len, setup, slice_ns);
                if result.is_err() {
                    // Nobody knows what the two are in the middle of.
                    self.session = None;
                }
                result
            }
            Source::Memcpy => Ok(memcpy::measure(slice_ns)),
            Source::CacheLine => match self.plan.cpus {
                Some([_, second]) => cache_line::measure(slice_ns, second),
                None => Err(Failure::new("it needs two CPUs")),
            },
            Source::Tool(tool) => {
                let address = Ipv4Addr::LOCALHOST.into();
                (tool.run)(&Place { cpus: self.plan.cpus, address })
            }
        }
    }

    fn session(&mut self) -> Result<&mut Session, Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::start(self.plan.addresses, self.plan.cpus.map(|[_, second]| second))?,
        };
        Ok(self.session.insert(session))
    }
}

/// What is shown meanwhile, on standard error: on a terminal one line that changes, elsewhere a line a round.
struct Progress {
    is_terminal: bool,
    rounds: u32,
}

impl Progress {
    fn round(&self, round: u32) {
        if !self.is_terminal {
            eprintln!("round {} of {}", round + 1, self.rounds);
        }
    }

    fn step(&self, round: u32, id: &str) {
        if self.is_terminal {
            eprint!("\r\x1b[Kround {} of {}: {id}", round + 1, self.rounds);
        }
    }

    fn failed(&self, id: &str, failure: &Failure) {
        self.end();
        eprintln!("FAILED {id}: {failure}");
    }

    fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
