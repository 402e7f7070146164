//! The messages of a queue pair as a stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;
use userdma_verbs::{Wc, WcOpcode};

use super::error::WrError;
use super::ops::Key;
use super::qp_state::QpShared;
use super::request::Request;
use crate::cq::lock;
use crate::{Error, MrSlice};

/// The messages that a queue pair receives, in order. Made by [`AsyncQp::receives`](crate::AsyncQp::receives), which posts
/// its buffers; each is posted again when its [`Received`] is dropped.
///
/// Waiting for the next message may be given up at any time: none is lost. The first error is the last item: a receive
/// fails with its queue pair. **A peer that is gone is none**: the stream waits for ever, unless something else tells
/// ([`guide`](crate::guide)). Dropping the stream does not take its receives back: they take the next messages, which are
/// lost then.
///
/// ```
/// # use userdma::{AccessFlags, AsyncCq, Device, Inline};
/// # let (here, there) = (Device::open("127.0.21.18")?, Device::open("127.0.21.19")?);
/// # let (cq, their_cq) = (AsyncCq::with_thread(&here, 256)?, AsyncCq::with_thread(&there, 256)?);
/// # let (pd, their_pd) = (here.alloc_pd()?, there.alloc_pd()?);
/// # let (qp, their_qp) = (cq.create_qp(&pd, |qp| qp)?, their_cq.create_qp(&their_pd, |qp| qp)?);
/// # let (to_us, to_them) = (qp.endpoint(), their_qp.endpoint());
/// let mr = their_pd.alloc(4 * 64, AccessFlags::LOCAL_WRITE)?;
/// let mut messages = their_qp.receives((0..4).map(|i| mr.slice(64 * i..64 * (i + 1))));
/// # let (qp, their_qp) = (qp.connect(&to_them)?, their_qp.connect(&to_us)?);
/// # futures_executor::block_on(async {
/// for text in ["one", "two", "three"] {
///     qp.send(Inline(text.as_bytes())).await?;
///     let message = messages.next().await.expect("the stream goes on")?;
///     assert_eq!(message.to_vec()?, text.as_bytes());
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "messages that nobody takes are lost"]
pub struct Receives {
    ring: Arc<Ring>,
}

/// The buffers, which messages that are being looked at give back.
#[derive(Debug)]
struct Ring {
    qp: Arc<QpShared>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Receives in the order of their posting, which is that of their completions.
    posted: VecDeque<(Key, MrSlice)>,
    /// The task that waits while all buffers are being looked at.
    waker: Option<Waker>,
    /// Buffers are not posted again: the stream has ended.
    is_over: bool,
}

impl Receives {
    pub(super) fn new(qp: &Arc<QpShared>, buffers: impl IntoIterator<Item = MrSlice>) -> Self {
        let ring = Arc::new(Ring { qp: Arc::clone(qp), state: Mutex::default() });
        buffers.into_iter().for_each(|buffer| ring.post(buffer));
        Self { ring }
    }

    /// The next message; `None` after the first error.
    pub async fn next(&mut self) -> Option<Result<Received, WrError>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Receives {
    type Item = Result<Received, WrError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let ring = &self.ring;
        let Some(key) = ready!(ring.poll_front(cx)) else {
            return Poll::Ready(None);
        };
        // Nobody else takes from the front, so this is it still.
        let result = ready!(ring.qp.poll_op(key, cx));
        let front = lock(&ring.state).posted.pop_front();
        Poll::Ready(match (result, front) {
            (Ok(wc), Some((_, buffer))) => Some(Ok(Received { ring: Arc::clone(ring), buffer, wc })),
            (Err(error), _) => {
                ring.end();
                Some(Err(error))
            }
            (Ok(_), None) => None,
        })
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.ring.end();
    }
}

impl Ring {
    fn post(&self, buffer: MrSlice) {
        let waker = {
            let mut state = lock(&self.state);
            if state.is_over {
                return;
            }
            // Under the lock, so that the order here is that of the queue.
            let key = self.qp.submit(Request::Recv((&buffer).into()));
            state.posted.push_back((key, buffer));
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The oldest receive; `None` if the stream is over.
    fn poll_front(&self, cx: &Context<'_>) -> Poll<Option<Key>> {
        let mut state = lock(&self.state);
        if let Some((key, _)) = state.posted.front() {
            return Poll::Ready(Some(*key));
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        let before = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    fn end(&self) {
        let (posted, waker) = {
            let mut state = lock(&self.state);
            state.is_over = true;
            (std::mem::take(&mut state.posted), state.waker.take())
        };
        posted.iter().for_each(|(key, _)| self.qp.abandon(*key));
        drop(waker);
    }
}

/// A message. Its buffer is posted for another when this is dropped.
#[derive(Debug)]
pub struct Received {
    ring: Arc<Ring>,
    buffer: MrSlice,
    wc: Wc,
}

impl Received {
    /// Bytes of the message. A WRITE with immediate data has put them elsewhere.
    pub fn len(&self) -> usize {
        // Bounded by the memory.
        usize::try_from(self.wc.byte_len).unwrap_or(usize::MAX)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The immediate data, if it has any.
    pub fn imm(&self) -> Option<u32> {
        self.wc.imm()
    }

    /// The completion.
    pub fn wc(&self) -> &Wc {
        &self.wc
    }

    /// The memory where it lies, for other operations. Keep the message while they are under way: afterwards the next one
    /// may land there. Empty for a WRITE with immediate data.
    pub fn slice(&self) -> MrSlice {
        let is_elsewhere = self.wc.opcode == WcOpcode::RecvRdmaWithImm;
        let len = if is_elsewhere { 0 } else { self.len().min(self.buffer.len()) };
        self.buffer.slice(..len)
    }

    /// Copies it into a new vector, empty for a WRITE with immediate data.
    ///
    /// # Errors
    /// The memory has vanished.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let slice = self.slice();
        let mut vec = vec![0; slice.len()];
        slice.read(0, &mut vec)?;
        Ok(vec)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.ring.post(self.buffer.clone());
    }
}
