//! The capture tap: what a link sends and receives, as a file that packet analysers read.
//!
//! A super-packet appears as the packets it stands for, each with the IPv4 identification that its ICRC was
//! made with. The tap lies between link and device: injected faults are already in what it shows as received. A tap
//! is slow (it locks, sums and copies); one that is not there costs a branch.

mod headers;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use userdma_mem::{Frame, TxBatch};
use userdma_verbs::Time;

use crate::clock;
use crate::pcapng::{Direction, InterfaceId, PacketInfo, Writer};
use headers::{Datagram, Headers};

/// A capture file that several links share. Clones write to the same file, which is complete when the last is gone.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<Shared>>);

struct Shared {
    writer: Writer<BufWriter<Box<dyn Write + Send>>>,
    /// Turns times into nanoseconds since 1970.
    wall_offset_ns: u64,
    packets: u64,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

/// A link's way into a capture file.
#[derive(Clone, Debug)]
pub struct Tap {
    capture: Capture,
    interface: InterfaceId,
}

impl Capture {
    /// A new file at `path`, an old one is replaced.
    ///
    /// # Errors
    /// Those of making and writing the file.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::create(path)?, clock::wall_offset_ns())
    }

    /// A capture into `out`, which it buffers. `wall_offset_ns` is added to every time to get nanoseconds
    /// since 1970: see [`clock::wall_offset_ns`].
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: impl Write + Send + 'static, wall_offset_ns: u64) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = Box::new(out);
        let writer = Writer::new(BufWriter::with_capacity(1 << 18, out), "userdma")?;
        Ok(Self(Arc::new(Mutex::new(Shared { writer, wall_offset_ns, packets: 0, error: None }))))
    }

    /// A tap for one link, which the file calls `interface`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn tap(&self, interface: &str) -> io::Result<Tap> {
        let interface = self.lock().writer.interface(interface)?;
        Ok(Tap { capture: self.clone(), interface })
    }

    /// Packets written so far.
    pub fn packets(&self) -> u64 {
        self.lock().packets
    }

    /// Hands what is buffered to the output.
    ///
    /// # Errors
    /// The first error that any packet met (told once; the capture ended there), or the output's now.
    pub fn flush(&self) -> io::Result<()> {
        let mut shared = self.lock();
        match shared.error.take() {
            Some(error) => {
                let kind = error.kind();
                shared.error = Some(kind.into());
                Err(error)
            }
            None => shared.writer.flush(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic elsewhere leaves at worst half a packet at the file's end.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("packets", &self.packets()).finish_non_exhaustive()
    }
}

impl Tap {
    /// Records the packets of a batch that was sent. An empty batch is nothing.
    pub fn sent(&self, now: Time, batch: &TxBatch) {
        let Some(route) = batch.route() else { return };
        let mut shared = self.capture.lock();
        // A batch has 128 packets at most.
        for (ip_id, payload) in (0u16..).zip(batch.packets()) {
            let datagram = Datagram {
                source: (route.local, route.local_port),
                destination: (route.remote, route.remote_port),
                traffic_class: route.traffic_class,
                hop_limit: route.hop_limit,
                ip_id,
                payload,
            };
            shared.write(self.interface, now, Direction::Outbound, &datagram, None);
        }
    }

    /// Records a packet that came in. The socket does not tell its IPv4 identification: `ip_id` is what makes its ICRC
    /// right, if that is known; else its place in the super-packet is taken, which is right if the peer is of our
    /// kind.
    pub fn received(&self, now: Time, frame: &Frame<'_>, ip_id: Option<u16>) {
        let meta = &frame.meta;
        let datagram = Datagram {
            source: (meta.remote, meta.remote_port),
            destination: (meta.local, meta.local_port),
            traffic_class: meta.traffic_class,
            hop_limit: UNKNOWN_HOP_LIMIT,
            ip_id: ip_id.unwrap_or(meta.segment),
            payload: frame.bytes,
        };
        self.capture.lock().write(self.interface, now, Direction::Inbound, &datagram, None);
    }
}

impl Shared {
    fn write(
        &mut self,
        interface: InterfaceId,
        now: Time,
        direction: Direction,
        datagram: &Datagram<'_>,
        comment: Option<&str>,
    ) {
        let Some(headers) = Headers::of(datagram) else { return };
        if self.error.is_some() {
            return;
        }
        let at_ns = now.plus_nanos(self.wall_offset_ns).nanos();
        let info = PacketInfo { interface, at_ns, direction, comment };
        match self.writer.packet(&info, headers.bytes(), datagram.payload) {
            Ok(()) => self.packets += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

/// What received packets show: the socket does not tell theirs.
const UNKNOWN_HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests;
