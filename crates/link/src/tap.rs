//! The capture tap: what a link sends and receives, as a file that packet analysers read.
//!
//! A super-packet appears as the packets it stands for, each with the IPv4 identification that its ICRC was made with.
//! The headers that the socket hides are made up again: lengths, addresses, ports, traffic class and checksums as they
//! are, hardware addresses invented. The tap lies between link and device: injected faults are already in what it shows
//! as received. A tap is slow (it locks, sums and copies); one that is not there costs a branch.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use userdma_mem::{Frame, TxBatch};
use userdma_verbs::Time;
use userdma_wire::encap::Encap;
use userdma_wire::{IcrcCheck, Packet};

use crate::clock;
use crate::pcapng::{Direction, InterfaceId, PacketInfo, Writer};

/// A capture file that several links share. Clones write to the same file, which is complete when the last is gone.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<Shared>>);

struct Shared {
    writer: Writer<BufWriter<Box<dyn Write + Send>>>,
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
        Ok(Self(Arc::new(Mutex::new(Shared {
            writer,
            wall_offset_ns,
            packets: 0,
            headers: Vec::new(),
            error: None,
        }))))
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
    }
}

/// The headers between two sockets. Hardware addresses are locally administered and end like the IP addresses.
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
    [0x02, 0x00, a, b, c, d]
}

/// The identification that the packet's ICRC was made with, `hint` if there is none.
fn ipv4_id(encap: &Encap, transport: &[u8], hint: u16) -> u16 {
    let Ok(packet) = Packet::parse(transport) else { return hint };
    match encap.pseudo().verify(&packet, hint) {
        IcrcCheck::GoodWithId(id) => id,
        IcrcCheck::Good | IcrcCheck::Bad => hint,
    }
}

/// What received packets show: the socket does not tell theirs.
const UNKNOWN_HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests;
