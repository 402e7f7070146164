//! A program under way: hosts, flows, what was posted and what has completed.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_verbs::{
    AccessFlags, PostError, QpAttr, QpAttrMask as M, QpState, RKey, RecvWr, SendFlags, SendOp, SendWr, Sge,
    Wc, WcStatus,
};

use super::Report;
use super::plan::Plan;
use super::shadow::Shadow;
use crate::{Memory, Pair, QpEnd};

/// A program and the devices that it runs on.
#[derive(Debug)]
pub(super) struct World {
    pub(super) rng: SmallRng,
    pub(super) plan: Plan,
    pub(super) pair: Pair,
    /// Flow `2 * connection + side`: what `side` sends.
    pub(super) flows: Vec<Flow>,
    /// Local buffers of each host.
    pub(super) arenas: [Arena; 2],
    pub(super) report: Report,
    /// Connections that have failed at some time.
    pub(super) ever_failed: Vec<bool>,
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Flow {
    /// The requester's host.
    pub(super) side: usize,
    /// The requester's queue pair.
    pub(super) end: QpEnd,
    /// The responder's queue pair.
    pub(super) peer: QpEnd,
    /// The responder's memory for one-sided operations of this flow.
    pub(super) target: Target,
    pub(super) sends: Vec<Send>,
    pub(super) recvs: Vec<Recv>,
    /// Sends and receives that were posted.
    pub(super) posted_sends: usize,
    pub(super) posted_recvs: usize,
    /// Sends and receives that earlier phases have judged.
    pub(super) judged_sends: usize,
    pub(super) judged_recvs: usize,
}

/// Memory that a peer reaches.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) memory: Memory,
    /// The same memory, registered without the right to write.
    pub(super) read_only: Memory,
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

/// Local memory of a host, given out from the bottom to the top.
#[derive(Debug)]
pub(super) struct Arena {
    /// The same memory twice, under two keys.
    pub(super) memories: [Memory; 2],
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

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mistake {
    /// A key that names nothing.
    NoKey,
    /// A window's key after its invalidation.
    StaleWindow,
    /// A range that leaves the region.
    OutOfBounds,
    /// A write through a key that allows only reading.
    ReadOnly,
    /// An invalidation of a region's key.
    InvalidateRegion,
    /// A message longer than its receive.
    TooLong,
    /// A local element whose key names nothing.
    LocalKey,
    /// The same in the receive.
    RecvKey,
}

impl Mistake {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoKey => "wrong rkey",
            Self::StaleWindow => "stale window",
            Self::OutOfBounds => "out of bounds",
            Self::ReadOnly => "read only",
            Self::InvalidateRegion => "invalidated a region",
            Self::TooLong => "too long",
            Self::LocalKey => "local key",
            Self::RecvKey => "receive's key",
        }
    }

    /// What the sender's completion says.
    pub(super) const fn status(self) -> WcStatus {
        match self {
            Self::NoKey | Self::StaleWindow | Self::OutOfBounds | Self::ReadOnly | Self::InvalidateRegion => {
                WcStatus::RemAccessErr
            }
            Self::TooLong => WcStatus::RemInvReqErr,
            Self::LocalKey => WcStatus::LocProtErr,
            Self::RecvKey => WcStatus::RemOpErr,
        }
    }
}

