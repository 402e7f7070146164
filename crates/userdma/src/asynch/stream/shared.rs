//! A stream as its halves and its driver share it.
//!
//! The stream is its own waker: whoever takes completions wakes it, and it goes on at once, posts receives, sends what has
//! waited and returns credits, whether or not the program looks at it just then. The program's tasks are woken only when there
//! is something for them.

use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use userdma_verbs::{RemoteAddr, SendOp};

use super::error::StreamError;
use super::flow::Message;
use super::gather::Gather;
use super::state::{Owner, State, Until};
use crate::asynch::qp_state::QpShared;
use crate::asynch::request::Request;
use crate::cq::lock;
use crate::{Mr, RemoteMr};

/// The stream.
#[derive(Debug)]
pub(super) struct Shared {
    qp: Arc<QpShared>,
    /// Where the peer writes.
    ring: Mr,
    /// What is under way to the peer: byte for byte a copy of the peer's ring.
    out: Mr,
    /// The peer's ring.
    remote: RemoteMr,
    state: Mutex<State>,
}

impl Shared {
    /// A stream over a connected queue pair.
    pub(super) fn start(
        qp: Arc<QpShared>,
        state: State,
        [ring, out]: [Mr; 2],
        remote: RemoteMr,
    ) -> Arc<Self> {
        let this = Arc::new(Self { qp, ring, out, remote, state: Mutex::new(state) });
        // From now on its waker is with the first receive.
        this.wake_by_ref();
        this
    }

