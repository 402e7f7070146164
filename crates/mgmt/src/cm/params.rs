//! What is to be sent.

use std::net::IpAddr;

use userdma_verbs::{PKey, Psn, QKey, QpType, Qpn};
use userdma_wire::mad::cm::SidrStatus;

use super::PortId;
use crate::rdma::{Ece, PathRecord};

/// What a REQ asks for.
#[derive(Clone, Copy, Debug)]
pub struct ReqParams<'a> {
    /// The port to connect from.
    pub port: PortId,
    /// The port's address.
    pub from: IpAddr,
    /// The peer's.
    pub to: IpAddr,
    /// The peer's service.
    pub service_id: u64,
    /// The local queue pair.
    pub qpn: Qpn,
    /// Reliable or unreliable connection.
    pub qp_type: QpType,
    /// The PSN that the peer shall begin with.
    pub starting_psn: Psn,
    /// READs and atomics that we take at a time.
    pub responder_resources: u8,
    /// READs and atomics that we want to have outstanding.
    pub initiator_depth: u8,
    /// Times that the peer shall resend: 0 ..= 7.
    pub retry_count: u8,
    /// Times that the peer shall resend after RNR NAKs: 0 ..= 7.
    pub rnr_retry_count: u8,
    /// Whether our receive queue gives credits.
    pub flow_control: bool,
    /// Whether our queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// The path.
    pub path: PathRecord,
    /// The peer's local ACK timeout: 4.096 µs · 2^n, 0 ..= 31.
    pub ack_timeout: u8,
    /// How long the peer may take to answer: 4.096 µs · 2^n, 0 ..= 31.
    pub remote_response_timeout: u8,
    /// How long we may take: 4.096 µs · 2^n, 0 ..= 31.
    pub local_response_timeout: u8,
    /// Times that messages are sent again: 0 ..= 15.
    pub max_cm_retries: u8,
    /// At most as many bytes for the service as a REQ has room for.
    pub private_data: &'a [u8],
    /// What the adapters could agree about.
    pub ece: Ece,
}

/// How a REP accepts.
#[derive(Clone, Copy, Debug)]
pub struct RepParams<'a> {
    /// The local queue pair.
    pub qpn: Qpn,
    /// The PSN that the peer shall begin with.
    pub starting_psn: Psn,
    /// READs and atomics that we take at a time.
    pub responder_resources: u8,
    /// READs and atomics that we will have outstanding.
    pub initiator_depth: u8,
    /// Whether our receive queue gives credits.
    pub flow_control: bool,
    /// Times that the peer shall resend after RNR NAKs: 0 ..= 7.
    pub rnr_retry_count: u8,
    /// Whether our queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// How long an acknowledgement may take: 4.096 µs · 2^n, 0 ..= 31.
    pub target_ack_delay: u8,
    /// At most 196 bytes for the peer.
    pub private_data: &'a [u8],
    /// What the adapters agree about.
    pub ece: Ece,
}

/// What a SIDR_REQ asks for.
#[derive(Clone, Copy, Debug)]
pub struct SidrReqParams<'a> {
    /// The port to ask from.
    pub port: PortId,
    /// The port's address.
    pub from: IpAddr,
    /// The peer's.
    pub to: IpAddr,
    /// The peer's service.
    pub service_id: u64,
    /// The partition.
    pub pkey: PKey,
    /// How long to wait for an answer: 4.096 µs · 2^n, 0 ..= 31.
    pub timeout: u8,
    /// Times that it is sent again: 0 ..= 15.
    pub max_cm_retries: u8,
    /// At most as many bytes for the service as a SIDR_REQ has room for.
    pub private_data: &'a [u8],
}

/// What a SIDR_REP answers.
#[derive(Clone, Copy, Debug)]
pub struct SidrRepParams<'a> {
    /// How it went.
    pub status: SidrStatus,
    /// The queue pair that takes datagrams.
    pub qpn: Qpn,
    /// Its key.
    pub qkey: QKey,
    /// At most 136 bytes for the peer.
    pub private_data: &'a [u8],
}
