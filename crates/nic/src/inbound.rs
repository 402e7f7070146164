//! Whether a packet's invariant CRC is right, given where the packet came from.
//!
//! Packets come in trains from one sender, so what its ICRCs start with is kept for the next one. IPv4
//! identifications, which a socket does not show, are judged for each pair of addresses by what came before.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use userdma_mem::{FrameMeta, crc32};
use userdma_verbs::Time;
use userdma_wire::{FlowIcrc, IcrcCheck, IdVerdict, IdWindow, Packet, Pseudo};

/// What is known about senders.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    flow: Option<Flow>,
    ids: IdTable,
}

/// The sender of the last packet.
#[derive(Debug)]
pub(crate) struct Flow {
    /// As the socket told it, to be recognised by.
    remote: IpAddr,
    remote_port: u16,
    local: IpAddr,
    local_port: u16,
    /// In canonical form, to be compared with paths.
    pub(crate) canonical_remote: IpAddr,
    /// In canonical form, to be compared with paths.
    pub(crate) canonical_local: IpAddr,
    icrc: FlowIcrc,
    /// The source's entry in the table of identifications, once one of its packets was good.
    id_slot: Option<usize>,
}

/// What the ICRC says in the end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It is right.
    Good,
    /// It is right with an IPv4 identification that was not known in advance, but may be believed.
    GoodUnknownId,
    /// It is wrong, or its identification may not be believed.
    Bad,
}

impl Inbound {
    /// Checks a packet's ICRC and returns what is known of its sender.
    #[inline]
    pub(crate) fn check(&mut self, now: Time, meta: &FrameMeta, packet: &Packet<'_>) -> (Verdict, &Flow) {
        let Self { flow, ids } = self;
        if flow.as_ref().is_some_and(|flow| !flow.is_of(meta)) {
            *flow = None;
        }
        let flow = flow.get_or_insert_with(|| Flow::new(meta, ids));
        let verdict = flow.check(now, meta.segment, packet, ids);
        (verdict, flow)
    }
}

impl Flow {
    fn new(meta: &FrameMeta, ids: &IdTable) -> Self {
        let (remote, local) = (meta.remote.to_canonical(), meta.local.to_canonical());
        Self {
            remote: meta.remote,
            remote_port: meta.remote_port,
            local: meta.local,
            local_port: meta.local_port,
            canonical_remote: remote,
            canonical_local: local,
            icrc: FlowIcrc::with_crc32(Pseudo::new(remote, local, meta.remote_port, meta.local_port), crc32),
            id_slot: Stream::of(remote, local).and_then(|stream| ids.find(stream)),
        }
    }

    fn is_of(&self, meta: &FrameMeta) -> bool {
        self.remote_port == meta.remote_port
            && self.local_port == meta.local_port
            && self.remote == meta.remote
            && self.local == meta.local
    }

    fn check(&mut self, now: Time, segment: u16, packet: &Packet<'_>, ids: &mut IdTable) -> Verdict {
        let Some(stream) = Stream::of(self.canonical_remote, self.canonical_local) else {
            return match self.icrc.verify(packet, 0) {
                IcrcCheck::Good => Verdict::Good,
                IcrcCheck::GoodWithId(_) | IcrcCheck::Bad => Verdict::Bad,
            };
        };
        let mut window = ids.window(self.id_slot);
        let hint = window.hint(segment);
        let verdict = match self.icrc.verify(packet, hint) {
            // Nothing to learn from a source that is known and numbers as we do.
            IcrcCheck::Good if self.id_slot.is_some() && hint == segment && segment < IdWindow::SMALL => {
                return Verdict::Good;
            }
            IcrcCheck::Good => {
                // All 32 bits were right, so the packet is good whatever the window makes of its identification.
                let _ = window.check(now, hint);
                Verdict::Good
            }
            IcrcCheck::GoodWithId(id) => match window.check(now, id) {
                IdVerdict::Accept => Verdict::GoodUnknownId,
                IdVerdict::Reject => Verdict::Bad,
            },
            IcrcCheck::Bad => return Verdict::Bad,
        };
        match self.id_slot {
            Some(slot) => ids.update(slot, window),
            // A source without a good packet gets no entry, so that strangers cannot displace peers.
            None if verdict != Verdict::Bad => self.id_slot = Some(ids.insert(stream, window)),
            None => {}
        }
        verdict
    }
}

/// What is numbered on its own: a kernel counts for each pair of addresses, so that what one sends to a group says nothing about
/// what it sends to us.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Stream {
    source: Ipv4Addr,
    destination: Ipv4Addr,
}

impl Stream {
    /// `None` of IPv6, which has no identifications.
    fn of(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self { source, destination }),
            (IpAddr::V4(_) | IpAddr::V6(_), _) => None,
        }
    }
}

/// What the identifications of streams looked like: a bounded table in which the newest stream replaces the oldest.
#[derive(Debug, Default)]
struct IdTable {
    slots: HashMap<Stream, usize>,
    entries: Vec<IdEntry>,
    oldest: usize,
}

#[derive(Debug)]
struct IdEntry {
    stream: Stream,
    window: IdWindow,
}

impl IdTable {
    fn find(&self, stream: Stream) -> Option<usize> {
        self.slots.get(&stream).copied()
    }

    fn window(&self, slot: Option<usize>) -> IdWindow {
        slot.and_then(|slot| self.entries.get(slot)).map_or_else(IdWindow::new, |entry| entry.window)
    }

    fn update(&mut self, slot: usize, window: IdWindow) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.window = window;
        }
    }

    fn insert(&mut self, stream: Stream, window: IdWindow) -> usize {
        let slot = if self.entries.len() < MAX_STREAMS {
            self.entries.push(IdEntry { stream, window });
            self.entries.len() - 1
        } else {
            let slot = self.oldest;
            self.oldest = (slot + 1) % MAX_STREAMS;
            self.slots.remove(&self.entries[slot].stream);
            self.entries[slot] = IdEntry { stream, window };
            slot
        };
        self.slots.insert(stream, slot);
        slot
    }
}

/// Streams that are remembered.
const MAX_STREAMS: usize = 1024;
