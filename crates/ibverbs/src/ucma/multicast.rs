//! Groups: a join is a membership of its own, with a number and events, until it is left or its identifier goes.

use userdma_host::cm::Address;

use super::command::Call;
use super::table::{Id, Membership};
use super::{abi, address, memory};
use crate::answer::{INVALID, Refused};

/// As `ucma.c ucma_join_ip_multicast()`.
pub(super) fn join_ip(call: &Call) -> Result<(), Refused> {
    let command: abi::JoinIpMcast = call.input()?;
    let group = address::parse_in6(&command.addr).ok_or(INVALID)?;
    join(call, &Join { id: command.id, uid: command.uid, response: command.response, flags: 0 }, group)
}

/// As `ucma.c ucma_join_multicast()`.
pub(super) fn join_any(call: &Call) -> Result<(), Refused> {
    let command: abi::JoinMcast = call.input()?;
    call.check_room(size_of::<abi::CreateIdResponse>())?;
    let group = address::parse_sized(&command.addr, command.addr_size).ok_or(INVALID)?;
    let abi::JoinMcast { id, uid, response, join_flags, .. } = command;
    join(call, &Join { id, uid, response, flags: join_flags }, group)
}

/// What both commands say.
struct Join {
    id: u32,
    uid: u64,
    response: u64,
    flags: u16,
}

/// As `ucma.c ucma_process_join()`. Whether as a whole member or only to send makes no difference: members that receive attach a
/// queue pair.
fn join(call: &Call, join: &Join, group: Address) -> Result<(), Refused> {
    call.check_room(size_of::<abi::CreateIdResponse>())?;
    if !matches!(join.flags, MEMBER | SEND_ONLY) {
        return Err(INVALID);
    }
    let connection = call.find(join.id)?;
    // Its event may come before the call returns.
    let membership = call.state.table().add_membership(Id(join.id), call.channel, join.uid)?;
    let Membership(number) = membership;
    let joined = call.state.manager.join_multicast(connection, group, number);
    let told = joined
        .map_err(Refused::from)
        .and_then(|()| memory::write(join.response, &abi::CreateIdResponse { id: number }));
    told.inspect_err(|_| {
        let _ = call.state.table().leave(membership, (call.fd, call.channel));
    })
}

/// As `ucma.c ucma_leave_multicast()`.
pub(super) fn leave(call: &Call) -> Result<(), Refused> {
    call.check_room(size_of::<abi::DestroyIdResponse>())?;
    let command: abi::DestroyId = call.input()?;
    let events_reported = call.state.table().leave(Membership(command.id), (call.fd, call.channel))?;
    memory::write(command.response, &abi::DestroyIdResponse { events_reported })
}

/// `RDMA_MC_JOIN_FLAG_FULLMEMBER`.
const MEMBER: u16 = 0;
/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`.
const SEND_ONLY: u16 = 1;
