//! Commands that ask.

use std::mem::offset_of;

use userdma_host::cm;
use userdma_verbs::QpState;

use super::command::Call;
use super::reply::Device;
use super::{abi, memory, reply};
use crate::answer::{INVALID, Refused};
use crate::devices;

/// As `ucma.c ucma_query_route()`. Programs from before devices had numbers have less room.
pub(super) fn query_route(call: &Call) -> Result<(), Refused> {
    call.check_room(offset_of!(abi::QueryRouteResponse, ibdev_index))?;
    let command: abi::Query = call.input()?;
    let found = find(call, command.id)?;
    memory::write_start(command.response, &reply::query_route(&found, device(&found)), call.output_len)
}

/// As `ucma.c ucma_query()`.
pub(super) fn query(call: &Call) -> Result<(), Refused> {
    let command: abi::Query = call.input()?;
    let found = find(call, command.id)?;
    let addresses = offset_of!(abi::QueryAddrResponse, ibdev_index);
    match command.option {
        abi::query::ADDR => {
            call.check_room(addresses)?;
            memory::write_start(command.response, &reply::query_addr(&found, device(&found)), call.output_len)
        }
        abi::query::PATH => query_path(call, command.response, &found),
        abi::query::GID => {
            call.check_room(addresses)?;
            memory::write_start(command.response, &reply::query_gid(&found, device(&found)), call.output_len)
        }
        _ => Err(Refused(libc::ENOSYS)),
    }
}

/// As `ucma.c ucma_query_path()`, which wants a byte more than the record has.
fn query_path(call: &Call, response: u64, found: &cm::Query) -> Result<(), Refused> {
    let size = size_of::<abi::QueryPathResponse>();
    call.check_room(size)?;
    let (head, record) = reply::query_path(found);
    memory::write(response, &head)?;
    match record {
        Some(record) if call.output_len - size > size_of::<abi::PathRecData>() => {
            memory::write(response.wrapping_add(size as u64), &record)
        }
        _ => Ok(()),
    }
}

/// As `ucma.c ucma_init_qp_attr()`.
pub(super) fn init_qp_attr(call: &Call) -> Result<(), Refused> {
    call.check_room(size_of::<abi::QpAttr>())?;
    let command: abi::InitQpAttr = call.input()?;
    let state = STATES.into_iter().find(|&state| state as u32 == command.qp_state).ok_or(INVALID)?;
    let connection = call.find(command.id)?;
    let (attr, mask) = call.state.manager.init_qp_attr(connection, state)?;
    memory::write(command.response, &reply::qp_attr(&attr, mask))
}

fn find(call: &Call, id: u32) -> Result<cm::Query, Refused> {
    let connection = call.find(id)?;
    Ok(call.state.manager.query(connection)?)
}

/// The device by which the program finds its own in the list.
fn device(query: &cm::Query) -> Option<Device> {
    let index = query.device?;
    let guid = devices::guid_at(index)?;
    Some(Device { index: u32::try_from(index).ok()?, guid })
}

const STATES: [QpState; 7] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];
