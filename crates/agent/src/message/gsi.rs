//! What devices and the agent say to each other of queue pair 1. Numbers are big-endian.

use std::net::IpAddr;

use userdma_wire::mad::MAD_LEN;

use super::{ip, number, octets, optional_ip, optional_octets};
use crate::gsi::{PortError, PortRequest, PortSpace, Will};
use crate::registry::Services;

/// From a device to the agent, after it has its slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum GsiRequest {
    /// With one end of a socket pair, by which what comes for the device is passed on.
    Attach,
    /// Wants to know that everything that was said before has been heard.
    Sync { seq: u32 },
    /// Wants a port, under a number of the device's choice.
    Reserve { seq: u32, id: u32, port: PortRequest },
    /// Has it since before this agent.
    Restore { id: u32, listens: bool, port: PortRequest },
    /// Wants to listen on a port that it may share with others.
    BeginListening { seq: u32, id: u32 },
    /// Needs a port no longer.
    Release { id: u32 },
    /// Wants what comes for these services, on one address or all.
    Listen { seq: u32, service: Services, on: Option<IpAddr> },
    /// Has done so since before this agent.
    Relisten { service: Services, on: Option<IpAddr> },
    /// No longer.
    Unlisten { service: Services, on: Option<IpAddr> },
    /// What is to be sent if the device ends without having taken this back.
    SetWill { comm_id: u32, will: Will },
    /// Takes it back.
    ClearWill { comm_id: u32 },
    /// The connection has ended, and the peer has been told once: this is to be sent until it knows, whatever becomes of the
    /// device.
    OpenWill { comm_id: u32, will: Will },
    /// Listens no longer on a port that it may share with others, and keeps it.
    EndListening { id: u32 },
    /// What the agent before has had this device keep.
    Bequest(Bequest),
}

/// A will of a device in the agent's process, which another process keeps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Bequest {
    pub(crate) udp_port: u16,
    pub(crate) slot: u16,
    pub(crate) comm_id: u32,
    pub(crate) will: Will,
    /// From the agent: it is no longer to be kept.
    pub(crate) is_void: bool,
}

/// The agent's answer to a request with this number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct GsiReply {
    pub(crate) seq: u32,
    /// The port, if it was about one.
    pub(crate) result: Result<u16, PortError>,
}

impl GsiRequest {
    /// Appends it to `bytes`.
    pub(super) fn encode(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Attach => bytes.push(ATTACH),
            Self::Sync { seq } => put(&mut bytes, SYNC, &[*seq]),
            Self::Reserve { seq, id, port } => {
                put(&mut bytes, RESERVE, &[*seq, *id]);
                put_port(&mut bytes, port);
            }
            Self::Restore { id, listens, port } => {
                put(&mut bytes, RESTORE, &[*id]);
                bytes.push(u8::from(*listens));
                put_port(&mut bytes, port);
            }
            Self::BeginListening { seq, id } => put(&mut bytes, BEGIN_LISTENING, &[*seq, *id]),
            Self::Release { id } => put(&mut bytes, RELEASE, &[*id]),
            Self::Listen { seq, service, on } => {
                put(&mut bytes, LISTEN, &[*seq]);
                put_service(&mut bytes, *service, *on);
            }
            Self::Relisten { service, on } => {
                bytes.push(RELISTEN);
                put_service(&mut bytes, *service, *on);
            }
            Self::Unlisten { service, on } => {
                bytes.push(UNLISTEN);
                put_service(&mut bytes, *service, *on);
            }
            Self::SetWill { comm_id, will } => {
                put(&mut bytes, SET_WILL, &[*comm_id]);
                put_will(&mut bytes, will);
            }
            Self::ClearWill { comm_id } => put(&mut bytes, CLEAR_WILL, &[*comm_id]),
            Self::OpenWill { comm_id, will } => {
                put(&mut bytes, OPEN_WILL, &[*comm_id]);
                put_will(&mut bytes, will);
            }
            Self::EndListening { id } => put(&mut bytes, END_LISTENING, &[*id]),
            Self::Bequest(bequest) => {
                bytes.push(BEQUEST);
                return bequest.encode(bytes);
            }
        }
        bytes
    }

    /// The request that was written; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        Some(match kind {
            ATTACH => Self::Attach,
            SYNC => Self::Sync { seq: word(rest)?.0 },
            RESERVE => {
                let (seq, rest) = word(rest)?;
                let (id, rest) = word(rest)?;
                Self::Reserve { seq, id, port: port(rest)? }
            }
            RESTORE => {
                let (id, rest) = word(rest)?;
                let (&listens, rest) = rest.split_first()?;
                Self::Restore { id, listens: listens != 0, port: port(rest)? }
            }
            BEGIN_LISTENING => {
                let (seq, rest) = word(rest)?;
                Self::BeginListening { seq, id: word(rest)?.0 }
            }
            RELEASE => Self::Release { id: word(rest)?.0 },
            LISTEN => {
                let (seq, rest) = word(rest)?;
                let (service, on) = service(rest)?;
                Self::Listen { seq, service, on }
            }
            RELISTEN => {
                let (service, on) = service(rest)?;
                Self::Relisten { service, on }
            }
            UNLISTEN => {
                let (service, on) = service(rest)?;
                Self::Unlisten { service, on }
            }
            SET_WILL => {
                let (comm_id, rest) = word(rest)?;
                Self::SetWill { comm_id, will: will(rest)? }
            }
            OPEN_WILL => {
                let (comm_id, rest) = word(rest)?;
                Self::OpenWill { comm_id, will: will(rest)? }
            }
            END_LISTENING => Self::EndListening { id: word(rest)?.0 },
            BEQUEST => Self::Bequest(Bequest::decode(rest)?),
            CLEAR_WILL => Self::ClearWill { comm_id: word(rest)?.0 },
            _ => return None,
        })
    }
}

