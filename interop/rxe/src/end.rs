//! The queue pair of a side: one of a connection, or one of datagrams with the way to the peer.

use userdma::{
    Ah, AhAttr, Endpoint, Error, Init, MrSlice, Mtu, Pd, QKey, Qp, QpBuilder, QpState, QpType, Qpn, RtrAttr,
    Rts, RtsAttr, SendFlags, UdDest, UdQp,
};

use crate::options::Options;

/// A queue pair that is not ready for its peer yet.
#[derive(Debug)]
pub(crate) enum Start {
    Connection(Qp<Init>),
    Datagrams(UdQp),
}

/// A queue pair that sends and receives.
#[derive(Debug)]
pub(crate) enum End {
    Connection(Qp<Rts>),
    Datagrams(Datagrams),
}

/// A queue pair of datagrams and whom they are for.
#[derive(Debug)]
pub(crate) struct Datagrams {
    qp: UdQp,
    way: Ah,
    peer: Qpn,
}

impl Start {
    /// Makes the queue pair that the options ask for.
    pub(crate) fn new(options: &Options, builder: QpBuilder) -> Result<Self, Error> {
        match options.service {
            QpType::Ud => Ok(Self::Datagrams(builder.build_ud(KEY)?)),
            QpType::Rc | QpType::Uc | QpType::XrcSend | QpType::XrcRecv => {
                Ok(Self::Connection(builder.build()?))
            }
        }
    }

    /// What the peer is told. A queue pair of datagrams has no first PSN that anybody asks for.
    pub(crate) fn endpoint(&self, options: &Options) -> Endpoint {
        match self {
            Self::Connection(qp) => qp.endpoint(),
            Self::Datagrams(qp) => {
                Endpoint { gid: qp.gid(), qpn: qp.qpn(), psn: options.psn, path_mtu: Mtu::Mtu4096 }
            }
        }
    }

    /// With its peer.
    pub(crate) fn connect(
        self,
        pd: &Pd,
        peer: &Endpoint,
        rtr: &RtrAttr,
        rts: &RtsAttr,
    ) -> Result<End, Error> {
        match self {
            Self::Connection(qp) => Ok(End::Connection(qp.connect_with(peer, rtr, rts)?)),
            Self::Datagrams(qp) => {
                let way = pd.create_ah(&AhAttr::to(peer.gid))?;
                Ok(End::Datagrams(Datagrams { qp, way, peer: peer.qpn }))
            }
        }
    }
}

impl End {
    pub(crate) fn qpn(&self) -> Qpn {
        match self {
            Self::Connection(qp) => qp.qpn(),
            Self::Datagrams(end) => end.qp.qpn(),
        }
    }

    pub(crate) fn state(&self) -> QpState {
        match self {
            Self::Connection(qp) => qp.state(),
            Self::Datagrams(end) => end.qp.state(),
        }
    }

    pub(crate) fn post_recv(&self, wr_id: u64, place: &MrSlice) -> Result<(), Error> {
        match self {
            Self::Connection(qp) => qp.post_recv(wr_id, place),
            Self::Datagrams(end) => end.qp.post_recv(wr_id, place),
        }
    }

    /// Bytes before the payload of a receive.
    pub(crate) fn head_len(&self) -> usize {
        match self {
            Self::Connection(_) => 0,
            Self::Datagrams(_) => Ah::GRH_LEN,
        }
    }
}

impl Datagrams {
    /// Sends a datagram, with immediate data if there is some.
    pub(crate) fn post_send(
        &self,
        wr_id: u64,
        list: &[MrSlice],
        imm: Option<u32>,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let to = UdDest { ah: &self.way, qpn: self.peer, qkey: KEY };
        match imm {
            Some(imm) => self.qp.post_send_with_imm(wr_id, list, imm, &to, flags),
            None => self.qp.post_send(wr_id, list, &to, flags),
        }
    }
}

/// As vt's.
const KEY: QKey = QKey::new(0x1111_1111);
