//! A queue pair as its futures share it: operations, and two lines of those that wait for a place.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use userdma_host::Host;
use userdma_verbs::{PostError, Qpn, Wc, WcOpcode, WcStatus};

use super::cq::Handle;
use super::error::{Cause, WrError};
use super::ops::{Key, Op, Ops, Waiter};
use super::request::Request;
use crate::cq::lock;
use crate::qp::Unchecked;
use crate::{Error, Qp};

/// A queue pair and its operations.
#[derive(Debug)]
pub(super) struct QpShared {
    /// Keeps the completion queue driven.
    handle: Arc<Handle>,
    qpn: Qpn,
    /// Places of the completion queue that are its own.
    places: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once it is destroyed.
    qp: Option<Qp<Unchecked>>,
    qpn: Qpn,
    ops: Ops,
    sends: Line,
    recvs: Line,
    /// Why nothing is taken any more.
    end: Option<Cause>,
}

/// The operations of a work queue.
#[derive(Debug, Default)]
struct Line {
    /// Those that wait for a place, oldest first.
    queued: VecDeque<Key>,
    /// How many the device has.
    posted: u32,
}

/// Tasks to wake, and other things to let go of, without a lock: both may run any code.
#[derive(Debug, Default)]
pub(super) struct Woken(Vec<Waker>);

impl Woken {
    pub(super) fn add(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Task(waker) => self.0.push(waker),
            Waiter::Later | Waiter::Nobody => {}
        }
    }

    pub(super) fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

impl QpShared {
    pub(super) fn new(handle: &Arc<Handle>, qp: Qp<Unchecked>, places: u32) -> Self {
        let qpn = qp.qpn();
        let state = State {
            qp: Some(qp),
            qpn,
            ops: Ops::default(),
            sends: Line::default(),
            recvs: Line::default(),
            end: None,
        };
        Self { handle: Arc::clone(handle), qpn, places, state: Mutex::new(state) }
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.qpn
    }

    pub(super) fn host(&self) -> &Host {
        self.handle.core().cq().host()
    }

    pub(super) fn places(&self) -> u32 {
        self.places
    }

    /// Asks the queue pair something; `None` once it is destroyed.
    pub(super) fn with_qp<R>(&self, ask: impl FnOnce(&Qp<Unchecked>) -> R) -> Option<R> {
        lock(&self.state).qp.as_ref().map(ask)
    }

    /// Takes a request over, and posts it unless others wait for a place before it.
    pub(super) fn submit(&self, request: Request) -> Key {
        let mut woken = Woken::default();
        let key = lock(&self.state).submit(request, &mut woken);
        woken.wake();
        key
    }

    /// The result of an operation, once; until then the task is woken when there is one.
    pub(super) fn poll_op(&self, key: Key, cx: &Context<'_>) -> Poll<Result<Wc, WrError>> {
        let mut state = lock(&self.state);
        let waiter = match state.ops.find(key) {
            Some(Op::Ended(_)) => {
                return match state.ops.remove(key) {
                    Some(Op::Ended(result)) => Poll::Ready(result),
                    // It was there a moment ago.
                    Some(Op::Queued(..) | Op::Posted(..)) | None => Poll::Pending,
                };
            }
            Some(Op::Queued(_, waiter) | Op::Posted(_, waiter)) => waiter,
            // Only whoever has the key removes it.
            None => return Poll::Pending,
        };
        if matches!(waiter, Waiter::Task(waker) if waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let before = std::mem::replace(waiter, Waiter::Task(cx.waker().clone()));
        drop(state);
        // Only now: it may be the last of a task that has futures of this queue pair.
        drop(before);
        Poll::Pending
    }

    /// Nobody will ask for the result of an operation. If it was not posted, it will not be.
    pub(super) fn abandon(&self, key: Key) {
        let left = lock(&self.state).abandon(key);
        drop(left);
    }

    /// A completion has come.
    pub(super) fn complete(&self, wc: Wc, woken: &mut Woken) {
        lock(&self.state).complete(wc, woken);
    }

    /// Ends everything that has not ended, and whatever comes later.
    pub(super) fn end(&self, cause: &Cause) {
        let mut woken = Woken::default();
        let left = lock(&self.state).end(cause, &mut woken);
        woken.wake();
        drop(left);
    }

    /// Destroys the queue pair. Its operations end when the device has let go of their memory.
    pub(super) fn destroy(&self) {
        let qp = lock(&self.state).qp.take();
        drop(qp);
        self.end(&Cause::Destroyed);
        self.handle.core().remove(self);
    }
}

impl State {
    fn submit(&mut self, request: Request, woken: &mut Woken) -> Key {
        let opcode = request.opcode();
        if let Some(cause) = &self.end {
            let result = Err(cause.error(opcode, self.qpn));
            return self.ops.insert(Op::Ended(result));
        }
        let key = self.ops.insert(Op::Queued(request, Waiter::Later));
        self.line(opcode).queued.push_back(key);
        self.post_queued(opcode, woken);
        key
    }