impl World {
    pub(super) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let plan = Plan::draw(&mut rng, seed);
        let mut pair = Pair::new(&plan.pair);
        pair.net.coalesced = plan.coalesced;
        if trace {
            pair.net.start_trace();
        }
        let now = pair.now();
        pair.net.note(now, || format!("{plan:?}"));
        let arenas = [0, 1].map(|side| Arena::new(&mut pair, side));
        let mut flows = Vec::new();
        for _ in 0..plan.conns {
            let ends = pair.connect(&plan.connect);
            for side in [0, 1] {
                let target = Target::new(&mut pair, 1 - side, flows.len());
                flows.push(Flow::new(side, &ends, target));
            }
        }
        let ever_failed = vec![false; plan.conns];
        Self { rng, plan, pair, flows, arenas, report: Report::default(), ever_failed }
    }

    pub(super) fn run(mut self) -> Result<Report, String> {
        self.run_in_place()?;
        Ok(self.report)
    }

    pub(super) fn run_in_place(&mut self) -> Result<(), String> {
        for _ in 0..self.plan.phases {
            self.draw_phase();
            self.carry_out()?;
            self.end_phase()?;
        }
        self.close()
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.pair.net.take_trace()
    }

    /// Posts everything that was drawn, in order within each queue and at random otherwise, until all is at rest.
    fn carry_out(&mut self) -> Result<(), String> {
        for _ in 0..MAX_TURNS {
            let mut posted = false;
            for flow in 0..self.flows.len() {
                if self.rng.random_bool(0.7) {
                    posted |= self.post_next_send(flow)?;
                }
                if !self.rng.random_bool(self.plan.lazy_recv) {
                    posted |= self.post_next_recv(flow)?;
                }
            }
            if self.rng.random_bool(0.2) {
                let side = usize::from(self.rng.random_bool(0.5));
                self.pair.release_acks(side);
            }
            let mut moved = false;
            for _ in 0..self.rng.random_range(0..4) {
                moved |= self.pair.step();
            }
            self.poll()?;
            self.pause_or_resume();
            if posted || moved || self.pair.step() || self.resume_all() {
                continue;
            }
            if self.is_all_posted() {
                return self.poll();
            }
            self.give_up_failed();
        }
        Err(format!("no end after {MAX_TURNS} turns: {}", self.describe_progress()))
    }

    /// Sides stop sending, and go on, at random.
    fn pause_or_resume(&mut self) {
        for index in 0..self.flows.len() {
            if self.plan.pause > 0.0 && self.rng.random_bool(self.plan.pause) {
                match self.flows[index].end.qp.state() {
                    QpState::Rts => self.change_state(index, QpState::Sqd),
                    QpState::Sqd => self.change_state(index, QpState::Rts),
                    QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err => {}
                }
            }
        }
    }

    /// Every side goes on; false if none had stopped.
    fn resume_all(&mut self) -> bool {
        let stopped = |flow: &Flow| flow.end.qp.state() == QpState::Sqd;
        let indices: Vec<usize> =
            (0..self.flows.len()).filter(|&index| stopped(&self.flows[index])).collect();
        indices.iter().for_each(|&index| self.change_state(index, QpState::Rts));
        !indices.is_empty()
    }

    fn change_state(&mut self, index: usize, qp_state: QpState) {
        let flow = &self.flows[index];
        let (side, qpn) = (flow.side, flow.end.qp.qpn());
        let attr = QpAttr { qp_state, en_sqd_async_notify: true, ..QpAttr::default() };
        let notify = if qp_state == QpState::Sqd { M::EN_SQD_ASYNC_NOTIFY } else { M::empty() };
        let now = self.pair.now();
        self.pair.net.note(now, || format!("flow {index} goes to {qp_state:?}"));
        self.pair.modify(side, qpn, &attr, M::STATE | notify);
    }

    /// A side that does not learn of its peer's failure keeps its receives for ever: it ends the connection itself.
    fn give_up_failed(&mut self) {
        for index in 0..self.flows.len() {
            let end = &self.flows[index].end.qp;
            if self.conn_has_failed(index / 2) && end.state() != QpState::Err {
                let (side, qpn) = (self.flows[index].side, end.qpn());
                self.pair.fail(side, qpn);
            }
        }
    }

    fn is_all_posted(&self) -> bool {
        self.flows.iter().all(|f| f.posted_sends == f.sends.len() && f.posted_recvs == f.recvs.len())
    }

    /// Posts a flow's next send; false if there is none, or no room.
    fn post_next_send(&mut self, index: usize) -> Result<bool, String> {
        let flow = &mut self.flows[index];
        let Some(send) = flow.sends.get(flow.posted_sends) else { return Ok(false) };
        let inline: &[u8] = if send.flags.contains(SendFlags::INLINE) { &send.payload } else { &[] };
        let wr = SendWr {
            wr_id: flow.posted_sends as u64,
            op: send.op,
            flags: send.flags,
            sgl: &send.sgl,
            inline,
        };
        match self.pair.hosts[flow.side].post_send(&flow.end, &wr) {
            Ok(()) => {}
            Err(PostError::QueueFull { .. }) => return Ok(false),
            Err(error) => return Err(format!("flow {index}: {wr:?} was not accepted: {error}")),
        }
        let now = self.pair.now();
        self.pair.net.note(now, || {
            format!("flow {index} posts send {} {:?} {:?} {} bytes", wr.wr_id, wr.op, wr.flags, send.len)
        });
        flow.posted_sends += 1;
        Ok(true)
    }

    fn post_next_recv(&mut self, index: usize) -> Result<bool, String> {
        let flow = &mut self.flows[index];
        let Some(recv) = flow.recvs.get(flow.posted_recvs) else { return Ok(false) };
        let wr = RecvWr { wr_id: flow.posted_recvs as u64, sgl: &recv.sgl };
        match self.pair.hosts[1 - flow.side].post_recv(&flow.peer, &wr) {
            Ok(()) => {}
            Err(PostError::QueueFull { .. }) => return Ok(false),
            Err(error) => return Err(format!("flow {index}: {wr:?} was not accepted: {error}")),
        }
        let now = self.pair.now();
        self.pair.net.note(now, || format!("flow {index} posts receive {}", wr.wr_id));
        flow.posted_recvs += 1;
        Ok(true)
    }

    /// Takes completions; each must name a work request that has none yet, in order.
    pub(super) fn poll(&mut self) -> Result<(), String> {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            for wc in flow.end.poll_send() {
                let now = self.pair.now();
                self.pair
                    .net
                    .note(now, || format!("flow {index} send {} completes: {:?}", wc.wr_id, wc.status));
                let posted = flow.posted_sends;
                let number = usize::try_from(wc.wr_id).ok().filter(|&n| n < posted);
                let number = number
                    .ok_or(format!("flow {index}: completion of a send that was never posted: {wc:?}"))?;
                if flow.sends[number..].iter().any(|send| send.wc.is_some()) {
                    return Err(format!(
                        "flow {index}: send {number} completes twice or after a later one: {wc:?}"
                    ));
                }
                if wc.qpn != flow.end.qp.qpn() {
                    return Err(format!("flow {index}: completion with the wrong qpn: {wc:?}"));
                }
                flow.sends[number].wc = Some(wc);
            }
            for wc in flow.peer.poll_recv() {
                let now = self.pair.now();
                self.pair
                    .net
                    .note(now, || format!("flow {index} receive {} completes: {:?}", wc.wr_id, wc.status));
                let expected = flow.recvs.iter().position(|recv| recv.wc.is_none());
                if expected != usize::try_from(wc.wr_id).ok() || wc.wr_id >= flow.posted_recvs as u64 {
                    return Err(format!(
                        "flow {index}: receive {expected:?} should complete next, but did {wc:?}"
                    ));
                }
                if wc.qpn != flow.peer.qp.qpn() {
                    return Err(format!("flow {index}: completion with the wrong qpn: {wc:?}"));
                }
                flow.recvs[expected.unwrap_or(0)].wc = Some(wc);
            }
        }
        Ok(())
    }

    /// Whether a connection has failed in this phase: something of it has completed in error.
    pub(super) fn conn_has_failed(&self, conn: usize) -> bool {
        let is_error = |wc: &Option<Wc>| wc.is_some_and(|wc| wc.status != WcStatus::Success);
        self.flows[2 * conn..2 * conn + 2].iter().any(|flow| {
            flow.sends[flow.judged_sends..].iter().any(|send| is_error(&send.wc))
                || flow.recvs[flow.judged_recvs..].iter().any(|recv| is_error(&recv.wc))
        })
    }

    fn describe_progress(&self) -> String {
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
    fn new(pair: &mut Pair, side: usize) -> Self {
        let host = &mut pair.hosts[side];
        let first = host.memory(ARENA, AccessFlags::LOCAL_WRITE);
        let buffer = first.buffer.clone();
        let memories = [0x1000_0000, 0x7fff_0000_0000]
            .map(|iova| host.register(buffer.clone(), iova, AccessFlags::LOCAL_WRITE));
        host.shard.dereg_mr(first.keys.lkey).expect("a region that nobody uses");
        Self { memories, shadow: Shadow::new(ARENA), top: GAP }
    }

    /// A piece of `len` bytes with unused bytes around it.
    pub(super) fn take(&mut self, len: usize, gap: usize) -> Piece {
        let at = self.top + gap;
        assert!(at + len + GAP < ARENA, "the arena is too small for this program");
        self.top = at + len;
        self.shadow.cover(self.top + GAP);
        Piece { at, len }
    }
}

