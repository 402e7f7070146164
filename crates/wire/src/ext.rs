//! The extension headers that may follow a BTH, in the standard's spelling.
//!
//! As `rxe_hdr.h struct rxe_reth` and its neighbours, but for XRCETH, which is not there. They stand in one
//! order: XRCETH, DETH, FETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH. Which of them a packet carries
//! is in [`crate::OpcodeInfo::headers`].

use userdma_verbs::{QKey, Qpn, RKey};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::field::U24;

macro_rules! header {
    ($(#[$doc:meta])* $name:ident: $len:literal { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($field: $type,)*
        }

        impl $name {
            /// Bytes of the header.
            pub const LEN: usize = size_of::<Self>();
        }

        const _: () = assert!($name::LEN == $len);
    };
}

header! {
    /// RDMA extended transport header, 16 bytes: what a WRITE, READ or FLUSH names at the responder.
    Reth: 16 { va: U64, rkey: U32, dma_len: U32 }
}

header! {
    /// Atomic extended transport header, 28 bytes.
    AtomicEth: 28 { va: U64, rkey: U32, swap_add: U64, compare: U64 }
}

header! {
    /// Atomic ACK extended transport header, 8 bytes: what stood in memory before the atomic.
    AtomicAckEth: 8 { orig: U64 }
}

header! {
    /// Immediate data, 4 bytes.
    ImmDt: 4 { data: U32 }
}

header! {
    /// Invalidate extended transport header, 4 bytes: the key that the receiver shall invalidate.
    Ieth: 4 { rkey: U32 }
}

header! {
    /// Datagram extended transport header, 8 bytes.
    Deth: 8 { qkey: U32, reserved: u8, src_qp: U24 }
}

header! {
    /// XRC extended transport header, 4 bytes: the shared receive queue at the target.
    XrcEth: 4 { reserved: u8, srqn: U24 }
}

header! {
    /// FLUSH extended transport header, 4 bytes. As `rxe_hdr.h struct rxe_feth`: bits 3..0 the placement
    /// type, bits 5..4 the selectivity.
    Feth: 4 { bits: U32 }
}

impl Reth {
    /// `dma_len` bytes from `va` on, under `rkey`.
    pub const fn new(va: u64, rkey: RKey, dma_len: u32) -> Self {
        Self { va: be64(va), rkey: be32(rkey.get()), dma_len: be32(dma_len) }
    }

    /// The first byte, in the responder's address space.
    pub const fn va(&self) -> u64 {
        self.va.get()
    }

    /// The key that allows the access.
    pub const fn rkey(&self) -> RKey {
        RKey::new(self.rkey.get())
    }

    /// Length of the whole message in bytes, not of this packet.
    pub const fn dma_len(&self) -> u32 {
        self.dma_len.get()
    }
}

impl AtomicEth {
    /// An atomic on the eight bytes at `va`. `swap_add` is the new value of COMPARE_SWAP or the addend of
    /// FETCH_ADD; `compare` is unused by the latter.
    pub const fn new(va: u64, rkey: RKey, swap_add: u64, compare: u64) -> Self {
        Self { va: be64(va), rkey: be32(rkey.get()), swap_add: be64(swap_add), compare: be64(compare) }
    }

    /// Address of the eight bytes, in the responder's address space.
    pub const fn va(&self) -> u64 {
        self.va.get()
    }

    /// The key that allows the access.
    pub const fn rkey(&self) -> RKey {
        RKey::new(self.rkey.get())
    }

    /// The value to store, or the addend.
    pub const fn swap_add(&self) -> u64 {
        self.swap_add.get()
    }

    /// The value that must be there for COMPARE_SWAP to store.
    pub const fn compare(&self) -> u64 {
        self.compare.get()
    }
}

impl AtomicAckEth {
    /// The answer to an atomic: the value before it.
    pub const fn new(orig: u64) -> Self {
        Self { orig: be64(orig) }
    }

    /// The value before the atomic.
    pub const fn orig(&self) -> u64 {
        self.orig.get()
    }
}

impl ImmDt {
    /// Immediate data, given in host order.
    pub const fn new(data: u32) -> Self {
        Self { data: be32(data) }
    }

    /// The immediate data in host order.
    pub const fn data(&self) -> u32 {
        self.data.get()
    }
}

impl Ieth {
    /// Invalidate `rkey`.
    pub const fn new(rkey: RKey) -> Self {
        Self { rkey: be32(rkey.get()) }
    }

    /// The key to invalidate.
    pub const fn rkey(&self) -> RKey {
        RKey::new(self.rkey.get())
    }
}

impl Deth {
    /// A datagram from `src_qp` with this queue key.
    pub const fn new(qkey: QKey, src_qp: Qpn) -> Self {
        Self { qkey: be32(qkey.get()), reserved: 0, src_qp: U24::new(src_qp.get()) }
    }

    /// The queue key, to be compared with the receiver's.
    pub const fn qkey(&self) -> QKey {
        QKey::new(self.qkey.get())
    }

    /// The sender's queue pair.
    pub const fn src_qp(&self) -> Qpn {
        Qpn::new(self.src_qp.get())
    }
}

impl XrcEth {
    /// Deliver to the shared receive queue `srqn`: 24 bits, more are dropped.
    pub const fn new(srqn: u32) -> Self {
        Self { reserved: 0, srqn: U24::new(srqn) }
    }

    /// The shared receive queue's number: 0 ..= 2^24 - 1.
    pub const fn srqn(&self) -> u32 {
        self.srqn.get()
    }
}

impl Feth {
    /// Flush of this placement type (0 ..= 15) and selectivity (0 ..= 3); more bits are dropped.
    pub const fn new(placement: u8, selectivity: u8) -> Self {
        Self { bits: be32((selectivity as u32 & 0x3) << 4 | placement as u32 & 0xf) }
    }

    /// The placement type: bit 0 global visibility, bit 1 persistence.
    pub const fn placement(&self) -> u8 {
        (self.bits.get() & 0xf) as u8
    }

    /// The selectivity level: 0 the range, 1 the whole region.
    pub const fn selectivity(&self) -> u8 {
        (self.bits.get() >> 4 & 0x3) as u8
    }
}

const fn be32(value: u32) -> U32 {
    U32::from_bytes(value.to_be_bytes())
}

const fn be64(value: u64) -> U64 {
    U64::from_bytes(value.to_be_bytes())
}
