//! tokio as the one who drives.

use std::io;

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use ::tokio::runtime::Handle;

use super::cq::AsyncCq;
use super::driver::{CqDriver, Turn};
use crate::{Device, Error, Exchange};

impl AsyncCq {
    /// A completion queue of at least `cqe` entries that a task of the current tokio runtime drives. The task ends with the
    /// last user of the queue. If the runtime ends first, every operation ends with an error. Needs the feature `tokio`.
    ///
    /// # Errors
    /// As [`AsyncCq::create`]; [`Error::Io`] outside a runtime.
    ///
    /// # Panics
    /// If the runtime was built without `enable_io`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use userdma::{AccessFlags, AsyncCq, Device};
    ///
    /// let (here, there) = (Device::open("127.0.21.16")?, Device::open("127.0.21.17")?);
    /// let (cq, their_cq) = (AsyncCq::with_tokio(&here, 256)?, AsyncCq::with_tokio(&there, 256)?);
    /// let (pd, their_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    /// let qp = cq.create_qp(&pd, |qp| qp)?;
    /// let their_qp = their_cq.create_qp(&their_pd, |qp| qp)?;
    /// let (to_us, to_them) = (qp.endpoint(), their_qp.endpoint());
    /// let (qp, _their_qp) = (qp.connect(&to_them)?, their_qp.connect(&to_us)?);
    ///
    /// let theirs = their_pd.alloc(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
    /// theirs.write(0, b"one-sided")?;
    /// let ours = pd.alloc(9, AccessFlags::LOCAL_WRITE)?;
    /// qp.read(ours.slice(..), theirs.remote()).await?;
    /// assert_eq!(ours.to_vec(..)?, b"one-sided");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_tokio(device: &Device, cqe: u32) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|e| Error::Io(io::Error::other(e)))?;
        let (cq, driver) = Self::create(device, cqe)?;
        runtime.spawn(drive(watch(driver)?));
        Ok(cq)
    }
}

/// Registers the driver's descriptor with the current runtime.
#[allow(unsafe_code)]
fn watch(driver: CqDriver) -> Result<AsyncFd<Descriptor>, Error> {
    // SAFETY: the number is always that of the descriptor which the driver owns: it never gets another one, and closes it
    // when it is dropped, which `AsyncFd` does after it has taken it back from the runtime.
    let watched = unsafe { AsyncFd::register_with_interest(Descriptor(driver), Interest::READABLE) };
    Ok(watched.map_err(io::Error::from)?)
}

/// tokio wants the number of the descriptor.
struct Descriptor(CqDriver);

impl std::os::fd::AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&self.0))
    }
}

/// The driver's task.
async fn drive(mut driver: AsyncFd<Descriptor>) {
    loop {
        match driver.get_mut().0.handle_events() {
            Turn::Again => ::tokio::task::yield_now().await,
            Turn::Ended => return,
            Turn::Sleep => match driver.readable().await {
                // Before the events are taken: one that comes later makes it ready again.
                Ok(mut ready) => ready.clear_ready(),
                // The runtime ends.
                Err(_) => return,
            },
        }
    }
}

/// As [`exchange`](crate::exchange), over a stream of tokio's. Needs the feature `tokio`.
///
/// # Errors
/// Those of the stream: the other side has gone, or told less.
pub async fn exchange_async<T: Exchange>(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ours: &T,
) -> io::Result<T> {
    let mut bytes = vec![0; T::LEN];
    ours.encode(&mut bytes);
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    stream.read_exact(&mut bytes).await?;
    Ok(T::decode(&bytes))
}
