//! Memory with borders: one buffer, of which the regions are parts with different rights.
//!
//! Whatever the peer sends, only bytes of the parts that say so may change. The rest are canaries: the gaps before and
//! behind each region, regions without the right, and regions that are gone or belong to somebody else.

use std::ops::Range;
use std::sync::Arc;

use userdma_mem::{Buffer, Region};
use userdma_objects::MrKeys;
use userdma_verbs::{AccessFlags as A, BindMw, RKey, Sge};

use crate::Host;

/// The memory of the queue pair under test.
#[derive(Debug)]
pub(super) struct Arena {
    buffer: Arc<Buffer>,
    regions: Vec<Part>,
    /// The window's key; a bind changes its low byte.
    mw: RKey,
    /// The bytes as they were when last looked at, and room to look.
    before: Vec<u8>,
    now: Vec<u8>,
}

/// A registered part.
#[derive(Clone, Debug)]
struct Part {
    keys: MrKeys,
    range: Range<usize>,
    /// What the peer, or a receive, may change.
    may_change: Range<usize>,
    is_registered: bool,
}

impl Arena {
    /// Registers the parts with a device.
    pub(super) fn new(host: &mut Host) -> Self {
        let buffer = Arc::new(Buffer::new(LEN).expect("memory"));
        let before: Vec<u8> = (0..LEN).map(pattern).collect();
        buffer.write(0, &before).expect("memory of our own");
        let whole = Region::from_buffer(&buffer);
        let stranger = host.shard.alloc_pd().expect("a second domain");
        let regions = PARTS.iter().map(|plan| {
            let region = whole.part(plan.range.start, plan.range.len()).expect("inside the buffer");
            let pd = if plan.kind == Kind::Foreign { stranger } else { host.pd };
            let iova = address(plan.range.start);
            let keys = host.shard.reg_mr(pd, region, iova, plan.access).expect("a region");
            let is_registered = plan.kind != Kind::Gone;
            if !is_registered {
                host.shard.dereg_mr(keys.lkey).expect("nothing is bound to it");
            }
            Part { keys, range: plan.range.clone(), may_change: plan.may_change.clone(), is_registered }
        });
        let regions = regions.collect();
        let mw = host.shard.alloc_mw(host.pd).expect("a window");
        Self { buffer, regions, mw, now: before.clone(), before }
    }

    /// The key that a program calls `which`; 0 is the one that grants everything.
    pub(super) fn rkey(&self, which: u8) -> RKey {
        let which = usize::from(which) % (PARTS.len() + 3);
        match self.regions.get(which) {
            Some(part) => part.keys.rkey,
            None if which == PARTS.len() => self.mw,
            None if which == PARTS.len() + 1 => RKey::new(0),
            None => RKey::new(0xdead_beef),
        }
    }

    /// The address `offset` bytes from the start of what the program calls `which`.
    pub(super) fn address(&self, which: u8, offset: i16) -> u64 {
        let which = usize::from(which) % (PARTS.len() + 3);
        let start = match self.regions.get(which) {
            Some(part) => part.range.start,
            None if which == PARTS.len() => WINDOW.start,
            None => 0,
        };
        address(start).wrapping_add_signed(offset.into())
    }

    /// `length` bytes of the region that receives and answers land in.
    pub(super) fn landing(&self, length: u32) -> Sge {
        self.sge(LANDING, length)
    }

    /// `length` bytes to send, of a region without rights.
    pub(super) fn source(&self, length: u32) -> Sge {
        self.sge(SOURCE, length)
    }

    fn sge(&self, which: usize, length: u32) -> Sge {
        let part = &self.regions[which];
        Sge { addr: address(part.range.start), length, lkey: part.keys.lkey }
    }

    /// A bind of the window to its range, with the next key.
    pub(super) fn bind(&mut self) -> BindMw {
        let next = self.mw.with_variant(self.mw.get().to_le_bytes()[0].wrapping_add(1));
        let bind = BindMw {
            mw: self.mw,
            rkey: next,
            mr: self.regions[BINDABLE].keys.lkey,
            addr: address(WINDOW.start),
            length: WINDOW.len() as u64,
            access: A::REMOTE_WRITE | A::REMOTE_READ,
        };
        self.mw = next;
        bind
    }

