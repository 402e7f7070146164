//! What must be true of completions and of memory once everything is at rest.

use userdma_verbs::{AtomicOp, SendFlags, SendOp, Wc, WcFlags, WcOpcode, WcStatus};

use super::mistake::Mistake;
use super::shadow::Shadow;
use super::world::{BEHIND, CELLS, Flow, Piece, Send, WindowMode, World};

/// What completions say about a flow's sends of this phase.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Sends before this one are complete: what they brought has landed.
    completed: usize,
    /// Sends before this one were executed for certain.
    executed: usize,
    /// Sends before this one may have been executed.
    possible: usize,
}

impl World {
    /// Judges everything since the last time. `failed` says which connections have failed.
    pub(super) fn judge(&mut self, failed: &[bool]) -> Result<(), String> {
        for index in 0..self.flows.len() {
            let name = |what: String| format!("flow {index}: {what}");
            let outcome = self.judge_completions(index).map_err(name)?;
            self.judge_receives(index, failed[index / 2], outcome).map_err(name)?;
            self.apply(index, outcome);
            self.count(index);
            self.settle_window(index);
        }
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let target = &mut flow.target;
            target.shadow.check(&format!("target of flow {index}"), &target.memory, target.base)?;
            flow.judged_sends = flow.sends.len();
            flow.judged_recvs = flow.recvs.len();
            (flow.seen_sends, flow.seen_recvs) = (flow.posted_sends, flow.posted_recvs);
        }
        self.judge_shared()?;
        for (side, room) in self.rooms.iter_mut().enumerate() {
            room.arena.shadow.check(&format!("arena of host {side}"), &room.arena.buffer, 0)?;
        }
        Ok(())
    }

    fn judge_completions(&self, index: usize) -> Result<Outcome, String> {
        let flow = &self.flows[index];
        let from = flow.judged_sends;
        let error = |send: &Send| send.wc.is_some_and(|wc| wc.status != WcStatus::Success);
        let first_error = flow.sends[from..].iter().position(error).map(|at| from + at);
        // The queue was too small for completions behind the last one that was seen.
        let told = if self.cqs[flow.send_cq].is_dead { self.told(flow) } else { flow.sends.len() };
        for (number, send) in flow.sends.iter().enumerate().skip(from) {
            if number >= told {
                continue;
            }
            let expected = match first_error {
                None => Expected::Success,
                Some(first) if number < first => Expected::Success,
                Some(first) if number == first => Expected::Error,
                Some(_) => Expected::Flush,
            };
            self.judge_send(index, number, send, expected)
                .map_err(|what| format!("send {number} ({:?}): {what}", send.op))?;
        }
        let evidence =
            flow.recvs.iter().filter(|recv| recv.wc.is_some_and(|wc| wc.status == WcStatus::Success));
        let received = evidence.map(|recv| recv.message + 1).max().unwrap_or(0);
        let completed = first_error.unwrap_or(told);
        // A mistake is refused as a whole, unless its first packets have left before the local error was met.
        let possible = match flow.mistaken() {
            Some(number) if flow.sends[number].mistake.is_some_and(Mistake::is_met_late) => number + 1,
            Some(number) => number,
            None => flow.sends.len(),
        };
        Ok(Outcome { completed, executed: completed.max(received), possible })
    }

    /// Sends of a flow before the one behind its last completion.
    fn told(&self, flow: &Flow) -> usize {
        flow.sends
            .iter()
            .rposition(|send| send.wc.is_some())
            .map_or(0, |last| last + 1)
            .max(flow.judged_sends)
    }

    fn judge_send(&self, index: usize, number: usize, send: &Send, expected: Expected) -> Result<(), String> {
        let all = self.plan.conns[index / 2].options.sq_sig_all;
        match (expected, send.wc) {
            (Expected::Success, None) if send.is_signaled(all) => {
                return Err("signaled, and no completion".into());
            }
            (Expected::Success, None) => {}
            (Expected::Success, Some(_)) if !send.is_signaled(all) => {
                return Err("unsignaled, and a completion with success".into());
            }
            (Expected::Success, Some(wc)) => check_send_wc(send, &wc)?,
            (Expected::Error, Some(wc)) => self.judge_error(index, number, wc.status)?,
            (Expected::Flush, Some(wc)) if wc.status == WcStatus::WrFlushErr => {}
            // The refusal overtook the lost answer of an earlier READ, which is flushed first.
            (Expected::Flush, Some(wc)) if self.plan.is_lossy() && Some(wc.status) == send.status() => {}
            (Expected::Error | Expected::Flush, wc) => return Err(format!("must be flushed, but {wc:?}")),
        }
        if expected == Expected::Success && send.mistake.is_some() {
            return Err(format!("succeeded in spite of {:?}", send.mistake));
        }
        Ok(())
    }

    /// Whether the first error of a flow is one that its connection can have. The network lets everything through
    /// before the retries are used up: a connection without a mistake that gives up is stuck.
    fn judge_error(&self, index: usize, number: usize, status: WcStatus) -> Result<(), String> {
        let flow = &self.flows[index];
        let mine = flow.mistaken();
        // Both ends were taken to ERR, whatever was still under way.
        let overflowed = self.overflowed[index / 2] || self.hoarded[index / 2];
        // A queue pair that does not wait for ever for receives may give up, since they are posted at any time.
        let rnr_retry = self.plan.conns[index / 2].options.rnr_retry;
        if status == WcStatus::RnrRetryExcErr && rnr_retry < 7 && flow.sends[number].recv.is_some() {
            return Ok(());
        }
        let gave_up = |flow: &Flow| {
            let mut sends = flow.sends[flow.judged_sends..].iter();
            sends.any(|send| send.wc.is_some_and(|wc| wc.status == WcStatus::RnrRetryExcErr))
        };
        let peer = &self.flows[index ^ 1];
        let has_mistake = mine.is_some() || peer.mistaken().is_some() || overflowed || gave_up(peer);
        let is_mine = mine == Some(number) && flow.sends[number].status() == Some(status);
        // The peer's queue pair, or ours, is in error for a mistake of the other direction; or a refusal was lost and
        // the peer is silent since, or overtook an answer to an earlier request.
        let is_consequence = matches!(status, WcStatus::WrFlushErr | WcStatus::RetryExcErr)
            && (mine.is_none()
                || overflowed
                || gave_up(peer)
                || self.plan.is_lossy()
                || peer.mistaken().is_some());
        if has_mistake && (is_mine || is_consequence) {
            Ok(())
        } else {
            Err(format!("{status:?} is not how this connection can fail (mistake at {mine:?})"))
        }
    }

    fn judge_receives(&self, index: usize, failed: bool, outcome: Outcome) -> Result<(), String> {
        let flow = &self.flows[index];
        let peer_closed = flow.peer.qp.state() == userdma_verbs::QpState::Err;
        let is_dead = self.cqs[flow.recv_cq].is_dead;
        for (number, recv) in flow.recvs.iter().enumerate().skip(flow.judged_recvs) {
            let send = &flow.sends[recv.message];
            let name = |what: String| format!("receive {number}: {what}");
            match recv.wc {
                // Behind the last completion that the queue had room for.
                None if is_dead => {}
                None if recv.message < outcome.executed => {
                    return Err(name("no completion, though its message was executed".into()));
                }
                // A shared queue keeps what nobody has taken.
                None if failed && self.is_shared(index) => {}
                None if !failed || peer_closed => return Err(name("no completion".into())),
                None => {}
                Some(wc) if wc.status == WcStatus::Success => {
                    if recv.message >= outcome.possible {
                        return Err(name(format!("success in spite of {:?}", send.mistake)));
                    }
                    check_recv_wc(send, &wc).map_err(name)?;
                }
                Some(_) if recv.message < outcome.executed => {
                    return Err(name(format!("its message was executed, but {:?}", recv.wc)));
                }
                Some(wc) => judge_recv_error(send, &wc, failed).map_err(name)?,
            }
        }
        Ok(())
    }

    /// Lets the model execute what was executed, and notes what may have been.
    fn apply(&mut self, index: usize, outcome: Outcome) {
        let (data, end_of_target) = (self.plan.data, self.plan.data + BEHIND);
        let flow = &mut self.flows[index];
        let (host, peer_host) = (flow.host, flow.peer_host);
        let from = flow.judged_sends;
        let mut cells: Vec<u64> = (0..CELLS).map(|cell| flow.target.shadow.u64(data + 8 * cell)).collect();
        for number in from..flow.sends.len() {
            let send = &flow.sends[number];
            let is_certain = number < outcome.executed;
            if !is_certain && number >= outcome.possible {
                // Nobody executed it; but a message that is refused for its length may have begun to land.
                if let Some(recv) = send.recv.map(|recv| &flow.recvs[recv]) {
                    land(&mut self.rooms[peer_host].arena.shadow, &recv.pieces, &send.payload, false);
                }
                // And a READ that leaves the region may be asked for in pieces, of which the first ones do not.
                if matches!(send.op, SendOp::Read(_)) && send.at < end_of_target {
                    let len = send.len.min(end_of_target - send.at);
                    let inside = flow.target.shadow.bytes(send.at, len).to_vec();
                    land(&mut self.rooms[host].arena.shadow, &send.landing, &inside, false);
                }
                continue;
            }
            let landed = number < outcome.completed;
            match send.op {
                SendOp::Write(_) | SendOp::WriteWithImm(..) if is_certain => {
                    flow.target.shadow.put(send.at, &send.payload)
                }
                SendOp::Write(_) | SendOp::WriteWithImm(..) => {
                    flow.target.shadow.allow(send.at, &send.payload)
                }
                SendOp::Read(_) => {
                    let found = flow.target.shadow.bytes(send.at, send.len).to_vec();
                    land(&mut self.rooms[host].arena.shadow, &send.landing, &found, landed);
                    for (at, bytes) in overlapping_writes(flow, number, outcome) {
                        allow_overlap(&mut self.rooms[host].arena.shadow, &flow.sends[number], at, bytes);
                    }
                }
                SendOp::Atomic(_, op) => {
                    let cell = (send.at - data) / 8;
                    let (before, after) = (cells[cell], execute(op, cells[cell]));
                    cells[cell] = after;
                    if is_certain {
                        flow.target.shadow.put(send.at, &after.to_ne_bytes());
                    } else {
                        flow.target.shadow.allow(send.at, &after.to_ne_bytes());
                    }
                    land(&mut self.rooms[host].arena.shadow, &send.landing, &before.to_ne_bytes(), landed);
                }
                SendOp::Send | SendOp::SendWithImm(_) | SendOp::SendWithInv(_) => {
                    if let Some(recv) = send.recv.map(|recv| &flow.recvs[recv]) {
                        let is_whole = recv.wc.is_some_and(|wc| wc.status == WcStatus::Success);
                        land(&mut self.rooms[peer_host].arena.shadow, &recv.pieces, &send.payload, is_whole);
                    }
                }
                SendOp::LocalInv(_) | SendOp::BindMw(_) => {}
            }
        }
    }

    fn count(&mut self, index: usize) {
        let options = &self.plan.conns[index / 2].options;
        let (mtu, all) = (options.mtu.bytes(), options.sq_sig_all);
        let flow = &self.flows[index];
        for send in &flow.sends[flow.judged_sends..] {
            let len = u32::try_from(send.len).unwrap_or(u32::MAX);
            self.report.count_operation(send.op.opcode(), len, mtu);
            let variants = [
                ("inline", send.flags.contains(SendFlags::INLINE)),
                ("fenced", send.flags.contains(SendFlags::FENCE)),
                ("unsignaled", !send.is_signaled(all)),
                ("scattered", send.sgl.len() > 1),
                ("within a device", flow.host == flow.peer_host),
                ("flushed", send.wc.is_some_and(|wc| wc.status == WcStatus::WrFlushErr)),
            ];
            for (name, _) in variants.into_iter().filter(|&(_, on)| on) {
                self.report.count_variant(name);
            }
        }
    }

    fn settle_window(&mut self, index: usize) {
        // The owner's request may have been flushed.
        let owner = &self.flows[index ^ 1];
        let was_bound = owner.sends[owner.judged_sends..].iter().any(|send| {
            matches!(send.op, SendOp::BindMw(_)) && send.wc.is_none_or(|wc| wc.status == WcStatus::Success)
        });
        let window = &mut self.flows[index].target.window;
        match window.mode {
            WindowMode::Idle | WindowMode::Use => {}
            WindowMode::Bind { .. } if !was_bound => {}
            WindowMode::Bind { rkey, at, len } => {
                window.rkey = rkey;
                window.bound = Some((at, len));
            }
            WindowMode::Invalidate | WindowMode::Used => window.bound = None,
        }
        window.mode = WindowMode::Idle;
    }
}

