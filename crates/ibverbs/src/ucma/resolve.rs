//! Commands about addresses and routes.

use super::command::Call;
use super::{abi, address};
use crate::answer::{INVALID, Refused};

/// As `ucma.c ucma_bind_ip()`.
pub(super) fn bind_ip(call: &Call) -> Result<(), Refused> {
    let command: abi::BindIp = call.input()?;
    let address = address::parse_in6(&command.addr).ok_or(INVALID)?;
    let connection = call.find(command.id)?;
    Ok(call.state.manager.bind(connection, address)?)
}

/// As `ucma.c ucma_bind()`.
pub(super) fn bind(call: &Call) -> Result<(), Refused> {
    let command: abi::Bind = call.input()?;
    let address = address::parse_sized(&command.addr, command.addr_size).ok_or(INVALID)?;
    if command.reserved != 0 {
        return Err(INVALID);
    }
    let connection = call.find(command.id)?;
    Ok(call.state.manager.bind(connection, address)?)
}

/// As `ucma.c ucma_resolve_ip()`.
pub(super) fn resolve_ip(call: &Call) -> Result<(), Refused> {
    let command: abi::ResolveIp = call.input()?;
    let source = if address::is_none(&command.src_addr) {
        None
    } else {
        Some(address::parse_in6(&command.src_addr).ok_or(INVALID)?)
    };
    let target = address::parse_in6(&command.dst_addr).ok_or(INVALID)?;
    let connection = call.find(command.id)?;
    Ok(call.state.manager.resolve_addr(connection, source, target)?)
}

/// As `ucma.c ucma_resolve_addr()`.
pub(super) fn resolve_addr(call: &Call) -> Result<(), Refused> {
    let command: abi::ResolveAddr = call.input()?;
    let source = if command.src_size == 0 {
        None
    } else {
        Some(address::parse_sized(&command.src_addr, command.src_size).ok_or(INVALID)?)
    };
    let target = address::parse_sized(&command.dst_addr, command.dst_size).ok_or(INVALID)?;
    if command.reserved != 0 {
        return Err(INVALID);
    }
    let connection = call.find(command.id)?;
    Ok(call.state.manager.resolve_addr(connection, source, target)?)
}

/// As `ucma.c ucma_resolve_route()`.
pub(super) fn resolve_route(call: &Call) -> Result<(), Refused> {
    let command: abi::ResolveRoute = call.input()?;
    let connection = call.find(command.id)?;
    Ok(call.state.manager.resolve_route(connection)?)
}
