//! A connection, and the messages that it sends.

use std::net::IpAddr;
use std::time::Duration;

use userdma_verbs::{Qpn, Time};
use userdma_wire::mad::Data;
use userdma_wire::mad::MAD_LEN;
use userdma_wire::mad::cm::{Dreq, Rej, RejectReason, RejectedMessage};

use super::state::State;
use super::types::{ListenId, Peer};

/// A connection, or a question for datagrams.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) peer: Peer,
    pub(super) state: State,
    /// When the state's time is over. Changed by the table only, which sorts by it.
    pub(super) deadline: Option<Time>,
    /// Whether somebody above has it. What has no owner goes when its time is over.
    pub(super) is_owned: bool,
    /// The listener that its request came to.
    pub(super) listener: Option<ListenId>,
    /// The transaction of its REQ or SIDR_REQ, and of all messages that answer it.
    pub(super) transaction_id: u64,
    /// The peer's communication id; 0 as long as it is not known.
    pub(super) remote_id: u32,
    /// The service that was asked for, of a question for datagrams.
    pub(super) service_id: u64,
    /// Our queue pair. It stays the same while the state guards its number, which is counted by it.
    pub(super) local_qpn: Qpn,
    pub(super) remote_qpn: Qpn,
    /// How long the peer may take to answer.
    pub(super) wait: Duration,
    /// How long an answer of ours is kept for when the peer asks again.
    pub(super) linger: Duration,
    /// Times that a message is sent again.
    pub(super) retries: u8,
    /// How long a packet may be under way: an exponent of 4.096 µs.
    pub(super) packet_life_time: u8,
    /// The local ACK timeout, which is how long timewait takes: an exponent of 4.096 µs.
    pub(super) ack_timeout: u8,
    /// What a request is recognized by if it comes again. Changed by the table only.
    pub(super) request_key: Option<RequestKey>,
    /// The peer's queue pair while we are connected to it. Changed by the table only.
    pub(super) qp_key: Option<QpKey>,
}

/// What a request is recognized by: where it came from, the adapter's GUID and the sender's number for it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum RequestKey {
    /// A connection.
    Connection(IpAddr, u64, u32),
    /// A question for datagrams, which names no adapter.
    Sidr(IpAddr, u32),
}

/// A queue pair of a peer. The address is part of it, so that nobody can speak of another's queue pairs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct QpKey(pub(super) IpAddr, pub(super) u64, pub(super) u32);

impl Conn {
    /// A connection without anything; what is known is filled in by whoever makes it.
    pub(super) fn new(peer: Peer, transaction_id: u64) -> Self {
        Self {
            peer,
            state: State::Idle,
            deadline: None,
            is_owned: true,
            listener: None,
            transaction_id,
            remote_id: 0,
            service_id: 0,
            local_qpn: Qpn::default(),
            remote_qpn: Qpn::default(),
            wait: Duration::ZERO,
            linger: Duration::ZERO,
            retries: 0,
            packet_life_time: 0,
            ack_timeout: 0,
            request_key: None,
            qp_key: None,
        }
    }

    /// A REJ in the state that it is in.
    pub(super) fn rej(
        &self,
        id: u32,
        reason: RejectReason,
        info: &[u8],
        private_data: Data<148>,
    ) -> [u8; MAD_LEN] {
        let (local_comm_id, message) = match &self.state {
            // The kernel names no id as long as it has sent nothing.
            State::ReqReceived { mra: None } => (0, RejectedMessage::Req),
            State::ReqReceived { mra: Some(_) } => (id, RejectedMessage::Req),
            State::RepReceived { .. } => (id, RejectedMessage::Rep),
            State::Idle
            | State::ReqSent(_)
            | State::RepSent(_)
            | State::Established { .. }
            | State::DreqSent(_)
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::Answered { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => (id, RejectedMessage::Other),
        };
        let rej = Rej {
            local_comm_id,
            remote_comm_id: self.remote_id,
            message,
            // At most 72.
            info_len: u8::try_from(info.len()).unwrap_or(0),
            reason,
            info: Data::new(info).unwrap_or_default(),
            private_data,
        };
        rej.build(self.transaction_id)
    }

    /// A DREQ.
    pub(super) fn dreq(&self, id: u32, transaction_id: u64, private_data: Data<220>) -> [u8; MAD_LEN] {
        let dreq = Dreq {
            local_comm_id: id,
            remote_comm_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            private_data,
        };
        dreq.build(transaction_id)
    }
}