    /// Posts what waits in the line of `opcode` while there is room.
    fn post_queued(&mut self, opcode: WcOpcode, woken: &mut Woken) {
        while let Some(&key) = self.line(opcode).queued.front() {
            let Some(qp) = &self.qp else { return };
            let Some(Op::Queued(request, _)) = self.ops.find(key) else {
                // Whoever removes it from the table removes it here.
                self.line(opcode).queued.pop_front();
                continue;
            };
            match request.post(qp, key) {
                Ok(()) => self.line(opcode).posted += 1,
                // With nothing posted no completion would make room: the queue has no place at all.
                Err(Error::Post(PostError::QueueFull { .. })) if self.line(opcode).posted > 0 => return,
                Err(reason) => self.refuse(key, reason, woken),
            }
            self.line(opcode).queued.pop_front();
            self.set_posted(key);
        }
    }

    fn set_posted(&mut self, key: Key) {
        if let Some(op @ Op::Queued(..)) = self.ops.find(key)
            && let Some(opcode) = op.opcode()
            && let Op::Queued(request, waiter) = std::mem::replace(op, Op::Posted(opcode, Waiter::Later))
        {
            *op = Op::Posted(opcode, waiter);
            // The ledger of the queue holds the memory from now on.
            drop(request);
        }
    }

    fn refuse(&mut self, key: Key, reason: Error, woken: &mut Woken) {
        if let Some(op) = self.ops.find(key)
            && let Some(opcode) = op.opcode()
        {
            let error = WrError::NotPosted { opcode, reason: Arc::new(reason) };
            if let Op::Queued(_, waiter) = std::mem::replace(op, Op::Ended(Err(error))) {
                woken.add(waiter);
            }
        }
    }

    fn complete(&mut self, wc: Wc, woken: &mut Woken) {
        let (key, qpn) = (Key::of(wc.wr_id), self.qpn);
        let Some(op) = self.ops.find(key) else { return };
        let Some(opcode) = op.opcode() else { return };
        let failed = WrError::Failed { opcode, qpn, status: wc.status, vendor_err: wc.vendor_err };
        let result = if wc.status == WcStatus::Success { Ok(wc) } else { Err(failed) };
        match std::mem::replace(op, Op::Ended(result)) {
            Op::Posted(_, Waiter::Nobody) => drop(self.ops.remove(key)),
            Op::Posted(_, waiter) | Op::Queued(_, waiter) => woken.add(waiter),
            Op::Ended(_) => {}
        }
        let line = self.line(opcode);
        line.posted = line.posted.saturating_sub(1);
        self.post_queued(opcode, woken);
    }

    /// What is left of the operation, to be dropped without the lock.
    fn abandon(&mut self, key: Key) -> Option<Op> {
        let op = self.ops.find(key)?;
        if let Op::Posted(opcode, waiter) = op {
            let waiter = std::mem::replace(waiter, Waiter::Nobody);
            return Some(Op::Posted(*opcode, waiter));
        }
        let op = self.ops.remove(key)?;
        if let Some(opcode) = op.opcode() {
            self.line(opcode).queued.retain(|&queued| queued != key);
        }
        Some(op)
    }

    /// Ends all; what is left of them, to be dropped without the lock.
    fn end(&mut self, cause: &Cause, woken: &mut Woken) -> Vec<Op> {
        self.end.get_or_insert_with(|| cause.clone());
        let mut left = Vec::new();
        for key in self.ops.keys() {
            let Some(op) = self.ops.find(key) else { continue };
            let Some(opcode) = op.opcode() else { continue };
            let ended = Op::Ended(Err(cause.error(opcode, self.qpn)));
            match std::mem::replace(op, ended) {
                Op::Posted(_, Waiter::Nobody) => drop(self.ops.remove(key)),
                Op::Posted(_, waiter) => woken.add(waiter),
                Op::Queued(request, waiter) => {
                    woken.add(waiter);
                    left.push(Op::Queued(request, Waiter::Nobody));
                }
                Op::Ended(_) => {}
            }
        }
        for line in [&mut self.sends, &mut self.recvs] {
            *line = Line::default();
        }
        left
    }

    /// The line where operations of this kind wait.
    fn line(&mut self, opcode: WcOpcode) -> &mut Line {
        match opcode {
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => &mut self.recvs,
            WcOpcode::Send
            | WcOpcode::RdmaWrite
            | WcOpcode::RdmaRead
            | WcOpcode::CompSwap
            | WcOpcode::FetchAdd
            | WcOpcode::BindMw
            | WcOpcode::LocalInv => &mut self.sends,
        }
    }
}
