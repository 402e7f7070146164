//! An identifier as it is kept.

use std::net::IpAddr;

use userdma_verbs::{Mtu, Psn, QKey, QpType, Qpn};

use crate::cm::{ConnId, PortId};
use crate::rdma::{Address, CmError, PathRecord, PortSpace};

/// How far an identifier is: the kernel's states, without those that are over before a call returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Idle,
    AddrBound,
    AddrResolved,
    RouteResolved,
    /// Asked, or asking, for a connection; or connected.
    Connect,
    Disconnect,
    Listen,
    DeviceRemoval,
}

/// How far the connection is, as far as queue pair attributes depend on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// The peer is asked and has said nothing yet.
    Asked,
    /// Both queue pairs are known.
    Known,
    /// It has ended, or was not made.
    Over,
}

/// What both sides have agreed about. As `cm.c struct cm_id_private`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) phase: Phase,
    pub(super) remote_qpn: Qpn,
    /// The PSN with which this side begins: the peer has chosen it.
    pub(super) sq_psn: Psn,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) mtu: Mtu,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    /// Code of the ACK timeout: 0 ..= 31.
    pub(super) ack_timeout: u8,
}

/// A port that is reserved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) port: PortId,
    pub(super) reservation: u32,
    /// The machine passes on requests that come to the device for it.
    pub(super) listens: bool,
}

/// An identifier.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) space: PortSpace,
    pub(super) qp_type: QpType,
    pub(super) state: State,
    pub(super) src: Option<Address>,
    pub(super) dst: Option<Address>,
    /// The device, if it is clear.
    pub(super) port: Option<PortId>,
    pub(super) held: Vec<Held>,
    pub(super) tos: u8,
    pub(super) reuse_address: bool,
    /// What was asked for; else what follows from the family.
    pub(super) af_only: Option<bool>,
    pub(super) ack_timeout: Option<u8>,
    /// The PSN with which the peer begins.
    pub(super) starting_psn: Psn,
    pub(super) qkey: Option<QKey>,
    pub(super) path: Option<PathRecord>,
    pub(super) conn: Option<ConnId>,
    pub(super) link: Option<Link>,
    /// Whether the connection is known to whoever ends connections of processes that die.
    pub(super) has_will: bool,
}

impl Entry {
    pub(super) fn new(space: PortSpace, qp_type: QpType, starting_psn: Psn) -> Self {
        Self {
            space,
            qp_type: space.qp_type().unwrap_or(qp_type),
            state: State::Idle,
            src: None,
            dst: None,
            port: None,
            held: Vec::new(),
            tos: 0,
            reuse_address: false,
            af_only: None,
            ack_timeout: None,
            starting_psn,
            qkey: None,
            path: None,
            conn: None,
            link: None,
            has_will: false,
        }
    }

    /// Whether it is of datagrams.
    pub(super) fn is_ud(&self) -> bool {
        self.qp_type == QpType::Ud
    }

    /// Refuses a call in the wrong state.
    pub(super) fn check(
        &self,
        is_right: bool,
        call: &'static str,
        wanted: &'static str,
    ) -> Result<(), CmError> {
        if is_right { Ok(()) } else { Err(CmError::State { call, wanted }) }
    }

    /// Whether a wildcard leaves the other family alone. As `cma.c rdma_bind_addr()`, where the machine does not say that all
    /// of IPv6 do.
    pub(super) fn is_af_only(&self, address: &Address) -> bool {
        self.af_only.unwrap_or(matches!(address, Address::Ip(ip) if ip.is_ipv4()))
    }

    /// The source and destination, once they are both known.
    pub(super) fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        let ip = |address: &Option<Address>| Some(address.as_ref()?.ip()?.ip().to_canonical());
        Some((ip(&self.src)?, ip(&self.dst)?))
    }

    /// The key of its datagrams: what was agreed, or everybody's. As `cma.c cma_set_qkey()`.
    pub(super) fn qkey(&mut self) -> QKey {
        *self.qkey.get_or_insert(UDP_QKEY)
    }

    /// Takes the peer's key; whether it is the one that was agreed before.
    pub(super) fn set_qkey(&mut self, qkey: QKey) -> bool {
        match self.qkey {
            Some(own) => qkey.get() == 0 || own == qkey,
            None => {
                self.qkey = Some(qkey).filter(|qkey| qkey.get() != 0).or(Some(UDP_QKEY));
                true
            }
        }
    }

    /// Nothing can be agreed about any more.
    pub(super) fn end_link(&mut self) {
        if let Some(link) = &mut self.link {
            link.phase = Phase::Over;
        }
    }
}

/// `RDMA_UDP_QKEY`.
pub(super) const UDP_QKEY: QKey = QKey::new(0x0123_4567);
