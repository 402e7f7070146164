//! Shared receive queues of a program, and what must be true of them.
//!
//! A program posts to them as a server does: a receive that has completed is posted again. Which receive a message takes
//! depends on what other connections do, so a receive is given to its message when it completes: the completion names a
//! queue pair, whose messages take receives in their order. The bytes are looked at then, before the place is used again.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::RngExt;
use userdma_mem::{Buffer, Region};
use userdma_objects::{MrKeys, Srq};
use userdma_verbs::{
    AccessFlags, AsyncEvent, PostError, QpState, Qpn, RecvWr, SendOp, Sge, SrqAttr, SrqAttrMask, SrqInitAttr,
    Wc, WcStatus,
};

use super::plan::SrqPlan;
use super::shadow::Shadow;
use super::world::{Piece, Room, Send, World};
use crate::Host;

/// A shared receive queue of a program. Its memory is divided into places, one for each receive.
#[derive(Debug)]
pub(super) struct SrqState {
    pub(super) srq: Arc<Srq>,
    memory: Arc<Buffer>,
    keys: MrKeys,
    shadow: Shadow,
    /// How the list of each place's receive cuts its bytes in two.
    cuts: Vec<usize>,
    /// Places that are not posted.
    free: Vec<usize>,
    /// Places in the order of posting, and whether their receives have completed.
    posted: VecDeque<(usize, bool)>,
    /// How often an event was asked for.
    arms: usize,
}

impl SrqState {
    pub(super) fn new(host: &mut Host, room: &Room, plan: SrqPlan) -> Self {
        let places = plan.max_wr as usize;
        let memory = Arc::new(Buffer::new(places * STRIDE).expect("memory"));
        let pd = room.pds[plan.pd].pd;
        let region = Region::from_buffer(&memory);
        let keys = host.shard.reg_mr(pd, region, IOVA, AccessFlags::LOCAL_WRITE).expect("a region");
        let init = SrqInitAttr { max_wr: plan.max_wr, max_sge: 2 };
        let srq = host.shard.create_srq(pd, &init).expect("a shared receive queue");
        let mut shadow = Shadow::new(places * STRIDE);
        shadow.cover(places * STRIDE);
        let free = (0..places).collect();
        Self { srq, memory, keys, shadow, cuts: vec![0; places], free, posted: VecDeque::new(), arms: 0 }
    }

    /// Ends it, and its memory.
    pub(super) fn destroy(&self, host: &mut Host) -> Result<(), String> {
        host.shard.destroy_srq(self.srq.srqn()).map_err(|error| error.to_string())?;
        host.shard.dereg_mr(self.keys.lkey).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn pieces(&self, place: usize) -> [Piece; 2] {
        let (at, cut) = (place * STRIDE, self.cuts[place]);
        [Piece { at, len: cut }, Piece { at: at + cut, len: ROOM - cut }]
    }

    /// Posts the receive of a place.
    fn post(&mut self, wr_id: u64, place: usize, cut: usize) -> Result<(), PostError> {
        self.cuts[place] = cut;
        let sgl = self.pieces(place).map(|piece| Sge {
            addr: IOVA + piece.at as u64,
            length: u32::try_from(piece.len).unwrap_or(u32::MAX),
            lkey: self.keys.lkey,
        });
        self.srq.post_recv(&RecvWr { wr_id, sgl: &sgl })?;
        self.posted.push_back((place, false));
        Ok(())
    }

    /// The receive of a place has completed with `status`, with `send` or what has come of it.
    fn complete(&mut self, place: usize, send: &Send, status: WcStatus) -> Result<(), String> {
        let entry = self.posted.iter_mut().find(|(posted, is_done)| *posted == place && !is_done);
        let (_, is_done) = entry.ok_or(format!("place {place} completes, but is not posted"))?;
        *is_done = true;
        self.free.push(place);
        let carries = matches!(send.op, SendOp::Send | SendOp::SendWithImm(_) | SendOp::SendWithInv(_));
        let len = if carries { send.payload.len().min(ROOM) } else { 0 };
        let (at, bytes) = (place * STRIDE, &send.payload[..len]);
        if status != WcStatus::Success {
            self.shadow.allow(at, bytes);
            return Ok(());
        }
        let mut found = vec![0; len];
        self.memory.read(at as u64, &mut found).map_err(|error| error.to_string())?;
        self.shadow.put(at, bytes);
        if found == bytes { Ok(()) } else { Err(format!("place {place} has other bytes than its message")) }
    }

    /// What is true at rest: receives were taken in the order of posting, and each that was has completed.
    fn check(&mut self, told: usize) -> Result<(), String> {
        while self.posted.front().is_some_and(|(_, is_done)| *is_done) {
            self.posted.pop_front();
        }
        if let Some((place, _)) = self.posted.iter().find(|(_, is_done)| *is_done) {
            return Err(format!("place {place} was taken before older ones"));
        }
        if self.posted.len() != self.srq.recv_count() as usize {
            let (open, left) = (self.posted.len(), self.srq.recv_count());
            return Err(format!("{open} receives have not completed, but {left} are left"));
        }
        let armed = usize::from(self.srq.attr().srq_limit > 0);
        if self.arms != told + armed {
            return Err(format!("{} limits, {armed} of them still set, but {told} events", self.arms));
        }
        self.shadow.check("memory", &self.memory, 0)
    }
}

impl World {
    /// Whether the messages of a flow take receives from a shared receive queue.
    pub(super) fn is_shared(&self, flow: usize) -> bool {
        self.plan.conns[flow / 2].shares_srq[1 - flow % 2]
    }

    /// The longest message of a flow that its receives can take.
    pub(super) fn longest(&self, flow: usize) -> usize {
        if self.is_shared(flow) { self.plan.data.min(ROOM) } else { self.plan.data }
    }

