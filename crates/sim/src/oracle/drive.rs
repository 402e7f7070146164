//! Posting, polling and disturbing, until everything is at rest.

use std::time::Duration;

use rand::RngExt;
use userdma_verbs::{PostError, QpAttr, QpAttrMask as M, QpState, Qpn, RecvWr, SendFlags, SendWr, Wc};

use super::world::{CqState, World};

impl World {
    /// Posts everything that was drawn, in order within each queue and at random otherwise, until all is at rest.
    pub(super) fn carry_out(&mut self) -> Result<(), String> {
        for _ in 0..MAX_TURNS {
            let mut posted = false;
            for flow in 0..self.flows.len() {
                if self.rng.random_bool(0.7) {
                    posted |= self.post_next_send(flow)?;
                }
                let lazy = self.rng.random_bool(self.plan.lazy_recv);
                if !lazy || self.case.calm {
                    posted |= self.post_next_recv(flow)?;
                }
            }
            posted |= self.post_shared()?;
            if self.rng.random_bool(0.2) {
                let side = usize::from(self.rng.random_bool(0.5));
                self.pair.release_acks(side);
            }
            let mut moved = false;
            for _ in 0..self.rng.random_range(0..4) {
                moved |= self.pair.step();
            }
            self.poll_some()?;
            self.pause_or_resume();
            self.stall();
            self.post_wrong()?;
            if posted || moved || self.pair.step() || self.resume_all() {
                continue;
            }
            if self.poll_all()? > 0 {
                continue;
            }
            if self.is_all_posted() {
                return Ok(());
            }
            self.give_up_failed();
        }
        Err(format!("no end after {MAX_TURNS} turns: {}", self.describe_progress()))
    }

    /// Sides stop sending, and go on, at random.
    fn pause_or_resume(&mut self) {
        if self.plan.pause == 0.0 || self.case.calm {
            return;
        }
        for index in 0..self.flows.len() {
            if self.rng.random_bool(self.plan.pause) {
                match self.flows[index].end.qp.state() {
                    QpState::Rts => self.change_state(index, QpState::Sqd),
                    QpState::Sqd => self.change_state(index, QpState::Rts),
                    QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err => {}
                }
            }
        }
    }

    /// A host stands still, at random: for less than two of the shortest timeouts, and not soon again, so that the
    /// resends that a queue pair has are not used up.
    fn stall(&mut self) {
        let is_due = self.next_stall <= self.pair.now();
        if self.plan.stall > 0.0 && !self.case.calm && is_due && self.rng.random_bool(self.plan.stall) {
            let side = usize::from(self.rng.random_bool(0.5));
            let duration = Duration::from_micros(self.rng.random_range(50..800));
            let packets_first = self.rng.random_bool(0.5);
            self.note(|| format!("host {side} stands still for {duration:?}"));
            self.pair.stall(side, duration, packets_first);
            self.next_stall = self.pair.now() + duration + Duration::from_millis(16);
            self.report.count_event("stood still");
        }
    }

    /// Every side goes on; false if none had stopped.
    fn resume_all(&mut self) -> bool {
        let indices: Vec<usize> =
            (0..self.flows.len()).filter(|&index| self.flows[index].is_stopped()).collect();
        indices.iter().for_each(|&index| self.change_state(index, QpState::Rts));
        !indices.is_empty()
    }

    fn change_state(&mut self, index: usize, qp_state: QpState) {
        let flow = &self.flows[index];
        let (host, qpn) = (flow.host, flow.end.qp.qpn());
        let attr = QpAttr { qp_state, en_sqd_async_notify: true, ..QpAttr::default() };
        let notify = if qp_state == QpState::Sqd { M::EN_SQD_ASYNC_NOTIFY } else { M::empty() };
        self.note(|| format!("flow {index} goes to {qp_state:?}"));
        self.pair.modify(host, qpn, &attr, M::STATE | notify);
        self.report.count_event("changed state");
    }