/// How a send must have ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expected {
    Success,
    /// It is the first that failed.
    Error,
    Flush,
}

fn check_send_wc(send: &Send, wc: &Wc) -> Result<(), String> {
    let opcode = send.op.opcode().wc_opcode();
    if wc.opcode != opcode {
        return Err(format!("opcode {:?} instead of {opcode:?}", wc.opcode));
    }
    let reads = send.op.opcode().is_read_or_atomic();
    if reads && wc.byte_len as usize != send.len {
        return Err(format!("byte_len {} instead of {}", wc.byte_len, send.len));
    }
    Ok(())
}

fn check_recv_wc(send: &Send, wc: &Wc) -> Result<(), String> {
    let (opcode, flags) = match send.op {
        SendOp::WriteWithImm(..) => (WcOpcode::RecvRdmaWithImm, WcFlags::WITH_IMM),
        SendOp::SendWithImm(_) => (WcOpcode::Recv, WcFlags::WITH_IMM),
        SendOp::SendWithInv(_) => (WcOpcode::Recv, WcFlags::WITH_INV),
        SendOp::Send
        | SendOp::Write(_)
        | SendOp::Read(_)
        | SendOp::Atomic(..)
        | SendOp::LocalInv(_)
        | SendOp::BindMw(_) => (WcOpcode::Recv, WcFlags::empty()),
    };
    if wc.opcode != opcode || wc.flags != flags || wc.byte_len as usize != send.len {
        return Err(format!("must be {opcode:?} {flags:?} of {} bytes, but is {wc:?}", send.len));
    }
    match send.op {
        SendOp::SendWithImm(imm) | SendOp::WriteWithImm(_, imm) if wc.imm_data != imm => {
            Err(format!("immediate data {:#x} instead of {imm:#x}", wc.imm_data))
        }
        SendOp::SendWithInv(rkey) if wc.invalidated_rkey != rkey => {
            Err(format!("invalidated {:?} instead of {rkey:?}", wc.invalidated_rkey))
        }
        SendOp::Send
        | SendOp::SendWithImm(_)
        | SendOp::SendWithInv(_)
        | SendOp::Write(_)
        | SendOp::WriteWithImm(..)
        | SendOp::Read(_)
        | SendOp::Atomic(..)
        | SendOp::LocalInv(_)
        | SendOp::BindMw(_) => Ok(()),
    }
}

