//! Who has a UDP port, as this program tells it.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use userdma_agent::Program;

/// A socket that is bound to the port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder(userdma_agent::Holder);

/// The sockets that are bound to UDP port `port` on this machine, as far as they can be seen.
pub fn holders(port: u16) -> Vec<Holder> {
    userdma_agent::holders(port).into_iter().map(Holder).collect()
}

impl Holder {
    /// Whether it keeps everybody from every address.
    pub(super) fn is_in_the_way(&self) -> bool {
        self.0.address.is_unspecified()
    }

    /// The command that frees the port.
    pub(super) fn way_out(&self) -> Option<String> {
        match &self.0.program {
            Program::Kernel if self.is_in_the_way() => Some("sudo modprobe -r rdma_rxe".to_owned()),
            Program::Kernel | Program::Process { .. } | Program::Unknown => None,
        }
    }

    #[cfg(test)]
    pub(super) fn example(address: &str) -> Self {
        let address = address.parse().unwrap();
        Self(userdma_agent::Holder { address, uid: 0, program: Program::Unknown })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// As the program writes it.
#[derive(Serialize)]
struct Written<'a> {
    address: IpAddr,
    uid: u32,
    program: WrittenProgram<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum WrittenProgram<'a> {
    Process { pid: u32, name: &'a str },
    Kernel,
    Unknown,
}

impl Serialize for Holder {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let program = match &self.0.program {
            Program::Process { pid, name } => WrittenProgram::Process { pid: *pid, name },
            Program::Kernel => WrittenProgram::Kernel,
            Program::Unknown => WrittenProgram::Unknown,
        };
        Written { address: self.0.address, uid: self.0.uid, program }.serialize(serializer)
    }
}
