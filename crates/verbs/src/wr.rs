//! Work requests.

use bitflags::bitflags;

use crate::{AccessFlags, LKey, RKey, WcOpcode};

bitflags! {
    /// Options of a send work request. Values of `enum ibv_send_flags`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct SendFlags: u32 {
        /// Wait for all earlier READs and atomics of the queue before starting.
        const FENCE = 1 << 0;
        /// Write a completion on success. Errors always complete.
        const SIGNALED = 1 << 1;
        /// Ask the receiver's solicited-only notification to fire.
        const SOLICITED = 1 << 2;
        /// Take the payload from memory at post time; the buffers need no region and are free at return.
        const INLINE = 1 << 3;
    }
}

/// An element of a scatter/gather list: `length` bytes at `addr` in the region named by `lkey`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sge {
    /// A virtual address (or an offset, if the region is zero based).
    pub addr: u64,
    /// Bytes. 0 stands for no bytes.
    pub length: u32,
    /// The region.
    pub lkey: LKey,
}

/// Where a one-sided operation acts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RemoteAddr {
    /// The peer's virtual address (or an offset, if its region or window is zero based).
    pub addr: u64,
    /// The peer's key.
    pub rkey: RKey,
}

/// What an atomic does to the 8 bytes at its target. Operands in host order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AtomicOp {
    /// Store `swap` if the value equals `compare`.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Add `add`, wrapping.
    FetchAdd {
        /// The addend.
        add: u64,
    },
}

/// The kind of a memory window. Values of `enum ibv_mw_type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum MwType {
    /// Every queue pair of its domain may use it; a bind replaces the one before, and one of no bytes ends it.
    Type1 = 1,
    /// The queue pair that has bound it may use it, until it is invalidated (type 2B).
    Type2 = 2,
}

/// A bind of a memory window by work request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BindMw {
    /// The window's current key, which names the window.
    pub mw: RKey,
    /// The key to give it: the window's index with a new low byte.
    pub rkey: RKey,
    /// The region to bind to. Of no meaning if `length` is 0.
    pub mr: LKey,
    /// First address of the range.
    pub addr: u64,
    /// Bytes of the range; 0 ends the binding of a type 1 window.
    pub length: u64,
    /// The peer's rights, and `ZERO_BASED`.
    pub access: AccessFlags,
}

/// The operation of a send work request with its operands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with immediate data (a number in host order).
    SendWithImm(u32),
    /// SEND that invalidates a key at the receiver.
    SendWithInv(RKey),
    /// RDMA WRITE.
    Write(RemoteAddr),
    /// RDMA WRITE with immediate data, which consumes a receive at the peer.
    WriteWithImm(RemoteAddr, u32),
    /// RDMA READ into the local buffers.
    Read(RemoteAddr),
    /// An atomic; the old value lands in the local buffer (8 bytes).
    Atomic(RemoteAddr, AtomicOp),
    /// Invalidate a local window or region key.
    LocalInv(RKey),
    /// Bind a type 2 window.
    BindMw(BindMw),
}

/// The kind of a send operation, without operands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum WrOpcode {
    /// RDMA WRITE.
    RdmaWrite,
    /// RDMA WRITE with immediate.
    RdmaWriteWithImm,
    /// SEND.
    Send,
    /// SEND with immediate.
    SendWithImm,
    /// SEND with invalidate.
    SendWithInv,
    /// RDMA READ.
    RdmaRead,
    /// Compare and swap.
    AtomicCmpAndSwp,
    /// Fetch and add.
    AtomicFetchAndAdd,
    /// Local invalidate.
    LocalInv,
    /// Bind a memory window.
    BindMw,
}

impl SendOp {
    /// The kind of operation.
    pub const fn opcode(&self) -> WrOpcode {
        match self {
            Self::Send => WrOpcode::Send,
            Self::SendWithImm(_) => WrOpcode::SendWithImm,
            Self::SendWithInv(_) => WrOpcode::SendWithInv,
            Self::Write(_) => WrOpcode::RdmaWrite,
            Self::WriteWithImm(..) => WrOpcode::RdmaWriteWithImm,
            Self::Read(_) => WrOpcode::RdmaRead,
            Self::Atomic(_, AtomicOp::CompareSwap { .. }) => WrOpcode::AtomicCmpAndSwp,
            Self::Atomic(_, AtomicOp::FetchAdd { .. }) => WrOpcode::AtomicFetchAndAdd,
            Self::LocalInv(_) => WrOpcode::LocalInv,
            Self::BindMw(_) => WrOpcode::BindMw,
        }
    }
}

impl WrOpcode {
    /// The opcode of the completion.
    pub const fn wc_opcode(self) -> WcOpcode {
        match self {
            Self::RdmaWrite | Self::RdmaWriteWithImm => WcOpcode::RdmaWrite,
            Self::Send | Self::SendWithImm | Self::SendWithInv => WcOpcode::Send,
            Self::RdmaRead => WcOpcode::RdmaRead,
            Self::AtomicCmpAndSwp => WcOpcode::CompSwap,
            Self::AtomicFetchAndAdd => WcOpcode::FetchAdd,
            Self::LocalInv => WcOpcode::LocalInv,
            Self::BindMw => WcOpcode::BindMw,
        }
    }

    /// Whether the operation writes into its local buffers: READ and the atomics.
    pub const fn writes_locally(self) -> bool {
        matches!(self, Self::RdmaRead | Self::AtomicCmpAndSwp | Self::AtomicFetchAndAdd)
    }

    /// Whether the operation counts against the limit of outstanding READs and atomics.
    pub const fn is_read_or_atomic(self) -> bool {
        self.writes_locally()
    }
}

/// A send work request, as `struct ibv_send_wr`.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Options.
    pub flags: SendFlags,
    /// The local buffers, in order. At most the queue's `max_send_sge`.
    pub sgl: &'a [Sge],
    /// The payload itself, if `flags` has `INLINE`; then `sgl` is not looked at. At most `max_inline_data` bytes.
    pub inline: &'a [u8],
}

/// A receive work request, as `struct ibv_recv_wr`.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Where a message lands, in order. At most the queue's `max_recv_sge`.
    pub sgl: &'a [Sge],
}