    /// Copies what has come into `buf`, which has room; 0 at the end of the stream.
    pub(super) fn poll_read(
        self: &Arc<Self>,
        cx: &Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize, StreamError>> {
        if !ready!(lock(&self.state).poll_readable(cx))? {
            return Poll::Ready(Ok(0));
        }
        let mut done = 0;
        loop {
            let span = lock(&self.state).flow.readable();
            let len = span.len.min(buf.len() - done);
            if len == 0 {
                return Poll::Ready(Ok(done));
            }
            self.ring.read(span.offset, &mut buf[done..done + len])?;
            done += len;
            self.enter(|state| state.flow.did_read(len));
        }
    }

    /// Takes bytes over, as many as there is room for; one at least if there are any.
    pub(super) fn poll_write(
        self: &Arc<Self>,
        cx: &Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize, StreamError>> {
        let mut bytes = Gather::new(bytes);
        ready!(lock(&self.state).poll_room(cx))?;
        loop {
            let span = lock(&self.state).flow.room();
            let mut len = 0;
            while let Some(piece) = bytes.next(span.len.min(PIECE) - len) {
                self.out.write(span.offset + len, piece)?;
                len += piece.len();
            }
            if len == 0 {
                return Poll::Ready(Ok(bytes.taken()));
            }
            self.enter(|state| state.flow.wrote(len));
        }
    }

    /// Waits until all bytes have been handed to the device.
    pub(super) fn poll_flush(self: &Arc<Self>, cx: &Context<'_>) -> Poll<Result<(), StreamError>> {
        lock(&self.state).poll_until(Until::Flushed, cx)
    }

    /// Ends the writing, and waits until all bytes and the end lie at the peer.
    pub(super) fn poll_shutdown(self: &Arc<Self>, cx: &Context<'_>) -> Poll<Result<(), StreamError>> {
        self.end();
        lock(&self.state).poll_until(Until::Ended, cx)
    }

    /// Ends the writing.
    pub(super) fn end(self: &Arc<Self>) {
        self.enter(|state| state.flow.end());
    }

    /// The program has left. What it has written is sent nevertheless, and the peer is told; then the queue pair is destroyed.
    pub(super) fn leave(self: &Arc<Self>) {
        self.enter(|state| {
            state.is_left = true;
            state.flow.leave();
        });
    }

    /// Asks the peer whether it is there, unless something is under way that does. If it is not, the stream breaks. A stream that
    /// the program has left is given up if its peer has taken nothing of it for long. `now` is the time of
    /// [`userdma_host::uptime`].
    pub(super) fn ask(self: &Arc<Self>, now: Duration) {
        self.enter(|state| {
            state.lose_patience(now);
            if state.flow.is_idle() && state.failure.is_none() {
                state.flow.asked();
                let op = SendOp::Write(address(RemoteMr::NONE));
                state.sends.push_back(self.qp.submit(Request::send(op, ().into())));
                self.take_sends(state);
            }
        });
    }

    /// Asks connection or queue pair something; `None` once they are gone.
    pub(super) fn with_owner<R>(&self, ask: impl FnOnce(&Owner) -> R) -> Option<R> {
        lock(&self.state).owner.as_ref().map(ask)
    }

    /// Changes the state, sends what can be sent then, and wakes who waits for it.
    fn enter<R>(self: &Arc<Self>, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        let result = act(&mut state);
        while self.post(&mut state) && self.take_sends(&mut state) {}
        let (wakers, owner) = (state.due(), state.take_owner());
        drop(state);
        // Both run others' code, and destroying the queue pair wakes this one once more.
        wakers.into_iter().flatten().for_each(Waker::wake);
        drop(owner);
        result
    }

    /// Hands messages to the device; whether there was one.
    fn post(&self, state: &mut State) -> bool {
        let mut has_posted = false;
        while state.failure.is_none()
            && let Some(message) = state.flow.next_message()
        {
            state.sends.push_back(self.qp.submit(self.request(message)));
            has_posted = true;
        }
        has_posted
    }

    fn request(&self, Message { offset, len, imm }: Message) -> Request {
        let op = SendOp::WriteWithImm(address(self.remote.at(offset as u64)), imm);
        if len == 0 {
            return Request::send(op, ().into());
        }
        Request::send(op, self.out.slice(offset..offset + len).into())
    }

    /// Looks which sends have completed; whether there was one. The waker is with the next.
    fn take_sends(self: &Arc<Self>, state: &mut State) -> bool {
        let waker = Waker::from(Arc::clone(self));
        let before = state.sends.len();
        while let Some(&key) = state.sends.front()
            && let Poll::Ready(result) = self.qp.poll_op(key, &Context::from_waker(&waker))
        {
            state.sends.pop_front();
            if let Err(error) = result {
                state.fail(error.into());
            }
        }
        state.flow.answered(state.sends.len());
        if state.failure.is_some() {
            // What came before the connection broke is read before that is told.
            self.take_recvs(state);
        }
        state.sends.len() < before
    }

    /// Takes the messages that have come, and posts their receives again. The waker is with the next.
    fn take_recvs(self: &Arc<Self>, state: &mut State) {
        let waker = Waker::from(Arc::clone(self));
        while let Some(&key) = state.recvs.front()
            && let Poll::Ready(result) = self.qp.poll_op(key, &Context::from_waker(&waker))
        {
            state.recvs.pop_front();
            match result {
                // Who has broken the rules is not believed any more.
                Ok(_) if matches!(state.failure, Some(StreamError::Protocol(_))) => {}
                Ok(wc) => match state.flow.received(wc.byte_len, wc.imm().unwrap_or_default()) {
                    Ok(()) if state.failure.is_some() => {}
                    Ok(()) => state.recvs.push_back(self.qp.submit(Request::Recv(().into()))),
                    Err(violation) => state.fail(violation.into()),
                },
                Err(error) => state.fail(error.into()),
            }
        }
    }
}

/// Completions have come.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.enter(|state| {
            // First sends: if one has failed, receives that are flushed do not say why.
            self.take_sends(state);
            self.take_recvs(state);
        });
    }
}

fn address(remote: RemoteMr) -> RemoteAddr {
    RemoteAddr { addr: remote.addr, rkey: remote.rkey }
}

/// Bytes that are taken over before they are sent, at most: the first are under way while the next are copied.
const PIECE: usize = 128 << 10;
