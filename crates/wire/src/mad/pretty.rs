//! MADs in words: one line, or every field.

use std::fmt;

use super::cm::{IpHeader, Message, Req, SidrReq};
use super::{BadMad, ClassPortInfo, Header};

/// The payload of a packet to queue pair 1, to be printed: in one line, or with every field by [`Words::fields`].
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// Of these bytes, which may be no MAD at all.
    pub const fn new(mad: &'a [u8]) -> Self {
        Self(mad)
    }

    /// Every field, some to a line, each line but the first indented by twelve spaces.
    pub const fn fields(&self) -> Fields<'a> {
        Fields(self.0)
    }
}

/// One line: `CM REQ comm 0xa66a2a14 service tcp 7174 qpn 0x000018 …`.
impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = match Header::parse(self.0) {
            Ok(header) => header,
            Err(BadMad::Length(len)) => return write!(f, "no MAD: {len} bytes"),
            Err(error) => return write!(f, "bad MAD: {error}"),
        };
        if header.class == super::cm::CLASS && header.method == Header::METHOD_SEND {
            return match Message::parse(self.0) {
                Ok((_, message)) => write!(f, "CM {message}"),
                Err(error) => write!(f, "bad CM message: {error}"),
            };
        }
        let (class, method, status) = (header.class, header.method, header.status);
        match header.attribute_id {
            ClassPortInfo::ATTRIBUTE => f.write_str("ClassPortInfo")?,
            attribute => write!(f, "MAD attribute {attribute:#06x}")?,
        }
        write!(f, " class {class:#04x} method {method:#04x} status {status:#06x}")
    }
}

/// `REQ comm 0xa66a2a14 service tcp 7174 qpn 0x000018 psn 0xa0e711 …`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Req(req) => show_req(f, req),
            Self::Mra(mra) => {
                ids(f, mra.local_comm_id, mra.remote_comm_id)?;
                write!(f, " of {} timeout {}", mra.message.as_str(), mra.service_timeout)
            }
            Self::Rej(rej) => {
                ids(f, rej.local_comm_id, rej.remote_comm_id)?;
                write!(f, " of {} reason {}", rej.message.as_str(), rej.reason)
            }
            Self::Rep(rep) => {
                ids(f, rep.local_comm_id, rep.remote_comm_id)?;
                write!(f, " qpn {} psn {}", rep.local_qpn, rep.starting_psn)?;
                write!(f, " depth {} resources {}", rep.initiator_depth, rep.responder_resources)
            }
            Self::Rtu(rtu) => ids(f, rtu.local_comm_id, rtu.remote_comm_id),
            Self::Dreq(dreq) => {
                ids(f, dreq.local_comm_id, dreq.remote_comm_id)?;
                write!(f, " remote qpn {}", dreq.remote_qpn)
            }
            Self::Drep(drep) => ids(f, drep.local_comm_id, drep.remote_comm_id),
            Self::SidrReq(req) => show_sidr_req(f, req),
            Self::SidrRep(rep) => {
                write!(f, " request {:#010x} service {}", rep.request_id, Service(rep.service_id))?;
                write!(f, " status {} qpn {} qkey {}", rep.status, rep.qpn, rep.qkey)
            }
            Self::Lap(lap) => {
                ids(f, lap.local_comm_id, lap.remote_comm_id)?;
                write!(f, " {} → {}", lap.local_gid.ip(), lap.remote_gid.ip())
            }
            Self::Apr(apr) => {
                ids(f, apr.local_comm_id, apr.remote_comm_id)?;
                write!(f, " status {}", apr.status)
            }
        }
    }
}

fn show_req(f: &mut fmt::Formatter<'_>, req: &Req) -> fmt::Result {
    write!(f, " comm {:#010x} service {}", req.local_comm_id, Service(req.service_id))?;
    write!(f, " {} qpn {}", req.transport_service_type.as_str(), req.local_qpn)?;
    write!(f, " psn {} mtu {}", req.starting_psn, 128u32 << (req.path_mtu & 0xf))?;
    write!(f, " depth {} resources {}", req.initiator_depth, req.responder_resources)?;
    addresses(f, req.service_id, req.private_data.bytes())
}

fn show_sidr_req(f: &mut fmt::Formatter<'_>, req: &SidrReq) -> fmt::Result {
    write!(f, " request {:#010x} service {}", req.request_id, Service(req.service_id))?;
    addresses(f, req.service_id, req.private_data.bytes())
}

fn ids(f: &mut fmt::Formatter<'_>, local: u32, remote: u32) -> fmt::Result {
    write!(f, " comm {local:#010x} to {remote:#010x}")
}

/// Who asks by IP address: ` from 10.99.0.2 port 34035 to 10.99.0.1`.
fn addresses(f: &mut fmt::Formatter<'_>, service_id: u64, private_data: &[u8]) -> fmt::Result {
    match IpHeader::parse(private_data) {
        Ok(ip) if is_ip_service(service_id) => {
            write!(f, " from {} port {} to {}", ip.source, ip.source_port, ip.destination)
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A service id: a port space and a port where it is one of those by IP address.
struct Service(u64);

/// Whether a service id is one of those by IP address. As `ib_cm.h IB_CMA_SERVICE_ID_MASK`.
const fn is_ip_service(service_id: u64) -> bool {
    service_id >> 24 == 1
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0 & 0xffff;
        match self.0 >> 16 {
            0x0106 => write!(f, "tcp {port}"),
            0x0111 => write!(f, "udp {port}"),
            0x013f => write!(f, "ib {port}"),
            _ => write!(f, "{:#018x}", self.0),
        }
    }
}

/// Every field of a MAD. Ends without a line break.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(header) = Header::parse(self.0) else {
            return write!(f, "MAD         {}", Words(self.0));
        };
        write!(f, "MAD         class {:#04x}, version {}", header.class, header.class_version)?;
        write!(f, ", method {:#04x}, status {:#06x}", header.method, header.status)?;
        write!(f, ", attribute {:#06x} {:#x}", header.attribute_id, header.attribute_modifier)?;
        write!(f, ", transaction {:#018x}", header.transaction_id)?;
        if let Ok((_, message)) = Message::parse(self.0) {
            let mut lines = Wrapped::new(message.name());
            message.show_fields(&mut |name, value| lines.push(name, value));
            f.write_str(&lines.text)?;
        }
        Ok(())
    }
}

/// `name value` pairs in lines of some 100 columns.
struct Wrapped {
    text: String,
    column: usize,
}

impl Wrapped {
    fn new(title: &str) -> Self {
        Self { text: format!("\n{title:<12}"), column: INDENT }
    }

    fn push(&mut self, name: &str, value: &dyn fmt::Display) {
        let item = format!("{name} {value}");
        if self.column > INDENT {
            let is_full = self.column + item.len() + 2 > WIDTH;
            self.text += if is_full { "\n            " } else { ", " };
            self.column = if is_full { INDENT } else { self.column + 2 };
        }
        self.column += item.len();
        self.text += &item;
    }
}

const INDENT: usize = 12;
const WIDTH: usize = 100;