    /// Ends a region, if nothing is bound to it. Its bytes are canaries from now on.
    pub(super) fn deregister(&mut self, host: &mut Host, which: u8) {
        let count = self.regions.len();
        let part = &mut self.regions[usize::from(which) % count];
        if part.is_registered && host.shard.dereg_mr(part.keys.lkey).is_ok() {
            part.is_registered = false;
            part.may_change = 0..0;
        }
    }

    /// Ends everything: what is bound to nothing any more must let itself be ended.
    pub(super) fn close(&mut self, host: &mut Host) {
        // Binds may have failed since, so that an older key is the window's.
        let is_ended =
            (0..=u8::MAX).any(|variant| host.shard.dealloc_mw(self.mw.with_variant(variant)).is_ok());
        assert!(is_ended, "the window is gone");
        for part in self.regions.iter().filter(|part| part.is_registered) {
            host.shard.dereg_mr(part.keys.lkey).expect("a region that nothing uses");
        }
    }

    /// Changes a byte, as a faulty device would.
    #[cfg(test)]
    pub(super) fn spoil(&self, at: usize) {
        self.buffer.write(at as u64, &[!pattern(at)]).expect("memory of our own");
    }

    /// Compares every byte that may not have changed, and remembers the others.
    pub(super) fn check(&mut self) {
        self.buffer.read(0, &mut self.now).expect("memory of our own");
        if self.now == self.before {
            return;
        }
        for part in &self.regions {
            let range = part.may_change.clone();
            self.before[range.clone()].copy_from_slice(&self.now[range]);
        }
        if let Some(at) = (0..LEN).find(|&at| self.now[at] != self.before[at]) {
            panic!("byte {at:#x} of the arena changed from {:#x} to {:#x}", self.before[at], self.now[at]);
        }
    }
}

/// What a part is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Ours,
    /// Of another protection domain.
    Foreign,
    /// Deregistered before the first packet.
    Gone,
}

#[derive(Clone, Debug)]
struct Plan {
    range: Range<usize>,
    may_change: Range<usize>,
    access: A,
    kind: Kind,
}

const fn plan(range: Range<usize>, may_change: Range<usize>, access: A, kind: Kind) -> Plan {
    Plan { range, may_change, access, kind }
}

const EVERYTHING: A = A::LOCAL_WRITE.union(A::REMOTE_WRITE).union(A::REMOTE_READ).union(A::REMOTE_ATOMIC);

/// The parts, in the order in which programs name them. Their borders are no multiples of anything.
const PARTS: [Plan; 7] = [
    plan(0x0c08..0x1409, 0x0c08..0x1409, EVERYTHING.union(A::MW_BIND), Kind::Ours),
    plan(0x0203..0x0a03, 0x0203..0x0a03, A::LOCAL_WRITE, Kind::Ours),
    plan(0x1604..0x1804, 0..0, A::REMOTE_READ, Kind::Ours),
    plan(0x1a00..0x1e00, WINDOW, A::LOCAL_WRITE.union(A::MW_BIND), Kind::Ours),
    plan(0x2000..0x2200, 0..0, EVERYTHING, Kind::Foreign),
    plan(0x2400..0x2600, 0..0, EVERYTHING, Kind::Gone),
    plan(0x2801..0x3001, 0..0, A::empty(), Kind::Ours),
];
const LANDING: usize = 1;
const BINDABLE: usize = 3;
const SOURCE: usize = 6;

/// What the window opens of its region.
const WINDOW: Range<usize> = 0x1b00..0x1c00;

const LEN: usize = 0x3200;

/// Bytes of the longest local buffer.
pub(super) const MAX_LOCAL: u32 = 0x800;

/// Where the buffer lies for local and remote work requests: the same in every run.
const BASE: u64 = 0x7f00_0000_0000;

const fn address(offset: usize) -> u64 {
    BASE + offset as u64
}

fn pattern(at: usize) -> u8 {
    // A byte of the place, so that a copy from elsewhere shows.
    at.wrapping_mul(31).to_le_bytes()[0] ^ at.to_le_bytes()[1] ^ 0x5a
}
