//! Work completions.

use std::fmt;

use bitflags::bitflags;

use crate::{Qpn, RKey};

/// How a work request ended. Values of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// A message was longer than its receive.
    LocLenErr = 1,
    /// An internal consistency error of the local QP.
    LocQpOpErr = 2,
    /// A local buffer is not covered by a valid region, or lacks the rights.
    LocProtErr = 4,
    /// Flushed: the QP was in, or went to, the error state first.
    WrFlushErr = 5,
    /// A memory window could not be bound.
    MwBindErr = 6,
    /// The responder sent something that does not fit the request.
    BadRespErr = 7,
    /// Local access error: a received RDMA WRITE with immediate hit a protection error.
    LocAccessErr = 8,
    /// The responder found the request invalid: a message longer than its receive, or an operation that its queue pair does
    /// not grant.
    RemInvReqErr = 9,
    /// The responder refused access: no such key, a range outside its memory, or a right that the memory lacks.
    RemAccessErr = 10,
    /// The responder failed while executing.
    RemOpErr = 11,
    /// No acknowledgement within the retry limit: the peer is gone, was never there, or its queue pair is in ERR.
    RetryExcErr = 12,
    /// The receiver was not ready within the retry limit: it had posted no receive.
    RnrRetryExcErr = 13,
    /// The responder aborted the operation.
    RemAbortErr = 16,
    /// The device failed.
    FatalErr = 19,
    /// The response timed out.
    RespTimeoutErr = 20,
    /// Anything else.
    GeneralErr = 21,
}

impl WcStatus {
    /// A sentence for people, as `ibv_wc_status_str` would give.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocLenErr => "local length error",
            Self::LocQpOpErr => "local QP operation error",
            Self::LocProtErr => "local protection error",
            Self::WrFlushErr => "work request flushed",
            Self::MwBindErr => "memory window bind error",
            Self::BadRespErr => "bad response",
            Self::LocAccessErr => "local access error",
            Self::RemInvReqErr => "remote invalid request",
            Self::RemAccessErr => "remote access error",
            Self::RemOpErr => "remote operation error",
            Self::RetryExcErr => "transport retry counter exceeded",
            Self::RnrRetryExcErr => "RNR retry counter exceeded",
            Self::RemAbortErr => "remote aborted",
            Self::FatalErr => "fatal error",
            Self::RespTimeoutErr => "response timeout",
            Self::GeneralErr => "general error",
        }
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which operation a completion belongs to. Values of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum WcOpcode {
    /// SEND in all its forms.
    Send = 0,
    /// RDMA WRITE in both forms.
    RdmaWrite = 1,
    /// RDMA READ.
    RdmaRead = 2,
    /// Compare and swap.
    CompSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// A memory window was bound.
    BindMw = 5,
    /// A key was invalidated locally.
    LocalInv = 6,
    /// A received SEND.
    Recv = 128,
    /// A received RDMA WRITE with immediate.
    RecvRdmaWithImm = 129,
}

impl WcOpcode {
    /// Whether it is a receive that has ended.
    pub const fn is_recv(self) -> bool {
        matches!(self, Self::Recv | Self::RecvRdmaWithImm)
    }
}

bitflags! {
    /// What a completion carries besides its fixed fields. Values of `enum ibv_wc_flags`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct WcFlags: u32 {
        /// A GRH (or its IPv4 form) lies in the first 40 bytes of the receive buffer.
        const GRH = 1 << 0;
        /// `imm_data` is valid.
        const WITH_IMM = 1 << 1;
        /// `invalidated_rkey` is valid.
        const WITH_INV = 1 << 3;
    }
}

/// A work completion, as `struct ibv_wc`.
///
/// With a status other than `Success` only `wr_id`, `status`, `vendor_err` and `qpn` are meaningful.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wc {
    /// The work request's identifier, as posted.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What was done.
    pub opcode: WcOpcode,
    /// A detail of the error for people who read traces: the NAK syndrome, or 0.
    pub vendor_err: u32,
    /// Bytes received, or read; for sends undefined.
    pub byte_len: u32,
    /// Immediate data as a number in host order (`WITH_IMM`).
    pub imm_data: u32,
    /// The key that the peer invalidated (`WITH_INV`).
    pub invalidated_rkey: RKey,
    /// The local QP.
    pub qpn: Qpn,
    /// The sending QP (datagram receives).
    pub src_qp: Qpn,
    /// The service level of a received datagram. Over RoCE v2, which has none, what kind of packet it was, as adapters of
    /// NVIDIA's report it and UCX reads it: [`Wc::SL_IPV4`] or [`Wc::SL_IPV6`].
    pub sl: u8,
    /// Which optional fields are valid.
    pub flags: WcFlags,
}

impl Wc {
    /// [`Wc::sl`] of a datagram that came by UDP over IPv4.
    pub const SL_IPV4: u8 = 0b1010;
    /// [`Wc::sl`] of a datagram that came by UDP over IPv6.
    pub const SL_IPV6: u8 = 0b1001;

    /// A completion of `opcode` with everything optional empty.
    pub const fn new(wr_id: u64, status: WcStatus, opcode: WcOpcode, qpn: Qpn) -> Self {
        Self {
            wr_id,
            status,
            opcode,
            vendor_err: 0,
            byte_len: 0,
            imm_data: 0,
            invalidated_rkey: RKey::new(0),
            qpn,
            src_qp: Qpn::new(0),
            sl: 0,
            flags: WcFlags::empty(),
        }
    }

    /// The immediate data, if the completion carries any.
    pub fn imm(&self) -> Option<u32> {
        self.flags.contains(WcFlags::WITH_IMM).then_some(self.imm_data)
    }

    /// The completion again, if it is a success: for `?`.
    ///
    /// # Errors
    /// What a completion with any other status says.
    pub const fn check(self) -> Result<Self, WcError> {
        let Self { wr_id, status, vendor_err, qpn, .. } = self;
        if matches!(status, WcStatus::Success) {
            Ok(self)
        } else {
            Err(WcError { wr_id, qpn, status, vendor_err })
        }
    }
}

/// A work request that was accepted and failed. A reliable connection is in the error state then.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("work request {wr_id} on queue pair {:#x} failed: {status}", .qpn.get())]
pub struct WcError {
    /// The work request's identifier, as posted.
    pub wr_id: u64,
    /// The local QP.
    pub qpn: Qpn,
    /// How it ended.
    pub status: WcStatus,
    /// A detail for people who read traces: the NAK syndrome, or 0.
    pub vendor_err: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_a_success_or_an_error_that_says_which() {
        let wc = Wc::new(7, WcStatus::Success, WcOpcode::Send, Qpn::new(0x4002));
        assert_eq!(wc.check(), Ok(wc));
        let failed = Wc { status: WcStatus::RemAccessErr, vendor_err: 0x62, ..wc };
        let error = failed.check().unwrap_err();
        assert_eq!((error.status, error.vendor_err), (WcStatus::RemAccessErr, 0x62));
        assert_eq!(error.to_string(), "work request 7 on queue pair 0x4002 failed: remote access error");
    }
}