impl GsiReply {
    pub(super) fn encode(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend(self.seq.to_be_bytes());
        let (code, port) = match self.result {
            Ok(port) => (FINE, port),
            Err(PortError::InUse) => (IN_USE, 0),
            Err(PortError::NotAvailable) => (NOT_AVAILABLE, 0),
            Err(PortError::TooMany) => (TOO_MANY, 0),
            Err(PortError::Unknown) => (UNKNOWN, 0),
            Err(PortError::Early) => (EARLY, 0),
        };
        bytes.push(code);
        bytes.extend(port.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (seq, rest) = word(bytes)?;
        let (&code, rest) = rest.split_first()?;
        let result = match code {
            FINE => Ok(number(rest)?.0),
            IN_USE => Err(PortError::InUse),
            NOT_AVAILABLE => Err(PortError::NotAvailable),
            TOO_MANY => Err(PortError::TooMany),
            UNKNOWN => Err(PortError::Unknown),
            EARLY => Err(PortError::Early),
            _ => return None,
        };
        Some(Self { seq, result })
    }
}

impl Bequest {
    pub(super) fn encode(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.push(u8::from(self.is_void));
        bytes.extend(self.udp_port.to_be_bytes());
        bytes.extend(self.slot.to_be_bytes());
        bytes.extend(self.comm_id.to_be_bytes());
        put_will(&mut bytes, &self.will);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&is_void, rest) = bytes.split_first()?;
        let (udp_port, rest) = number(rest)?;
        let (slot, rest) = number(rest)?;
        let (comm_id, rest) = word(rest)?;
        Some(Self { udp_port, slot, comm_id, will: will(rest)?, is_void: is_void != 0 })
    }
}

fn put_will(bytes: &mut Vec<u8>, will: &Will) {
    bytes.extend(octets(will.from));
    bytes.extend(octets(will.to));
    bytes.extend(will.mad);
}

fn will(bytes: &[u8]) -> Option<Will> {
    let (from, rest) = ip(bytes)?;
    let (to, rest) = ip(rest)?;
    Some(Will { from, to, mad: *rest.first_chunk::<MAD_LEN>()? })
}

