//! Commands: what a `write` to an event channel asks for.
//!
//! Numbers, sizes and answers are those of `ucma.c ucma_write()` and the functions that it calls. A command of more bytes than
//! it needs is taken, of fewer too, if the memory behind them is there: the kernel looks at what a command has by itself.

use std::ffi::c_int;
use std::sync::Arc;

use userdma_host::cm::{self, CmId, PortSpace};
use userdma_verbs::QpType;

use super::abi::{self, Header, Plain, command};
use super::known::{self, Key};
use super::state::{Sink, State};
use super::table::Id;
use super::{connect, memory, multicast, option, query, resolve};
use crate::answer::{INVALID, Refused};

/// A command, and who gives it.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) state: &'static State,
    /// The descriptor that was written to, and the channel behind it.
    pub(super) fd: c_int,
    pub(super) channel: Key,
    /// Where the command lies in the program's memory, behind its header.
    input: u64,
    input_len: usize,
    /// How much room the program says it has for the answer.
    pub(super) output_len: usize,
}

/// What a command does.
type Handler = fn(&Call) -> Result<(), Refused>;

/// The command in `len` bytes at `address`, and what does it; `None` for the one that may wait.
pub(super) fn parse(
    state: &'static State,
    (fd, channel): (c_int, Key),
    (address, len): (u64, usize),
) -> Result<(Call, Option<Handler>), Refused> {
    if len < size_of::<Header>() {
        return Err(INVALID);
    }
    let header: Header = memory::read(address)?;
    let handler = handler(header.command)?;
    if usize::from(header.input) + size_of::<Header>() > len {
        return Err(INVALID);
    }
    let call = Call {
        state,
        fd,
        channel,
        input: address.wrapping_add(size_of::<Header>() as u64),
        input_len: header.input.into(),
        output_len: header.output.into(),
    };
    if header.command == command::GET_EVENT {
        return Ok((call, None));
    }
    handler.map(|handler| (call, Some(handler))).ok_or(NO_COMMAND)
}

/// What does a command; `None` if there was never one with this number, and `INVALID` from the first that newer kernels have.
fn handler(number: u32) -> Result<Option<Handler>, Refused> {
    Ok(Some(match number {
        command::CREATE_ID => create_id,
        command::DESTROY_ID => destroy_id,
        command::BIND_IP => resolve::bind_ip,
        command::RESOLVE_IP => resolve::resolve_ip,
        command::RESOLVE_ROUTE => resolve::resolve_route,
        command::QUERY_ROUTE => query::query_route,
        command::CONNECT => connect::connect,
        command::LISTEN => connect::listen,
        command::ACCEPT => connect::accept,
        command::REJECT => connect::reject,
        command::DISCONNECT => connect::disconnect,
        command::INIT_QP_ATTR => query::init_qp_attr,
        command::SET_OPTION => option::set_option,
        command::NOTIFY => connect::notify,
        command::JOIN_IP_MCAST => multicast::join_ip,
        command::LEAVE_MCAST => multicast::leave,
        command::MIGRATE_ID => migrate_id,
        command::QUERY => query::query,
        command::BIND => resolve::bind,
        command::RESOLVE_ADDR => resolve::resolve_addr,
        command::JOIN_MCAST => multicast::join_any,
        command::GET_EVENT | command::GET_OPTION => return Ok(None),
        _ => return Err(INVALID),
    }))
}

impl Call {
    /// The command.
    pub(super) fn input<T: Plain>(&self) -> Result<T, Refused> {
        memory::read(self.input)
    }

    /// A command that has grown: at least `least` bytes of it, and zeros for what the program does not know.
    pub(super) fn grown_input<T: Plain>(&self, least: usize) -> Result<T, Refused> {
        if self.input_len < least {
            return Err(INVALID);
        }
        memory::read_start(self.input, self.input_len)
    }

    /// Whether there is room for so much of an answer.
    pub(super) fn check_room(&self, least: usize) -> Result<(), Refused> {
        if self.output_len < least { Err(Refused(libc::ENOSPC)) } else { Ok(()) }
    }

    /// The connection of an identifier on this channel.
    pub(super) fn find(&self, id: u32) -> Result<CmId, Refused> {
        self.state.table().find(Id(id), self.channel)
    }
}

/// As `ucma.c ucma_create_id()`.
fn create_id(call: &Call) -> Result<(), Refused> {
    call.check_room(size_of::<abi::CreateIdResponse>())?;
    let command: abi::CreateId = call.input()?;
    let space = PortSpace::new(command.ps).ok_or(INVALID)?;
    let qp_type = space.qp_type().or_else(|| qp_type(command.qp_type)).ok_or(INVALID)?;
    let manager = &call.state.manager;
    let connection = manager.create(Arc::new(Sink(call.state)), space, qp_type)?;
    let added = call.state.table().add(connection, call.channel, command.uid);
    let id = added.inspect_err(|_| {
        // It is there: nobody else knows it.
        let _ = manager.destroy(connection);
    })?;
    let response = abi::CreateIdResponse { id: id.0 };
    memory::write(command.response, &response).inspect_err(|_| {
        if call.state.table().end(id, call.channel).is_ok() {
            call.state.destroy(id, connection, Some(call.fd));
        }
    })
}

/// Values of `enum ib_qp_type`.
fn qp_type(number: u8) -> Option<QpType> {
    let all = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::XrcRecv];
    all.into_iter().find(|&known| known as u32 == number.into())
}

/// As `ucma.c ucma_destroy_id()`.
fn destroy_id(call: &Call) -> Result<(), Refused> {
    call.check_room(size_of::<abi::DestroyIdResponse>())?;
    let command: abi::DestroyId = call.input()?;
    let id = Id(command.id);
    let connection = call.state.table().end(id, call.channel)?;
    let events_reported = call.state.destroy(id, connection, Some(call.fd));
    memory::write(command.response, &abi::DestroyIdResponse { events_reported })
}

/// As `ucma.c ucma_migrate_id()`.
fn migrate_id(call: &Call) -> Result<(), Refused> {
    let command: abi::MigrateId = call.input()?;
    let fd = command.fd.cast_signed();
    let from = known::of_descriptor(fd).ok_or_else(|| {
        // SAFETY: asks.
        Refused(if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 { libc::ENOENT } else { libc::EINVAL })
    })?;
    let events_reported = call.state.table().migrate(Id(command.id), (fd, from), call.channel)?;
    memory::write(command.response, &abi::MigrateResponse { events_reported })
}

/// There is no such command, though there is a number for it.
const NO_COMMAND: Refused = Refused(libc::ENOSYS);

impl From<cm::CmError> for Refused {
    fn from(error: cm::CmError) -> Self {
        Self(error.errno()).because(|| error.to_string())
    }
}
