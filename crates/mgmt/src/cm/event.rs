//! What a connection's owner is told.

use std::net::IpAddr;

use userdma_wire::mad::cm::{Apr, Lap, Rej, Rep, Req, SidrRep, SidrReq};

use super::{ListenId, PortId};
use crate::rdma::Ece;

/// What happened to a connection. Messages are as they were on the wire: *local* is the peer.
///
/// The private data of RTU, DREQ, DREP and MRA is dropped, as whoever connects by IP address has no use for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Somebody wants to connect: the connection is new and belongs to whoever takes the event.
    Req {
        /// To which listener.
        listener: ListenId,
        /// At which port.
        port: PortId,
        /// Who.
        from: IpAddr,
        /// The port's address.
        to: IpAddr,
        /// What was asked for.
        req: Req,
        /// What the adapters could agree about.
        ece: Ece,
    },
    /// The peer accepts: RTU or REJ is to be sent.
    Rep {
        /// How.
        rep: Rep,
        /// What the adapters agree about.
        ece: Ece,
    },
    /// The peer is ready: the connection is established.
    Rtu,
    /// Data came before the RTU, and [`super::Cm::establish`] was called: the connection is established.
    Established,
    /// The peer refuses or has given up. The connection is idle, or in timewait if it was established already.
    Rej {
        /// Why.
        rej: Rej,
    },
    /// The peer asks for patience: it is waited for.
    Mra,
    /// The peer disconnects: a DREP is to be sent.
    Dreq,
    /// The peer has answered the DREQ: timewait has begun.
    Drep,
    /// No answer to the REQ: the connection is idle.
    ReqError,
    /// No answer to the REP: the connection is idle.
    RepError,
    /// No answer to the DREQ: timewait has begun.
    DreqError,
    /// Timewait is over: the queue pair's number may be used again, and the connection is idle.
    TimewaitExit,
    /// The peer proposes an alternate path: an APR is to be sent.
    Lap {
        /// Which.
        lap: Lap,
    },
    /// The answer to a LAP.
    Apr {
        /// Which.
        apr: Apr,
    },
    /// No answer to the LAP: the connection is established as before.
    LapError,
    /// Somebody asks which queue pair serves datagrams. The question belongs to whoever takes the event.
    SidrReq {
        /// To which listener.
        listener: ListenId,
        /// At which port.
        port: PortId,
        /// Who.
        from: IpAddr,
        /// The port's address.
        to: IpAddr,
        /// What was asked for.
        req: SidrReq,
    },
    /// The answer to a SIDR_REQ.
    SidrRep {
        /// Which.
        rep: SidrRep,
    },
    /// No answer to the SIDR_REQ.
    SidrError,
}

impl Event {
    /// Whose request it is, if it is one.
    pub(super) const fn listener(&self) -> Option<ListenId> {
        if let Self::Req { listener, .. } | Self::SidrReq { listener, .. } = self {
            Some(*listener)
        } else {
            None
        }
    }
}
