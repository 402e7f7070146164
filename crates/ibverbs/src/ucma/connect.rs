//! Commands that make connections and end them.

use std::mem::offset_of;

use userdma_host::cm::{Address, CmId, ConnParam, Ece, Query};
use userdma_verbs::{QKey, Qpn};
use userdma_wire::mad::cm::RejectReason;

use super::abi;
use super::command::Call;
use super::table::Id;
use crate::answer::{INVALID, Refused};
use crate::log::{self, Level};

/// As `ucma.c ucma_connect()`.
pub(super) fn connect(call: &Call) -> Result<(), Refused> {
    let command: abi::Connect = call.grown_input(offset_of!(abi::Connect, ece))?;
    if command.conn_param.valid == 0 {
        return Err(INVALID);
    }
    let connection = call.find(command.id)?;
    Ok(call.state.manager.connect(connection, &conn_param(&command.conn_param, command.ece))?)
}

/// As `ucma.c ucma_listen()`.
pub(super) fn listen(call: &Call) -> Result<(), Refused> {
    let command: abi::Listen = call.input()?;
    let backlog = if (1..MAX_BACKLOG).contains(&command.backlog) { command.backlog } else { MAX_BACKLOG };
    let connection = call.state.table().set_backlog(Id(command.id), call.channel, backlog)?;
    call.state.manager.listen(connection)?;
    tell_listener(call, connection);
    Ok(())
}

/// Tells where somebody can connect to from now on.
fn tell_listener(call: &Call, connection: CmId) {
    if log::is_on(Level::Info)
        && let Ok(Query { src: Some(Address::Ip(address)), .. }) = call.state.manager.query(connection)
    {
        log::tell(Level::Info, format_args!("rdma_cm: somebody listens at {address}"));
    }
}

/// As `ucma.c ucma_accept()`. Without parameters it completes the connection that this side has asked for.
///
/// What happens to the connection from now on is told under the name that the program gives it here, also what happens before the
/// call returns. A failure gives it none: of two threads that accept, the one that is late does not take the other's name away.
pub(super) fn accept(call: &Call) -> Result<(), Refused> {
    let command: abi::Accept = call.grown_input(offset_of!(abi::Accept, ece))?;
    let connection = call.find(command.id)?;
    if command.conn_param.valid == 0 {
        return Ok(call.state.manager.accept(connection, None)?);
    }
    let param = conn_param(&command.conn_param, command.ece);
    let name = || call.state.table().set_uid(Id(command.id), connection, command.uid);
    Ok(call.state.manager.accept_then(connection, Some(&param), name)?)
}

/// As `ucma.c ucma_reject()`.
pub(super) fn reject(call: &Call) -> Result<(), Refused> {
    let command: abi::Reject = call.input()?;
    let reason = match command.reason {
        0 | CONSUMER_DEFINED => RejectReason::ConsumerReject,
        VENDOR_OPTION => RejectReason::VendorOptionNotSupported,
        _ => return Err(INVALID),
    };
    let connection = call.find(command.id)?;
    let data = &command.private_data[..command.private_data_len.into()];
    Ok(call.state.manager.reject(connection, reason, data)?)
}

/// As `ucma.c ucma_disconnect()`.
pub(super) fn disconnect(call: &Call) -> Result<(), Refused> {
    let command: abi::Disconnect = call.input()?;
    let connection = call.find(command.id)?;
    Ok(call.state.manager.disconnect(connection)?)
}

/// As `ucma.c ucma_notify()`: that data have come before the connection was complete.
pub(super) fn notify(call: &Call) -> Result<(), Refused> {
    let command: abi::Notify = call.input()?;
    let connection = call.find(command.id)?;
    if command.event != COMM_EST {
        return Err(INVALID);
    }
    Ok(call.state.manager.notify_established(connection)?)
}

/// What a program says to the peer. A key is only for InfiniBand addresses, which no device of ours has.
fn conn_param(param: &abi::ConnParam, ece: abi::Ece) -> ConnParam {
    ConnParam {
        qpn: Qpn::new(param.qp_num),
        qkey: QKey::new(0),
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control != 0,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        srq: param.srq != 0,
        private_data: param.private_data[..param.private_data_len.into()].to_vec(),
        ece: Ece { vendor_id: ece.vendor_id, attr_mod: ece.attr_mod },
    }
}

/// What the kernel's `net.rdma_ucm.max_backlog` is, unless somebody changes it.
const MAX_BACKLOG: u32 = 1024;
/// Reasons of the standard that a program may give.
const CONSUMER_DEFINED: u8 = 28;
const VENDOR_OPTION: u8 = 35;
/// `IB_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;
