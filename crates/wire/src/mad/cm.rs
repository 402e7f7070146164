//! The messages of communication management (CM).
//!
//! What connects two queue pairs: REQ, REP and RTU, and DREQ and DREP when it ends; REJ says no, MRA asks for patience,
//! LAP and APR speak of alternate paths. SIDR_REQ asks which queue pair serves datagrams, SIDR_REP tells. Each has
//! one format of 232 bytes, of which the last part is private data. Layouts are those of the kernel's headers.
//!
//! A field that is too wide for its place is cut when it is written. What is parsed is what the fields can hold:
//! whether a value makes sense in a connection (a path MTU, a service type) is the connection manager's
//! question, since most of it has an answer that says so.

mod code;
mod ip_header;
mod messages;
mod path;

pub use code::{AprStatus, RejectReason, RejectedMessage, SidrStatus, TransportService};
pub use ip_header::IpHeader;
pub use messages::{Apr, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
pub use path::Path;

use super::{BadMad, Header, MAD_LEN, expect};

/// The management class of communication management.
pub const CLASS: u8 = 0x07;

/// The version of the class.
pub const CLASS_VERSION: u8 = 2;

/// A message of communication management.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Message {
    /// Asks for a connection.
    Req(Req),
    /// Asks the sender of a message to wait longer for the answer.
    Mra(Mra),
    /// Refuses, or gives up.
    Rej(Rej),
    /// Accepts a connection.
    Rep(Rep),
    /// The last of three messages that make a connection.
    Rtu(Rtu),
    /// Ends a connection.
    Dreq(Dreq),
    /// Answers a DREQ.
    Drep(Drep),
    /// Asks which queue pair serves datagrams.
    SidrReq(SidrReq),
    /// Tells it.
    SidrRep(SidrRep),
    /// Proposes an alternate path.
    Lap(Lap),
    /// Answers a LAP.
    Apr(Apr),
}

/// Does `$body` with the message, whichever it is.
macro_rules! each {
    ($message:expr, $inner:ident => $body:expr) => {
        match $message {
            Message::Req($inner) => $body,
            Message::Mra($inner) => $body,
            Message::Rej($inner) => $body,
            Message::Rep($inner) => $body,
            Message::Rtu($inner) => $body,
            Message::Dreq($inner) => $body,
            Message::Drep($inner) => $body,
            Message::SidrReq($inner) => $body,
            Message::SidrRep($inner) => $body,
            Message::Lap($inner) => $body,
            Message::Apr($inner) => $body,
        }
    };
}

impl Message {
    /// Reads a MAD: its transaction id, and the message.
    ///
    /// # Errors
    /// Not 256 bytes, another class, class version, method or attribute, or a field whose value means nothing.
    pub fn parse(mad: &[u8]) -> Result<(u64, Self), BadMad> {
        let header = check_header(mad)?;
        let message = match header.attribute_id {
            Req::ATTRIBUTE => Self::Req(Req::parse(mad)?),
            Mra::ATTRIBUTE => Self::Mra(Mra::parse(mad)?),
            Rej::ATTRIBUTE => Self::Rej(Rej::parse(mad)?),
            Rep::ATTRIBUTE => Self::Rep(Rep::parse(mad)?),
            Rtu::ATTRIBUTE => Self::Rtu(Rtu::parse(mad)?),
            Dreq::ATTRIBUTE => Self::Dreq(Dreq::parse(mad)?),
            Drep::ATTRIBUTE => Self::Drep(Drep::parse(mad)?),
            SidrReq::ATTRIBUTE => Self::SidrReq(SidrReq::parse(mad)?),
            SidrRep::ATTRIBUTE => Self::SidrRep(SidrRep::parse(mad)?),
            Lap::ATTRIBUTE => Self::Lap(Lap::parse(mad)?),
            Apr::ATTRIBUTE => Self::Apr(Apr::parse(mad)?),
            other => return Err(BadMad::Field { field: "attribute_id", value: other.into() }),
        };
        Ok((header.transaction_id, message))
    }

    /// The MAD.
    pub fn build(&self, transaction_id: u64) -> [u8; MAD_LEN] {
        each!(self, message => message.build(transaction_id))
    }

    /// The standard's name: `REQ`, `SIDR_REP`.
    pub const fn name(&self) -> &'static str {
        each!(self, message => message.name())
    }

    /// Every field by its name, as people read it.
    pub(super) fn show_fields(&self, each: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
        each!(self, message => message.show_fields(each));
    }
}

macro_rules! from_message {
    ($($name:ident),*) => { $(
        impl From<$name> for Message {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        }
    )* };
}

from_message!(Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr);

/// The header of a message of communication management.
fn check_header(mad: &[u8]) -> Result<Header, BadMad> {
    let header = Header::parse(mad)?;
    expect("class", header.class.into(), CLASS.into())?;
    expect("class_version", header.class_version.into(), CLASS_VERSION.into())?;
    expect("method", header.method.into(), Header::METHOD_SEND.into())?;
    Ok(header)
}

/// The header of a message with this attribute and transaction id.
const fn header(attribute_id: u16, transaction_id: u64) -> Header {
    Header {
        base_version: Header::BASE_VERSION,
        class: CLASS,
        class_version: CLASS_VERSION,
        method: Header::METHOD_SEND,
        status: 0,
        class_specific: 0,
        transaction_id,
        attribute_id,
        attribute_modifier: 0,
    }
}