fn put(bytes: &mut Vec<u8>, kind: u8, words: &[u32]) {
    bytes.push(kind);
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

fn put_port(bytes: &mut Vec<u8>, port: &PortRequest) {
    bytes.extend((port.space as u16).to_be_bytes());
    bytes.extend(port.port.to_be_bytes());
    bytes.extend([port.reuse_address, port.af_only].map(u8::from));
    bytes.extend(octets(port.address));
}

fn port(bytes: &[u8]) -> Option<PortRequest> {
    let (space, rest) = number(bytes)?;
    let (port, rest) = number(rest)?;
    let (&[reuse, af_only], rest) = rest.split_first_chunk::<2>()?;
    let (address, _) = ip(rest)?;
    let space = PortSpace::new(space)?;
    Some(PortRequest { space, port, address, reuse_address: reuse != 0, af_only: af_only != 0 })
}

fn put_service(bytes: &mut Vec<u8>, service: Services, on: Option<IpAddr>) {
    bytes.extend(service.id.to_be_bytes());
    bytes.extend(service.mask.to_be_bytes());
    bytes.extend(optional_octets(on));
}

fn service(bytes: &[u8]) -> Option<(Services, Option<IpAddr>)> {
    let (id, rest) = bytes.split_first_chunk::<8>()?;
    let (mask, rest) = rest.split_first_chunk::<8>()?;
    let (on, _) = optional_ip(rest)?;
    Some((Services { id: u64::from_be_bytes(*id), mask: u64::from_be_bytes(*mask) }, on))
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*word), rest))
}

const ATTACH: u8 = 1;
const RESERVE: u8 = 2;
const RESTORE: u8 = 3;
const BEGIN_LISTENING: u8 = 4;
const RELEASE: u8 = 5;
const LISTEN: u8 = 6;
const UNLISTEN: u8 = 7;
const SET_WILL: u8 = 8;
const CLEAR_WILL: u8 = 9;
const RELISTEN: u8 = 10;
const BEQUEST: u8 = 11;
const SYNC: u8 = 12;
const OPEN_WILL: u8 = 13;
const END_LISTENING: u8 = 14;
const FINE: u8 = 0;
const IN_USE: u8 = 1;
const NOT_AVAILABLE: u8 = 2;
const TOO_MANY: u8 = 3;
const UNKNOWN: u8 = 4;
const EARLY: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<GsiRequest> {
        let ports = ["10.1.2.3", "0.0.0.0", "::", "2001:db8::7"].map(|address| PortRequest {
            space: PortSpace::Tcp,
            port: 7,
            address: address.parse().unwrap(),
            reuse_address: address.starts_with('0'),
            af_only: address.starts_with(':'),
        });
        let service = Services { id: 0x0106_0007, mask: u64::MAX };
        let on = Some(ports[0].address);
        let will = Will { from: ports[0].address, to: ports[3].address, mad: [7; MAD_LEN] };
        let of_ports = ports.into_iter().flat_map(|port| {
            [
                GsiRequest::Reserve { seq: 1, id: 0x0102_0304, port },
                GsiRequest::Restore { id: u32::MAX, listens: true, port },
            ]
        });
        let others = [
            GsiRequest::Attach,
            GsiRequest::Sync { seq: 9 },
            GsiRequest::BeginListening { seq: u32::MAX, id: 2 },
            GsiRequest::Release { id: 3 },
            GsiRequest::Listen { seq: 4, service, on },
            GsiRequest::Listen { seq: 4, service, on: None },
            GsiRequest::Relisten { service, on },
            GsiRequest::Unlisten { service, on },
            GsiRequest::SetWill { comm_id: 0xffc0_0001, will },
            GsiRequest::ClearWill { comm_id: 1 },
            GsiRequest::OpenWill { comm_id: 0xffc0_0002, will },
            GsiRequest::EndListening { id: 5 },
            GsiRequest::Bequest(Bequest { udp_port: 4791, slot: 9, comm_id: 7, will, is_void: true }),
        ];
        of_ports.chain(others).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        for request in requests() {
            assert_eq!(GsiRequest::decode(&request.encode(Vec::new())), Some(request));
        }
        use PortError as E;
        let errors = [E::InUse, E::NotAvailable, E::TooMany, E::Unknown, E::Early].map(Err);
        for result in errors.into_iter().chain([Ok(60_999)]) {
            let reply = GsiReply { seq: 0x0908_0706, result };
            assert_eq!(GsiReply::decode(&reply.encode(Vec::new())), Some(reply));
        }
    }

    #[test]
    fn what_is_cut_or_foreign_is_nothing() {
        for request in requests() {
            let whole = request.encode(Vec::new());
            assert!(whole.len() < crate::message::MAX_LEN);
            for len in 0..whole.len() {
                assert_eq!(GsiRequest::decode(&whole[..len]), None, "{request:?}, {len} bytes");
            }
        }
        assert_eq!(GsiRequest::decode(&[99]), None);
        assert_eq!(GsiReply::decode(&[0, 0, 0, 1, 99, 0, 0]), None);
    }
}