impl Target {
    fn new(pair: &mut Pair, side: usize, number: usize) -> Self {
        let host = &mut pair.hosts[side];
        let rights = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC
            | AccessFlags::MW_BIND;
        let first = host.memory(TARGET, rights);
        let iova = 0x20_0000_0000 + 0x1_0000_0000 * number as u64;
        let memory = host.register(first.buffer.clone(), iova, rights);
        let read_only = host.register(first.buffer.clone(), iova, AccessFlags::REMOTE_READ);
        host.shard.dereg_mr(first.keys.lkey).expect("a region that nobody uses");
        let rkey = host.shard.alloc_mw(host.pd).expect("a window");
        let mut shadow = Shadow::new(TARGET);
        shadow.cover(TARGET);
        let window = Window { rkey, bound: None, mode: WindowMode::Idle };
        Self { memory, read_only, shadow, window }
    }
}

impl Flow {
    fn new(side: usize, ends: &[QpEnd; 2], target: Target) -> Self {
        Self {
            side,
            end: ends[side].clone(),
            peer: ends[1 - side].clone(),
            target,
            sends: Vec::new(),
            recvs: Vec::new(),
            posted_sends: 0,
            posted_recvs: 0,
            judged_sends: 0,
            judged_recvs: 0,
        }
    }
}

impl Send {
    /// What its deliberate mistake makes of it.
    pub(super) fn status(&self) -> Option<WcStatus> {
        self.mistake.map(Mistake::status)
    }

    /// Whether its completion is asked for.
    pub(super) fn is_signaled(&self, sq_sig_all: bool) -> bool {
        sq_sig_all || self.flags.contains(SendFlags::SIGNALED)
    }
}

/// Local memory of a host.
const ARENA: usize = 32 << 20;
/// Unused bytes at both ends of what is used.
pub(super) const GAP: usize = 64;
/// Bytes of a target that READs and WRITEs use.
pub(super) const DATA: usize = 192 << 10;
/// Cells of 8 bytes behind them, for atomics.
pub(super) const CELLS: usize = 8;
/// A target: data, cells, and bytes that nobody uses.
pub(super) const TARGET: usize = DATA + (4 << 10);
/// Turns of a phase at most.
const MAX_TURNS: usize = 400_000;
