//! The capture tap: what a link sends and receives, as a file that packet analysers read.
//!
//! A super-packet appears as the packets it stands for, each with the IPv4 identification that its ICRC was made with.
//! The headers that the socket hides are made up again: lengths, addresses, ports, traffic class and checksums as they
//! are, hardware addresses invented. The tap lies between link and device: injected faults are already in what it shows
//! as received. A tap is slow (it locks, sums and copies); one that is not there costs a branch.
//!
//! Packets reach the file in whole blocks, [`MAX_LAG`] after they passed at the latest while the link is driven. What a process
//! that is killed leaves behind can be read; the last packet is cut off if the kernel ended the process in the middle of a write.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use userdma_mem::{Frame, TxBatch};
use userdma_verbs::Time;
use userdma_wire::encap::Encap;
use userdma_wire::{IcrcCheck, Packet};

use crate::clock;
use crate::guard::GuardedFd;
use crate::pcapng::{Direction, InterfaceId, PacketInfo, Writer};

/// A capture file that several links share. Clones write to the same file, which is complete when the last is gone.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<Shared>>);

struct Shared {
    writer: Writer<Vec<u8>>,
    /// Where whole blocks go.
    out: Box<dyn Write + Send>,
    /// When the oldest block that is not there yet was written.
    waits_since: Option<Time>,
    /// Turns times into nanoseconds since 1970.
    wall_offset_ns: u64,
    packets: u64,
    /// The headers of the packet at hand.
    headers: Vec<u8>,
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
        Self::new(GuardedFd::from(OwnedFd::from(File::create(path)?)), clock::wall_offset_ns())
    }

    /// A capture into `out`, which it buffers. `wall_offset_ns` is added to every time to get nanoseconds
    /// since 1970: see [`clock::wall_offset_ns`].
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: impl Write + Send + 'static, wall_offset_ns: u64) -> io::Result<Self> {
        let writer = Writer::new(Vec::new(), "userdma")?;
        let out = Box::new(out);
        let mut shared = Shared {
            writer,
            out,
            waits_since: None,
            wall_offset_ns,
            packets: 0,
            headers: Vec::new(),
            error: None,
        };
        shared.flush()?;
        Ok(Self(Arc::new(Mutex::new(shared))))
    }

    /// A tap for one link, which the file calls `interface`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn tap(&self, interface: &str) -> io::Result<Tap> {
        let mut shared = self.lock();
        let interface = shared.writer.interface(interface)?;
        shared.flush()?;
        drop(shared);
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
            None => shared.flush(),
        }
    }

    /// The same, unless somebody is writing just now: for the end of a program, which may come in the middle of anything.
    pub fn try_flush(&self) {
        if let Ok(mut shared) = self.0.try_lock() {
            // There is nobody left to tell.
            let _ = shared.flush();
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
        let mut encap = encap((route.local, route.local_port), (route.remote, route.remote_port));
        (encap.traffic_class, encap.hop_limit) = (route.traffic_class, route.hop_limit);
        let mut shared = self.capture.lock();
        // A batch has 128 packets at most.
        for (index, packet) in (0u16..).zip(batch.packets()) {
            encap.ipv4_id = if encap.is_ipv4() { index } else { 0 };
            shared.write(self.interface, now, Direction::Outbound, &encap, packet);
        }
    }

    /// Records a packet that came in. The socket does not tell its IPv4 identification: it is the one that makes the
    /// ICRC right, or, if none does, the packet's place in its super-packet.
    pub fn received(&self, now: Time, frame: &Frame<'_>) {
        let meta = &frame.meta;
        let mut encap = encap((meta.remote, meta.remote_port), (meta.local, meta.local_port));
        (encap.traffic_class, encap.hop_limit) = (meta.traffic_class, UNKNOWN_HOP_LIMIT);
        if encap.is_ipv4() {
            encap.ipv4_id = ipv4_id(&encap, frame.bytes, meta.segment);
        }
        self.capture.lock().write(self.interface, now, Direction::Inbound, &encap, frame.bytes);
    }

    /// Hands packets to the file that have waited for [`MAX_LAG`].
    pub fn flush_if_due(&self, now: Time) {
        let mut shared = self.capture.lock();
        if shared.waits_since.is_some_and(|since| since + MAX_LAG <= now) {
            shared.keep_error(|shared| shared.flush());
        }
    }

    /// When [`Tap::flush_if_due`] has something to do, if no packet comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        self.capture.lock().waits_since.map(|since| since + MAX_LAG)
    }
}

impl Shared {
    fn write(
        &mut self,
        interface: InterfaceId,
        now: Time,
        direction: Direction,
        encap: &Encap,
        transport: &[u8],
    ) {
        if self.error.is_some() {
            return;
        }
        self.headers.clear();
        encap.write_headers(&mut self.headers, transport);
        let at_ns = now.plus_nanos(self.wall_offset_ns).nanos();
        let info = PacketInfo { interface, at_ns, direction, comment: None };
        match self.writer.packet(&info, &self.headers, transport) {
            Ok(()) => self.packets += 1,
            Err(error) => self.error = Some(error),
        }
        self.waits_since.get_or_insert(now);
        if self.writer.output().len() >= BUFFER {
            self.keep_error(Self::flush);
        }
    }

    /// Hands all blocks to the output, which sees whole blocks only.
    fn flush(&mut self) -> io::Result<()> {
        self.waits_since = None;
        let blocks = self.writer.output_mut();
        let result = self.out.write_all(blocks).and_then(|()| self.out.flush());
        blocks.clear();
        result
    }

    fn keep_error(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if let Err(error) = write(self) {
            self.error.get_or_insert(error);
        }
    }
}

/// The headers between two sockets. Hardware addresses are locally administered and end like the IP addresses; those of groups are
/// what every host derives from the group's address.
fn encap(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Encap {
    let mut encap = Encap::udp(source.0, destination.0, source.1, destination.1);
    (encap.src_mac, encap.dst_mac) = (mac(encap.src), mac(encap.dst));
    encap
}

fn mac(ip: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d]
        }
    };
    match ip {
        IpAddr::V4(ip) if ip.is_multicast() => [0x01, 0x00, 0x5e, b & 0x7f, c, d],
        IpAddr::V6(ip) if ip.is_multicast() => [0x33, 0x33, a, b, c, d],
        IpAddr::V4(_) | IpAddr::V6(_) => [0x02, 0x00, a, b, c, d],
    }
}

/// The identification that the packet's ICRC was made with, `hint` if there is none.
fn ipv4_id(encap: &Encap, transport: &[u8], hint: u16) -> u16 {
    let Ok(packet) = Packet::parse(transport) else { return hint };
    match encap.pseudo().verify(&packet, hint) {
        IcrcCheck::GoodWithId(id) => id,
        IcrcCheck::Good | IcrcCheck::Bad => hint,
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Who wants to know calls `flush`.
        let _ = self.flush();
    }
}

/// How long a packet may wait for others before it is handed to the file.
pub const MAX_LAG: Duration = Duration::from_millis(20);
/// Bytes that wait at most.
const BUFFER: usize = 1 << 18;
/// What received packets show: the socket does not tell theirs.
const UNKNOWN_HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests;
