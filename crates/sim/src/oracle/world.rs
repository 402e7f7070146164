//! A program under way: hosts, flows, what was posted and what has completed.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use userdma_mem::Buffer;
use userdma_objects::{Cq, MrKeys, PdId};
use userdma_verbs::{QpState, Qpn, RKey, SendFlags, SendOp, Sge, Time, Wc, WcStatus};

use super::case::{Case, RequestId};
use super::mistake::Mistake;
use super::plan::Plan;
use super::report::Report;
use super::shadow::Shadow;
use super::shared::SrqState;
use crate::{Pair, QpEnd};

/// A program and the devices that it runs on.
#[derive(Debug)]
pub(super) struct World {
    pub(super) case: Case,
    /// When things happen.
    pub(super) rng: SmallRng,
    /// What the request that is being drawn is like.
    pub(super) dice: SmallRng,
    pub(super) plan: Plan,
    pub(super) pair: Pair,
    /// Flow `2 * connection + end`: what `end` sends.
    pub(super) flows: Vec<Flow>,
    pub(super) cqs: Vec<CqState>,
    pub(super) rooms: [Room; 2],
    /// The shared receive queue of each host.
    pub(super) srqs: [Option<SrqState>; 2],
    pub(super) report: Report,
    /// The phase under way.
    pub(super) phase: usize,
    /// The request that is being drawn.
    pub(super) drawn: RequestId,
    /// Connections that have failed at some time.
    pub(super) ever_failed: Vec<bool>,
    /// Connections of which a completion queue has overflowed in this phase.
    pub(super) overflowed: Vec<bool>,
    /// Connections that were ended in this phase because they kept a receive for which others waited.
    pub(super) hoarded: Vec<bool>,
    /// Which connection a queue pair belongs or belonged to.
    pub(super) owners: Vec<(Qpn, usize)>,
    /// Completion queues that have overflowed: host and number.
    pub(super) dead_cqs: Vec<(usize, u32)>,
    /// Queue pairs with a shared receive queue, once for each time that they came to the error state.
    pub(super) last_wqes: Vec<Qpn>,
    /// No host stands still before.
    pub(super) next_stall: Time,
}

/// A completion queue of a program.
#[derive(Debug)]
pub(super) struct CqState {
    pub(super) host: usize,
    pub(super) cq: Arc<Cq>,
    /// Work requests of each queue that may be without a polled completion.
    pub(super) quota: usize,
    pub(super) is_tight: bool,
    /// It has overflowed.
    pub(super) is_dead: bool,
}

/// What a host has: domains, memory, regions.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) pds: Vec<Domain>,
    pub(super) arena: Arena,
    /// The targets of all flows that end here, one behind the other.
    pub(super) targets: Arc<Buffer>,
    /// A key of a region that has ended.
    pub(super) stale: RKey,
}

/// A protection domain and the regions in it that cover all memory of the host.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) pd: PdId,
    /// The arena, twice, and once without the right to write locally.
    pub(super) local: [MrKeys; 2],
    pub(super) local_read_only: MrKeys,
    /// The host's targets.
    pub(super) targets: Openings,
}

/// The keys of one piece of memory, registered with different rights at the same addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Openings {
    pub(super) all: MrKeys,
    pub(super) read_only: MrKeys,
    /// All but reading and atomics.
    pub(super) write_only: MrKeys,
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Flow {
    /// The requester's host.
    pub(super) host: usize,
    /// The responder's host.
    pub(super) peer_host: usize,
    /// The domains of both, by number.
    pub(super) pd: usize,
    pub(super) peer_pd: usize,
    /// The requester's queue pair.
    pub(super) end: QpEnd,
    /// The responder's queue pair.
    pub(super) peer: QpEnd,
    /// Where sends complete, and where the peer's receives do.
    pub(super) send_cq: usize,
    pub(super) recv_cq: usize,
    /// The responder's memory for one-sided operations of this flow.
    pub(super) target: Target,
    pub(super) sends: Vec<Send>,
    pub(super) recvs: Vec<Recv>,
    /// Sends and receives that were posted.
    pub(super) posted_sends: usize,
    pub(super) posted_recvs: usize,
    /// Sends before this one have a completion, or one behind them has.
    pub(super) seen_sends: usize,
    /// Receives before this one have a completion.
    pub(super) seen_recvs: usize,
    /// Sends and receives that earlier phases have judged.
    pub(super) judged_sends: usize,
    pub(super) judged_recvs: usize,
}

/// Memory that a peer reaches.
#[derive(Debug)]
pub(super) struct Target {
    /// The registered memory, and where the target begins in it.
    pub(super) memory: Arc<Buffer>,
    pub(super) base: usize,
    /// The keys that the peer uses, and the address of the first byte for them.
    pub(super) keys: Openings,
    pub(super) addr: u64,
    /// The memory and its regions are of its own; else other flows use them as well.
    pub(super) is_own: bool,
    pub(super) shadow: Shadow,
    pub(super) window: Window,
}

/// The memory window of a target.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) rkey: RKey,
    /// The range that it is bound to: offset and length.
    pub(super) bound: Option<(usize, usize)>,
    /// What happens to it in this phase.
    pub(super) mode: WindowMode,
}

/// What a phase does with a window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WindowMode {
    /// Nothing.
    Idle,
    /// Its owner binds it to this range, under this key.
    Bind { rkey: RKey, at: usize, len: usize },
    /// Its owner invalidates it.
    Invalidate,
    /// The peer uses it.
    Use,
    /// The peer used it and has posted its invalidation.
    Used,
}

/// Local memory of a host, given out from the bottom to the top in each phase.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) buffer: Arc<Buffer>,
    pub(super) shadow: Shadow,
    pub(super) top: usize,
}