    /// Posts what can be posted to shared receive queues, or leaves it for later; whether anything was.
    pub(super) fn post_shared(&mut self) -> Result<bool, String> {
        let mut posted = false;
        for host in [0, 1] {
            if self.srqs[host].is_none() {
                continue;
            }
            let lazy = self.rng.random_bool(self.plan.lazy_recv);
            while let Some(srq) = self.srqs[host].as_mut().filter(|_| !lazy || self.case.calm)
                && let Some(place) = srq.free.pop()
            {
                let cut = self.rng.random_range(0..=ROOM);
                srq.post(WR_ID | (host as u64) << 32 | place as u64, place, cut)
                    .map_err(|error| format!("shared queue of host {host}: {error}"))?;
                posted = true;
            }
            self.arm_limit(host);
            self.end_hoarders(host);
        }
        Ok(posted)
    }

    /// Asks for the event of a queue's limit now and then, if none is asked for.
    fn arm_limit(&mut self, host: usize) {
        if self.case.calm || !self.rng.random_bool(0.02) {
            return;
        }
        let Some(srq) = &mut self.srqs[host] else { return };
        let SrqAttr { max_wr, srq_limit, .. } = srq.srq.attr();
        if srq_limit == 0 {
            let attr = SrqAttr { srq_limit: self.rng.random_range(1..=max_wr), ..SrqAttr::default() };
            let modified = self.pair.hosts[host].shard.modify_srq(srq.srq.srqn(), &attr, SrqAttrMask::LIMIT);
            modified.expect("a limit that fits");
            srq.arms += 1;
            self.report.count_event("limits of shared receives");
        }
    }

    /// A connection whose sender has failed may keep the last receive for a message that will not end, while others wait for
    /// it: it is ended.
    fn end_hoarders(&mut self, host: usize) {
        let is_dry = |srq: &SrqState| srq.free.is_empty() && srq.srq.recv_count() == 0;
        if self.srqs[host].as_ref().is_some_and(is_dry) && self.rng.random_bool(0.05) {
            for conn in self.conns() {
                self.hoarded[conn] |= self.conn_has_failed(conn);
            }
            self.give_up_failed();
        }
    }

    /// The flow and the number of the receive that a completion of a shared receive queue belongs to; `None` if it is of
    /// another kind.
    pub(super) fn bind_shared(&mut self, wc: &Wc) -> Result<Option<(usize, usize)>, String> {
        if wc.wr_id & WR_ID != WR_ID {
            return Ok(None);
        }
        let host = usize::from(wc.wr_id & 1 << 32 != 0);
        let place = usize::try_from(wc.wr_id & 0xffff_ffff).unwrap_or(usize::MAX);
        let index = (0..self.flows.len()).find(|&index| {
            let flow = &self.flows[index];
            self.is_shared(index) && flow.peer_host == host && flow.peer.qp.qpn() == wc.qpn
        });
        let index = index.ok_or(format!("a shared receive completes for nobody: {wc:?}"))?;
        let flow = &self.flows[index];
        let mut open = flow.recvs.iter().enumerate().skip(flow.judged_recvs);
        let number = open.find(|(_, recv)| recv.wc.is_none()).map(|(number, _)| number);
        let number = number.ok_or(format!("flow {index}: a shared receive without a message: {wc:?}"))?;
        let send = &flow.sends[flow.recvs[number].message];
        let srq = self.srqs[host].as_mut().ok_or("a shared receive of no queue")?;
        srq.complete(place, send, wc.status).map_err(|what| format!("flow {index}: {what}"))?;
        self.report.count_event("shared receives");
        Ok(Some((index, number)))
    }

    /// Judges shared receive queues at rest.
    pub(super) fn judge_shared(&mut self) -> Result<(), String> {
        for (host, srq) in self.srqs.iter_mut().enumerate() {
            let Some(srq) = srq else { continue };
            let event = AsyncEvent::SrqLimitReached { srqn: srq.srq.srqn() };
            let told = self.pair.hosts[host].events.iter().filter(|&told| *told == event).count();
            srq.check(told).map_err(|what| format!("shared queue of host {host}: {what}"))?;
        }
        Ok(())
    }

    /// Notes that a connection's queue pairs have come to the error state.
    pub(super) fn expect_last_wqes(&mut self, conn: usize) {
        for flow in &self.flows[2 * conn..2 * conn + 2] {
            debug_assert_eq!(flow.end.qp.state(), QpState::Err);
            if flow.end.qp.srq().is_some() {
                self.last_wqes.push(flow.end.qp.qpn());
            }
        }
    }

    /// Each queue pair with a shared receive queue has told once for each time that it came to the error state.
    pub(super) fn check_last_wqes(&self) -> Result<(), String> {
        let told = |event: &AsyncEvent| {
            if let AsyncEvent::QpLastWqeReached { qpn } = event { Some(*qpn) } else { None }
        };
        let mut told: Vec<Qpn> =
            self.pair.hosts.iter().flat_map(|host| &host.events).filter_map(told).collect();
        let mut expected = self.last_wqes.clone();
        told.sort_unstable();
        expected.sort_unstable();
        if told == expected {
            Ok(())
        } else {
            Err(format!("last WQEs are told of {told:?}, must be of {expected:?}"))
        }
    }
}

/// Bytes that a shared receive has room for.
pub(super) const ROOM: usize = 8192;
/// Bytes from place to place: some behind each that nobody uses.
const STRIDE: usize = ROOM + 64;
/// The first address of the memory.
const IOVA: u64 = 0x30_0000_0000;
/// What identifiers of shared receives have: they are receives of no flow.
const WR_ID: u64 = 1 << 63 | 1 << 62;
