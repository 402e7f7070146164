//! Threads that wait for futures.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::ConnectError;
use crate::cq::Deadline;

/// Sleeps until `poll` is ready; `None` if time is up.
pub(crate) fn poll_blocking<T>(
    timeout: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    // Mostly it is ready at once, and nobody needs to be woken.
    if let Poll::Ready(result) = poll(&mut Context::from_waker(Waker::noop())) {
        return Some(result);
    }
    let deadline = Deadline::after(timeout);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = poll(&mut cx) {
            return Some(result);
        }
        match deadline.left() {
            None => std::thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => std::thread::park_timeout(left),
        }
    }
}

/// Runs a future on this thread; what it was doing is given up when time is up.
pub(crate) fn block_on<T>(
    timeout: Option<Duration>,
    future: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let mut future = pin!(future);
    poll_blocking(timeout, |cx| future.as_mut().poll(cx)).unwrap_or(Err(ConnectError::TimedOut))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