/// A piece of an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// A send work request of a program.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) id: RequestId,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    pub(super) sgl: Vec<Sge>,
    /// The bytes that it carries.
    pub(super) payload: Vec<u8>,
    /// Where its result lands.
    pub(super) landing: Vec<Piece>,
    pub(super) len: usize,
    /// Where it acts in the target.
    pub(super) at: usize,
    /// Its receive.
    pub(super) recv: Option<usize>,
    pub(super) mistake: Option<Mistake>,
    pub(super) wc: Option<Wc>,
}

/// A receive work request of a program.
#[derive(Debug)]
pub(super) struct Recv {
    pub(super) sgl: Vec<Sge>,
    pub(super) pieces: Vec<Piece>,
    /// The send that it is for.
    pub(super) message: usize,
    pub(super) wc: Option<Wc>,
}

impl World {
    pub(super) fn run_in_place(&mut self) -> Result<(), String> {
        for phase in 0..self.plan.phases {
            self.phase = phase;
            self.draw_phase();
            self.carry_out()?;
            self.end_phase()?;
        }
        self.close()
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.pair.net.take_trace()
    }

    /// Everything that the program has posted, by where it was drawn.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.flows.iter().flat_map(|flow| flow.sends.iter().map(|send| send.id))
    }

    /// Makes the dice those of one request, so that leaving out others changes nothing about it.
    pub(super) fn take_dice(&mut self, id: RequestId) {
        let place = (id.phase as u64) << 48 ^ (id.flow as u64) << 32 ^ id.number as u64;
        self.dice = SmallRng::seed_from_u64(self.case.seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.pair.now();
        self.pair.net.note(now, line);
    }

    pub(super) fn conns(&self) -> std::ops::Range<usize> {
        0..self.plan.conns.len()
    }

    /// Whether a connection has failed in this phase: something of it has completed in error, or cannot complete.
    pub(super) fn conn_has_failed(&self, conn: usize) -> bool {
        let is_error = |wc: &Option<Wc>| wc.is_some_and(|wc| wc.status != WcStatus::Success);
        self.overflowed[conn]
            || self.flows[2 * conn..2 * conn + 2].iter().any(|flow| {
                flow.sends[flow.judged_sends..].iter().any(|send| is_error(&send.wc))
                    || flow.recvs[flow.judged_recvs..].iter().any(|recv| is_error(&recv.wc))
            })
    }

    pub(super) fn describe_progress(&self) -> String {
        let describe = |flow: &Flow| {
            format!(
                "{}/{} sends, {}/{} receives posted, {} outstanding, {:?}",
                flow.posted_sends,
                flow.sends.len(),
                flow.posted_recvs,
                flow.recvs.len(),
                flow.end.qp.outstanding_sends(),
                flow.end.qp.state(),
            )
        };
        self.flows.iter().map(describe).collect::<Vec<_>>().join("; ")
    }
}

impl Arena {
    /// A piece of `len` bytes with unused bytes around it.
    pub(super) fn take(&mut self, len: usize, gap: usize) -> Piece {
        let at = self.top + gap;
        assert!(at + len + GAP < ARENA, "the arena is too small for this program");
        self.top = at + len;
        self.shadow.cover(self.top + GAP);
        Piece { at, len }
    }

    /// Whether it is so full that only small pieces should be taken.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.top > ARENA / 2
    }

    /// Puts bytes into pieces.
    pub(super) fn fill(&mut self, pieces: &[Piece], mut bytes: &[u8]) {
        for piece in pieces {
            let (now, rest) = bytes.split_at(piece.len.min(bytes.len()));
            self.buffer.write(piece.at as u64, now).expect("memory of our own");
            self.shadow.put(piece.at, now);
            bytes = rest;
        }
    }
}

impl Flow {
    /// The number of this phase's deliberate mistake.
    pub(super) fn mistaken(&self) -> Option<usize> {
        (self.judged_sends..self.sends.len()).find(|&number| self.sends[number].mistake.is_some())
    }

    /// Whether its last message has no receive, on purpose.
    pub(super) fn lacks_receive(&self) -> bool {
        self.sends.last().is_some_and(|send| send.mistake == Some(Mistake::NoReceive))
    }

    /// Whether it has stopped sending.
    pub(super) fn is_stopped(&self) -> bool {
        self.end.qp.state() == QpState::Sqd
    }
}

impl Send {
    pub(super) fn bare(id: RequestId, op: SendOp, flags: SendFlags) -> Self {
        Self {
            id,
            op,
            flags,
            sgl: Vec::new(),
            payload: Vec::new(),
            landing: Vec::new(),
            len: 0,
            at: 0,
            recv: None,
            mistake: None,
            wc: None,
        }
    }

    /// What its deliberate mistake makes of it.
    pub(super) fn status(&self) -> Option<WcStatus> {
        self.mistake.map(Mistake::status)
    }

    /// Whether its completion is asked for.
    pub(super) fn is_signaled(&self, sq_sig_all: bool) -> bool {
        sq_sig_all || self.flags.contains(SendFlags::SIGNALED)
    }
}

/// Local memory of a host: less than a huge page, whose zeros would take longer than most programs.
pub(super) const ARENA: usize = (2 << 20) - 4096;
/// Unused bytes at both ends of what is used.
pub(super) const GAP: usize = 64;
/// Cells of 8 bytes behind a target's data, for atomics.
pub(super) const CELLS: usize = 8;
/// Bytes of a target behind its data: cells, and bytes that nobody uses.
pub(super) const BEHIND: usize = 4 << 10;
/// Where the domains' regions of the targets begin, and those of the arenas.
pub(super) const WIDE: u64 = 0x40_0000_0000;
pub(super) const LOCAL: [u64; 2] = [0x1000_0000, 0x7fff_0000_0000];
