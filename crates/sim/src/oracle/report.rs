//! What programs did: operations, sizes, faults. An oracle whose figures are small proves little.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

use userdma_ibt::Stats;
use userdma_verbs::WrOpcode;

use super::plan::Plan;
use crate::NetStats;

/// Figures of one program, or of many.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Programs.
    pub programs: u64,
    /// Completed work requests, by operation.
    pub operations: BTreeMap<&'static str, u64>,
    /// Their lengths, by class.
    pub sizes: BTreeMap<&'static str, u64>,
    /// Inline, unsignaled, fenced, scattered ones.
    pub variants: BTreeMap<&'static str, u64>,
    /// Connections that failed, by the deliberate mistake.
    pub failures: BTreeMap<&'static str, u64>,
    /// Phases of connections that did not.
    pub sound_phases: u64,
    /// What the programs were made of, and what befell their hosts.
    pub shapes: BTreeMap<&'static str, u64>,
    /// What the network did.
    pub faults: BTreeMap<&'static str, u64>,
    /// What the devices counted.
    pub counters: BTreeMap<&'static str, u64>,
}

impl Report {
    pub(super) fn count_operation(&mut self, opcode: WrOpcode, len: u32, mtu: u32) {
        *self.operations.entry(operation_name(opcode)).or_default() += 1;
        *self.sizes.entry(size_class(len, mtu)).or_default() += 1;
    }

    pub(super) fn count_variant(&mut self, name: &'static str) {
        *self.variants.entry(name).or_default() += 1;
    }

    pub(super) fn count_failure(&mut self, name: &'static str) {
        *self.failures.entry(name).or_default() += 1;
    }

    pub(super) fn count_event(&mut self, name: &'static str) {
        *self.shapes.entry(name).or_default() += 1;
    }

    pub(super) fn count_shape(&mut self, plan: &Plan) {
        let within = plan.conns.iter().filter(|conn| conn.hosts[0] == conn.hosts[1]).count();
        let figures = [
            ("connections", plan.conns.len()),
            ("within a device", within),
            ("in a shared region", plan.conns.iter().filter(|conn| conn.shares_region).count()),
            ("completion queues", plan.cqs.len()),
            ("shared queues", plan.cqs.iter().filter(|cq| cq.queues > 1).count()),
            (
                "ends with shared receives",
                plan.conns.iter().flat_map(|conn| conn.shares_srq).filter(|on| *on).count(),
            ),
        ];
        for (name, count) in figures {
            *self.shapes.entry(name).or_default() += count as u64;
        }
    }

    pub(super) fn count_faults(&mut self, net: &NetStats) {
        let figures = [
            ("packets", net.sent),
            ("lost", net.lost),
            ("twice", net.duplicated),
            ("held back", net.delayed),
            ("corrupted", net.corrupted),
        ];
        for (name, count) in figures {
            *self.faults.entry(name).or_default() += count;
        }
    }

    pub(super) fn count_stats(&mut self, stats: &Stats) {
        for (name, count) in stats.iter() {
            *self.counters.entry(name).or_default() += count;
        }
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.sound_phases += other.sound_phases;
        for (mine, theirs) in [
            (&mut self.operations, other.operations),
            (&mut self.sizes, other.sizes),
            (&mut self.variants, other.variants),
            (&mut self.failures, other.failures),
            (&mut self.shapes, other.shapes),
            (&mut self.faults, other.faults),
            (&mut self.counters, other.counters),
        ] {
            for (name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} programs, {} sound phases of connections", self.programs, self.sound_phases)?;
        for (name, map) in [
            ("operations", &self.operations),
            ("sizes", &self.sizes),
            ("variants", &self.variants),
            ("failed", &self.failures),
            ("made of", &self.shapes),
            ("network", &self.faults),
        ] {
            let items: Vec<String> = map.iter().map(|(name, count)| format!("{name} {count}")).collect();
            writeln!(f, "{name:>10}: {}", items.join(", "))?;
        }
        let items: Vec<String> = self
            .counters
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        write!(f, "  counters: {}", items.join(", "))
    }
}

const fn operation_name(opcode: WrOpcode) -> &'static str {
    match opcode {
        WrOpcode::RdmaWrite => "WRITE",
        WrOpcode::RdmaWriteWithImm => "WRITE with imm",
        WrOpcode::Send => "SEND",
        WrOpcode::SendWithImm => "SEND with imm",
        WrOpcode::SendWithInv => "SEND with inv",
        WrOpcode::RdmaRead => "READ",
        WrOpcode::AtomicCmpAndSwp => "CAS",
        WrOpcode::AtomicFetchAndAdd => "FAA",
        WrOpcode::LocalInv => "local inv",
        WrOpcode::BindMw => "bind",
    }
}

const fn size_class(len: u32, mtu: u32) -> &'static str {
    match len {
        0 => "0",
        1..=3 => "1 to 3",
        _ if len < mtu => "below MTU",
        _ if len == mtu => "MTU",
        _ if len == mtu + 1 => "MTU + 1",
        _ if len.is_multiple_of(mtu) => "several MTU exactly",
        _ => "several MTU",
    }
}
