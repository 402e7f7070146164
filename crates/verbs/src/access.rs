//! Access rights of memory regions, memory windows and queue pairs.

use bitflags::bitflags;

bitflags! {
    /// What may be done to memory, or through a queue pair. Values of `enum ibv_access_flags`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct AccessFlags: u32 {
        /// The device may write for local work requests: receives, READ results, atomic results.
        const LOCAL_WRITE = 1 << 0;
        /// A peer may WRITE. Needs `LOCAL_WRITE` on a region.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may READ.
        const REMOTE_READ = 1 << 2;
        /// A peer may do atomics. Needs `LOCAL_WRITE` on a region.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses in work requests count from the start of the region.
        const ZERO_BASED = 1 << 5;
        /// Pages need not be present at registration.
        const ON_DEMAND = 1 << 6;
        /// The memory lies in huge pages (a hint).
        const HUGETLB = 1 << 7;
        /// A peer may flush to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// A peer may flush to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Writes of one message may become visible in any order (optional: may be ignored).
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl AccessFlags {
    /// Whether the device or a peer may change memory that carries these rights.
    pub const fn is_writing(self) -> bool {
        self.intersects(Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC))
    }

    /// The rights that a peer uses.
    pub const fn remote(self) -> Self {
        self.intersection(Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC))
    }
}
