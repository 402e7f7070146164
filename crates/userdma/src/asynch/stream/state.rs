//! What changes of a stream, and who waits for what.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::error::StreamError;
use super::flow::{Flow, Progress};
use crate::AsyncQp;
use crate::asynch::ops::Key;
use crate::connect::Link;

/// What a stream keeps.
#[derive(Debug)]
pub(super) struct Owner {
    /// The connection, if the connection manager has made it. Before the queue pair: no event finds that destroyed.
    pub(super) link: Option<Link>,
    pub(super) qp: AsyncQp,
}

/// What changes of a stream.
#[derive(Debug)]
pub(super) struct State {
    pub(super) flow: Flow,
    /// `None` once the queue pair is destroyed.
    pub(super) owner: Option<Owner>,
    /// Sends and receives that have not completed, in the order of their posting, which is that of their completions.
    pub(super) sends: VecDeque<Key>,
    pub(super) recvs: VecDeque<Key>,
    /// Why it does not go on.
    pub(super) failure: Option<StreamError>,
    /// Nobody has it any more.
    pub(super) is_left: bool,
    /// How far it was when the peer took something the last time, as far as that was looked at since nobody has it, and when.
    last_move: Option<(Progress, Duration)>,
    reader: Option<Waker>,
    writer: Option<(Until, Waker)>,
}

/// What the writing task waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Until {
    /// Room in the ring.
    Room,
    /// Everything has been handed to the device.
    Flushed,
    /// Everything and the end lie at the peer.
    Ended,
}

impl State {
    pub(super) fn new(flow: Flow, owner: Owner, recvs: VecDeque<Key>) -> Self {
        Self {
            flow,
            owner: Some(owner),
            sends: VecDeque::new(),
            recvs,
            failure: None,
            is_left: false,
            last_move: None,
            reader: None,
            writer: None,
        }
    }

    /// Whether there are bytes; false at the end.
    pub(super) fn poll_readable(&mut self, cx: &Context<'_>) -> Poll<Result<bool, StreamError>> {
        if let Some(result) = self.readable() {
            return Poll::Ready(result);
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// What came before a failure is read first, and an end stays one.
    fn readable(&self) -> Option<Result<bool, StreamError>> {
        match &self.failure {
            _ if self.flow.readable().len > 0 => Some(Ok(true)),
            _ if self.flow.has_ended() => Some(Ok(false)),
            Some(failure) => Some(Err(failure.clone())),
            None => None,
        }
    }

    /// Waits for room to write.
    pub(super) fn poll_room(&mut self, cx: &Context<'_>) -> Poll<Result<(), StreamError>> {
        if self.flow.is_ending() {
            return Poll::Ready(Err(self.failure.clone().unwrap_or(StreamError::ShutDown)));
        }
        self.poll_until(Until::Room, cx)
    }

    pub(super) fn poll_until(&mut self, until: Until, cx: &Context<'_>) -> Poll<Result<(), StreamError>> {
        if let Some(result) = self.reached(until) {
            return Poll::Ready(result);
        }
        self.writer = Some((until, cx.waker().clone()));
        Poll::Pending
    }

    fn reached(&self, until: Until) -> Option<Result<(), StreamError>> {
        // What has come about is not undone by a failure; but nobody needs room then.
        let is_reached = match until {
            Until::Room => self.failure.is_none() && !self.flow.is_peer_gone() && self.flow.room().len > 0,
            Until::Flushed => self.flow.is_flushed(),
            Until::Ended => self.flow.is_ended(),
        };
        match &self.failure {
            _ if is_reached => Some(Ok(())),
            Some(failure) => Some(Err(failure.clone())),
            // What is not posted yet never will be: nobody takes it. What is, may still be answered.
            None if self.flow.is_peer_gone() && (until != Until::Ended || !self.flow.is_flushed()) => {
                Some(Err(StreamError::PeerGone))
            }
            None => None,
        }
    }

    /// Breaks the connection, unless it is broken.
    pub(super) fn fail(&mut self, failure: StreamError) {
        if self.failure.is_some() {
            return;
        }
        if let (StreamError::Protocol(_), Some(Owner { qp, .. })) = (&failure, &self.owner) {
            // A device that is not usable has broken it.
            let _ = qp.modify_to_err();
        }
        self.failure = Some(failure);
    }

    /// Gives up a stream that nobody has any more and of which the peer takes nothing: what was written keeps memory and a queue
    /// pair, and a peer who is there, but never reads, would keep them for ever.
    pub(super) fn lose_patience(&mut self, now: Duration) {
        if !self.is_left {
            return;
        }
        let progress = self.flow.progress();
        match self.last_move {
            Some((before, since)) if before == progress => {
                if now.saturating_sub(since) >= PATIENCE {
                    self.fail(StreamError::PeerGone);
                }
            }
            Some(_) | None => self.last_move = Some((progress, now)),
        }
    }

    /// The tasks that have something to do.
    pub(super) fn due(&mut self) -> [Option<Waker>; 2] {
        let reader = if self.readable().is_some() { self.reader.take() } else { None };
        let is_reached = self.writer.as_ref().is_some_and(|(until, _)| self.reached(*until).is_some());
        let writer = if is_reached { self.writer.take() } else { None };
        [reader, writer.map(|(_, waker)| waker)]
    }

    /// Connection and queue pair, if nobody needs them any more: to be dropped without the lock.
    pub(super) fn take_owner(&mut self) -> Option<Owner> {
        let is_done = self.is_left && (self.failure.is_some() || self.flow.has_left());
        if is_done { self.owner.take() } else { None }
    }
}

/// How long a peer may take nothing of a stream that the program has left. It tells of half a ring at a time, which has 128 MiB at
/// most: a slow reader needs minutes for that.
pub(super) const PATIENCE: Duration = Duration::from_mins(10);
