//! Options.

use userdma_host::cm::CmOption;

use super::command::Call;
use super::{abi, memory};
use crate::answer::{INVALID, Refused};

/// As `ucma.c ucma_set_option()`.
pub(super) fn set_option(call: &Call) -> Result<(), Refused> {
    let command: abi::SetOption = call.input()?;
    if command.optlen > MAX_OPTION {
        return Err(INVALID);
    }
    let connection = call.find(command.id)?;
    let mut value = vec![0; command.optlen as usize];
    memory::read_bytes(command.optval, &mut value)?;
    let option = match (command.level, command.optname) {
        (LEVEL_ID, TOS) => CmOption::Tos(byte(&value)?),
        (LEVEL_ID, REUSEADDR) => CmOption::ReuseAddr(flag(&value)?),
        (LEVEL_ID, AFONLY) => CmOption::AfOnly(flag(&value)?),
        (LEVEL_ID, ACK_TIMEOUT) => CmOption::AckTimeout(byte(&value)?),
        // Paths of a subnet administrator (level 1) are for InfiniBand.
        _ => return Err(UNKNOWN),
    };
    Ok(call.state.manager.set_option(connection, option)?)
}

fn byte(value: &[u8]) -> Result<u8, Refused> {
    let &[byte] = value else { return Err(INVALID) };
    Ok(byte)
}

fn flag(value: &[u8]) -> Result<bool, Refused> {
    let value: [u8; 4] = value.try_into().map_err(|_| INVALID)?;
    Ok(i32::from_ne_bytes(value) != 0)
}

/// There is no such option.
const UNKNOWN: Refused = Refused(libc::ENOSYS);
/// More than any option has; the kernel takes what it can allocate.
const MAX_OPTION: u32 = 1 << 22;

// Levels and names of `<rdma/rdma_user_cm.h>`.
const LEVEL_ID: u32 = 0;
const TOS: u32 = 0;
const REUSEADDR: u32 = 1;
const AFONLY: u32 = 2;
const ACK_TIMEOUT: u32 = 3;