    /// A side that does not learn of its peer's failure keeps its receives for ever: it ends the connection itself.
    pub(super) fn give_up_failed(&mut self) {
        for index in 0..self.flows.len() {
            let end = &self.flows[index].end.qp;
            if self.conn_has_failed(index / 2) && end.state() != QpState::Err {
                let (host, qpn) = (self.flows[index].host, end.qpn());
                self.pair.fail(host, qpn);
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
        // Unsignaled requests have no completion, but they are done when nothing is outstanding.
        let is_at_rest = flow.end.qp.outstanding_sends() == 0 && self.cqs[flow.send_cq].cq.is_empty();
        if !is_at_rest && flow.posted_sends - flow.seen_sends >= self.cqs[flow.send_cq].quota {
            return Ok(false);
        }
        if is_at_rest {
            flow.seen_sends = flow.posted_sends;
        }
        let inline: &[u8] = if send.flags.contains(SendFlags::INLINE) { &send.payload } else { &[] };
        let wr = SendWr {
            wr_id: WorkId { is_recv: false, flow: index, number: flow.posted_sends }.encode(),
            op: send.op,
            flags: send.flags,
            sgl: &send.sgl,
            inline,
        };
        match self.pair.hosts[flow.host].post_send(&flow.end, &wr) {
            Ok(()) => {}
            Err(PostError::QueueFull { .. }) => return Ok(false),
            Err(error) => return Err(format!("flow {index}: {wr:?} was not accepted: {error}")),
        }
        let now = self.pair.now();
        self.pair.net.note(now, || {
            let (number, len) = (flow.posted_sends, send.len);
            let mistake = send.mistake.map_or(String::new(), |mistake| format!("  ** {}", mistake.name()));
            let (op, flags) = (send.op, send.flags);
            format!("flow {index} posts send {number} ({}) {op:?} {flags:?} {len} bytes{mistake}", send.id)
        });
        flow.posted_sends += 1;
        Ok(true)
    }

    fn post_next_recv(&mut self, index: usize) -> Result<bool, String> {
        if self.is_shared(index) {
            return Ok(false);
        }
        let flow = &mut self.flows[index];
        let Some(recv) = flow.recvs.get(flow.posted_recvs) else { return Ok(false) };
        if flow.posted_recvs - flow.seen_recvs >= self.cqs[flow.recv_cq].quota {
            return Ok(false);
        }
        let wr_id = WorkId { is_recv: true, flow: index, number: flow.posted_recvs }.encode();
        let wr = RecvWr { wr_id, sgl: &recv.sgl };
        match self.pair.hosts[flow.peer_host].post_recv(&flow.peer, &wr) {
            Ok(()) => {}
            Err(PostError::QueueFull { .. }) => return Ok(false),
            Err(error) => return Err(format!("flow {index}: {wr:?} was not accepted: {error}")),
        }
        let now = self.pair.now();
        self.pair.net.note(now, || {
            let len: usize = recv.pieces.iter().map(|piece| piece.len).sum();
            format!("flow {index} posts receive {} for {len} bytes", flow.posted_recvs)
        });
        flow.posted_recvs += 1;
        Ok(true)
    }

    /// Takes some completions of some queues, as a program does that has other things to do.
    fn poll_some(&mut self) -> Result<(), String> {
        for index in 0..self.cqs.len() {
            self.notice_overflow(index)?;
            let lazy = if self.cqs[index].is_tight { 0.9 } else { self.plan.lazy_poll };
            if !self.rng.random_bool(lazy) || self.case.calm && !self.cqs[index].is_tight {
                let most = self.rng.random_range(1..=16);
                self.poll(index, most)?;
            }
        }
        Ok(())
    }

    /// Takes all completions; how many there were.
    pub(super) fn poll_all(&mut self) -> Result<usize, String> {
        let mut taken = 0;
        for index in 0..self.cqs.len() {
            self.notice_overflow(index)?;
            taken += self.poll(index, usize::MAX)?;
        }
        Ok(taken)
    }

    /// Takes up to `most` completions of a queue.
    fn poll(&mut self, index: usize, most: usize) -> Result<usize, String> {
        let empty =
            Wc::new(0, userdma_verbs::WcStatus::GeneralErr, userdma_verbs::WcOpcode::Send, Qpn::new(0));
        let mut taken = 0;
        while taken < most {
            let mut some = [empty; 16];
            let count = self.cqs[index].cq.poll(&mut some[..(most - taken).min(16)]);
            if count == 0 {
                break;
            }
            taken += count;
            for wc in &some[..count] {
                self.take(index, wc)?;
            }
        }
        Ok(taken)
    }

    /// A queue that has overflowed was full, its queue pairs are in error, and what it held is still there.
    fn notice_overflow(&mut self, index: usize) -> Result<(), String> {
        let CqState { cq, is_dead, is_tight, host, .. } = &mut self.cqs[index];
        if *is_dead || !cq.has_overflowed() {
            return Ok(());
        }
        if !*is_tight {
            return Err(format!(
                "completion queue {index} of {} overflowed, though it was large enough",
                cq.capacity()
            ));
        }
        *is_dead = true;
        let (capacity, number, host) = (cq.capacity() as usize, cq.number(), *host);
        self.dead_cqs.push((host, number));
        self.note(|| format!("completion queue {index} has overflowed"));
        self.report.count_event("queue overflowed");
        let held = self.poll(index, usize::MAX)?;
        if held != capacity {
            return Err(format!(
                "completion queue {index} overflowed with {held} of {capacity} entries in it"
            ));
        }
        for flow in 0..self.flows.len() {
            let (conn, end) = (flow / 2, flow % 2);
            let plan = &self.plan.conns[conn];
            if plan.send_cqs[end] == index || plan.recv_cqs[end] == index {
                self.overflowed[conn] = true;
                let state = self.flows[flow].end.qp.state();
                if state != QpState::Err {
                    return Err(format!(
                        "completion queue {index} overflowed, but flow {flow} is in {state:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A completion must name a work request of this queue that has none yet, in order.
    fn take(&mut self, cq: usize, wc: &Wc) -> Result<(), String> {
        let shared = self.bind_shared(wc)?;
        let shared = shared.map(|(flow, number)| WorkId { is_recv: true, flow, number });
        let WorkId { is_recv, flow: index, number } = shared.unwrap_or(WorkId::decode(wc.wr_id));
        self.note(|| {
            let kind = if is_recv { "receive" } else { "send" };
            format!("flow {index} {kind} {number} completes: {:?}", wc.status)
        });
        let flow = self.flows.get_mut(index).ok_or(format!("a completion of nothing: {wc:?}"))?;
        let (its_cq, end) = if is_recv { (flow.recv_cq, &flow.peer) } else { (flow.send_cq, &flow.end) };
        if its_cq != cq {
            return Err(format!("flow {index}: completion in the wrong queue: {wc:?}"));
        }
        if wc.qpn != end.qp.qpn() {
            return Err(format!("flow {index}: completion with the wrong qpn: {wc:?}"));
        }
        if is_recv {
            // Earlier phases may have some that a queue had no room for.
            let mut open = flow.recvs.iter().enumerate().skip(flow.judged_recvs);
            let expected = open.find(|(_, recv)| recv.wc.is_none()).map(|(number, _)| number);
            if expected != Some(number) || number >= flow.posted_recvs {
                return Err(format!(
                    "flow {index}: receive {expected:?} should complete next, but did {wc:?}"
                ));
            }
            flow.recvs[number].wc = Some(*wc);
            flow.seen_recvs = number + 1;
        } else {
            if number >= flow.posted_sends {
                return Err(format!("flow {index}: completion of a send that was never posted: {wc:?}"));
            }
            if flow.sends[number..].iter().any(|send| send.wc.is_some()) {
                return Err(format!(
                    "flow {index}: send {number} completes twice or after a later one: {wc:?}"
                ));
            }
            flow.sends[number].wc = Some(*wc);
            flow.seen_sends = flow.seen_sends.max(number + 1);
        }
        Ok(())
    }
}

/// What a work request's identifier says.
#[derive(Clone, Copy, Debug)]
struct WorkId {
    is_recv: bool,
    flow: usize,
    number: usize,
}

impl WorkId {
    const fn encode(self) -> u64 {
        (self.is_recv as u64) << 63 | (self.flow as u64) << 32 | self.number as u64
    }

    fn decode(wr_id: u64) -> Self {
        let number = usize::try_from(wr_id & 0xffff_ffff).unwrap_or(usize::MAX);
        let flow = usize::try_from(wr_id >> 32 & 0x7fff_ffff).unwrap_or(usize::MAX);
        Self { is_recv: wr_id >> 63 == 1, flow, number }
    }
}

/// Turns of a phase at most.
const MAX_TURNS: usize = 100_000;
