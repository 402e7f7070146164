//! Completion queues of futures.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::core::Core;
use super::driver::CqDriver;
use super::qp::AsyncQp;
use crate::cq::lock;
use crate::qp::Init;
use crate::{Device, Error, Pd, QpBuilder};

/// A completion queue whose queue pairs work with futures. Clones are the same queue.
///
/// Somebody must take its completions and wake the futures; who, is said when it is made:
///
/// * [`AsyncCq::with_thread`]: a thread, which sleeps while nothing comes. The futures run on any executor.
/// * `AsyncCq::with_tokio` (with the feature `tokio`): a task of the tokio runtime.
/// * [`AsyncCq::create`]: the caller, with the [`CqDriver`]; so it fits any other runtime, and
///   [`CqDriver::block_on`] needs none.
///
/// It never overflows: each queue pair sets places for all its sends and receives aside.
///
/// ```
/// use futures_executor::block_on;
/// use userdma::{AccessFlags, AsyncCq, Device, Inline};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (here, there) = (Device::open("127.0.21.11")?, Device::open("127.0.21.12")?);
/// let (cq, their_cq) = (AsyncCq::with_thread(&here, 256)?, AsyncCq::with_thread(&there, 256)?);
/// let (pd, their_pd) = (here.alloc_pd()?, there.alloc_pd()?);
/// let qp = cq.create_qp(&pd, |qp| qp)?;
/// let their_qp = their_cq.create_qp(&their_pd, |qp| qp)?;
/// let (to_us, to_them) = (qp.endpoint(), their_qp.endpoint());
/// let (qp, their_qp) = (qp.connect(&to_them)?, their_qp.connect(&to_us)?);
///
/// let mr = their_pd.alloc(64, AccessFlags::LOCAL_WRITE)?;
/// block_on(async {
///     let (sent, received) = futures_util::join!(
///         qp.send(Inline(b"hello")),
///         their_qp.recv(mr.slice(..)),
///     );
///     sent?;
///     assert_eq!(received?.byte_len, 5);
///     Ok::<_, userdma::WrError>(())
/// })?;
/// assert_eq!(mr.to_vec(..5)?, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncCq {
    handle: Arc<Handle>,
}

/// What the queue's users hold: with the last of them the driver ends.
#[derive(Debug)]
pub(super) struct Handle {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AsyncCq {
    /// A completion queue of at least `cqe` entries, and what must drive it.
    ///
    /// # Errors
    /// [`Error::CreateCq`] says which size is possible; or the system gives no descriptor.
    pub fn create(device: &Device, cqe: u32) -> Result<(Self, CqDriver), Error> {
        let core = Arc::new(Core::create(device, cqe)?);
        let driver = CqDriver::new(&core)?;
        let handle = Handle { core, thread: Mutex::new(None) };
        Ok((Self { handle: Arc::new(handle) }, driver))
    }

    /// A completion queue of at least `cqe` entries that a thread of its own drives: it sleeps until a completion comes,
    /// drives the device meanwhile, and ends with the last user of the queue.
    ///
    /// # Errors
    /// As [`AsyncCq::create`]; or the system has no thread.
    pub fn with_thread(device: &Device, cqe: u32) -> Result<Self, Error> {
        let (cq, driver) = Self::create(device, cqe)?;
        let name = Builder::new().name(format!("userdma cq {}", cq.number()));
        let thread = userdma_host::spawn_thread(name, || driver.run())?;
        *lock(&cq.handle.thread) = Some(thread);
        Ok(cq)
    }

    /// Makes a queue pair in state INIT. `with` sets its sizes and rights: `|qp| qp.max_send_wr(16)`.
    ///
    /// # Errors
    /// [`Error::CqReserved`] if its sends and receives together are more than the places that are left in the queue;
    /// [`Error::AsyncSrq`] with a shared receive queue; else as [`QpBuilder::build`].
    pub fn create_qp(
        &self,
        pd: &Pd,
        with: impl FnOnce(QpBuilder) -> QpBuilder,
    ) -> Result<AsyncQp<Init>, Error> {
        let cq = self.handle.core.cq();
        let builder = with(pd.create_qp(cq, cq));
        if builder.has_srq() {
            return Err(Error::AsyncSrq);
        }
        let qp = builder.build()?;
        if !qp.completes_on(cq) {
            return Err(Error::OtherDevice("builder of the queue pair"));
        }
        AsyncQp::create(&self.handle, qp)
    }

    /// Its number on the device.
    pub fn number(&self) -> u32 {
        self.handle.core.cq().number()
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        self.handle.core.cq().capacity()
    }
}

impl Handle {
    pub(super) fn core(&self) -> &Core {
        &self.core
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.close();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A task that the thread has woken may have had the last handle.
            if thread.thread().id() != std::thread::current().id() {
                // One that panicked has said so.
                let _ = thread.join();
            }
        }
    }
}
