//! What is checked when work is posted, before it takes a place in a queue.

use userdma_verbs::{DeviceAttr, PostError, QpCap, QpState, QpType, RecvWr, SendFlags, SendOp, SendWr};

use crate::sgl_len;

/// Checks a send against the service and the queue's sizes; the message's length. As the kernel's `rxe_verbs.c
/// validate_send_wr()`.
pub(crate) fn check_send(wr: &SendWr<'_>, qp_type: QpType, cap: &QpCap) -> Result<u32, PostError> {
    if qp_type == QpType::Uc {
        check_uc(&wr.op)?;
    }
    let is_inline = wr.flags.contains(SendFlags::INLINE);
    if is_inline {
        check_inline(wr, cap)?;
    } else {
        check_list(wr.sgl.len(), cap.max_send_sge)?;
    }
    let len = if is_inline { wr.inline.len() as u64 } else { sgl_len(wr.sgl) };
    let message = u32::try_from(len)
        .ok()
        .filter(|&len| len <= DeviceAttr::LIMITS.max_msg_sz)
        .ok_or(PostError::TooLong { len })?;
    check_operation(wr, message)?;
    Ok(message)
}

/// Checks what only datagrams can be wrong in. As the kernel's `rxe_opcode.c rxe_wr_opcode_info`, whose entries for
/// `IB_QPT_UD` these are.
pub(crate) fn check_datagram(qp_type: QpType, op: &SendOp) -> Result<(), PostError> {
    if qp_type != QpType::Ud {
        return Err(PostError::Operation("the queue pair is connected: its peer is not chosen by request"));
    }
    match op {
        SendOp::Send | SendOp::SendWithImm(_) => Ok(()),
        SendOp::SendWithInv(_)
        | SendOp::Write(_)
        | SendOp::WriteWithImm(..)
        | SendOp::Read(_)
        | SendOp::Atomic(..)
        | SendOp::LocalInv(_)
        | SendOp::BindMw(_) => {
            Err(PostError::Operation("a datagram is a SEND, with immediate data or without"))
        }
    }
}

/// Checks a receive against the queue's sizes. A list may hold more than the longest message; the rest stays unused.
pub(crate) fn check_recv(wr: &RecvWr<'_>, cap: &QpCap) -> Result<(), PostError> {
    check_list(wr.sgl.len(), cap.max_recv_sge)
}

/// Whether a send may be posted in `state`.
pub(crate) fn check_send_state(state: QpState) -> Result<(), PostError> {
    match state {
        QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => Ok(()),
        QpState::Reset | QpState::Init | QpState::Rtr => Err(PostError::State(state)),
    }
}

/// Whether a receive may be posted in `state`.
pub(crate) fn check_recv_state(state: QpState) -> Result<(), PostError> {
    match state {
        QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => Ok(()),
        QpState::Reset => Err(PostError::State(state)),
    }
}

/// Whether a list has no more elements than a queue takes.
pub(crate) fn check_list(num: usize, max: u32) -> Result<(), PostError> {
    if num > max as usize { Err(PostError::TooManySge { num, max }) } else { Ok(()) }
}

fn check_inline(wr: &SendWr<'_>, cap: &QpCap) -> Result<(), PostError> {
    match wr.op {
        SendOp::Send | SendOp::SendWithImm(_) | SendOp::SendWithInv(_) => {}
        SendOp::Write(_) | SendOp::WriteWithImm(..) => {}
        SendOp::Read(_) | SendOp::Atomic(..) => {
            return Err(PostError::Operation("a READ or atomic has no data to send inline"));
        }
        SendOp::LocalInv(_) | SendOp::BindMw(_) => return Err(PostError::Operation(NO_DATA)),
    }
    if wr.inline.len() > cap.max_inline_data as usize {
        return Err(PostError::InlineTooLong { len: wr.inline.len(), max: cap.max_inline_data });
    }
    Ok(())
}

/// Whether an unreliable connection has the operation. The table of `ibv_post_send(3)`, without SEND with invalidate: it has no
/// opcode on the wire.
fn check_uc(op: &SendOp) -> Result<(), PostError> {
    match op {
        SendOp::Send | SendOp::SendWithImm(_) | SendOp::Write(_) | SendOp::WriteWithImm(..) => Ok(()),
        SendOp::LocalInv(_) | SendOp::BindMw(_) => Ok(()),
        SendOp::Read(_) | SendOp::Atomic(..) | SendOp::SendWithInv(_) => {
            Err(PostError::Operation("an unreliable connection has no READ, atomic or SEND with invalidate"))
        }
    }
}

fn check_operation(wr: &SendWr<'_>, message: u32) -> Result<(), PostError> {
    match wr.op {
        SendOp::Send | SendOp::SendWithImm(_) | SendOp::SendWithInv(_) => Ok(()),
        SendOp::Write(_) | SendOp::WriteWithImm(..) | SendOp::Read(_) => Ok(()),
        SendOp::LocalInv(_) | SendOp::BindMw(_) if !wr.sgl.is_empty() => Err(PostError::Operation(NO_DATA)),
        SendOp::LocalInv(_) | SendOp::BindMw(_) => Ok(()),
        SendOp::Atomic(..) if message != 8 => {
            Err(PostError::Atomic { field: "length", value: u64::from(message), allowed: "8" })
        }
        SendOp::Atomic(remote, _) if remote.addr % 8 != 0 => {
            Err(PostError::Atomic { field: "remote_addr", value: remote.addr, allowed: "a multiple of 8" })
        }
        SendOp::Atomic(..) => Ok(()),
    }
}

const NO_DATA: &str = "a local invalidate or bind carries no data";