fn judge_recv_error(send: &Send, wc: &Wc, failed: bool) -> Result<(), String> {
    let is_possible = matches!(
        (send.mistake, wc.status),
        (_, WcStatus::WrFlushErr)
            | (Some(Mistake::TooLong), WcStatus::LocLenErr)
            | (Some(Mistake::RecvKey | Mistake::RecvReadOnly), WcStatus::LocProtErr)
            | (Some(Mistake::InvalidateRegion), WcStatus::RemInvReqErr)
    );
    if failed && is_possible {
        Ok(())
    } else {
        Err(format!("{:?} though the mistake is {:?}", wc.status, send.mistake))
    }
}

/// Writes that a READ may see though they were posted after it, or though nobody knows whether they were executed.
fn overlapping_writes(flow: &Flow, read: usize, outcome: Outcome) -> impl Iterator<Item = (usize, &[u8])> {
    let later = flow.sends.iter().enumerate().skip(read + 1);
    let later = later.take_while(|(_, send)| !send.flags.contains(SendFlags::FENCE));
    let earlier = flow.sends.iter().enumerate().take(read).skip(outcome.executed);
    earlier
        .chain(later)
        .filter(|(_, send)| matches!(send.op, SendOp::Write(_) | SendOp::WriteWithImm(..)))
        .map(|(_, send)| (send.at, send.payload.as_slice()))
}

/// The part of a write that a READ covers may be what the READ brought.
fn allow_overlap(arena: &mut Shadow, read: &Send, at: usize, bytes: &[u8]) {
    let mut start = read.at;
    for piece in &read.landing {
        let from = start.max(at);
        let to = (start + piece.len).min(at + bytes.len());
        if from < to {
            arena.allow(piece.at + (from - start), &bytes[from - at..to - at]);
        }
        start += piece.len;
    }
}

/// Bytes are in the pieces, or may be.
fn land(arena: &mut Shadow, pieces: &[Piece], mut bytes: &[u8], is_certain: bool) {
    for piece in pieces {
        let (now, rest) = bytes.split_at(piece.len.min(bytes.len()));
        if is_certain {
            arena.put(piece.at, now);
        } else {
            arena.allow(piece.at, now);
        }
        bytes = rest;
    }
}

fn execute(op: AtomicOp, before: u64) -> u64 {
    match op {
        AtomicOp::FetchAdd { add } => before.wrapping_add(add),
        AtomicOp::CompareSwap { compare, swap } if compare == before => swap,
        AtomicOp::CompareSwap { .. } => before,
    }
}
