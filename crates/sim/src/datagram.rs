//! Datagrams between the hosts of a pair.

use userdma_objects::{Srq, UdAddr};
use userdma_verbs::{
    AhAttr, PostError, Psn, QKey, QpAttr, QpAttrMask as M, QpState, QpType, SendFlags, SendOp, SendWr, Sge,
};

use crate::{ConnectOptions, Host, Pair, QpEnd};

/// The key of every queue pair of [`Pair::datagrams`].
pub const QKEY: QKey = QKey::new(0x0102_0304);

impl Pair {
    /// A datagram queue pair in RTS on each host, with completion queues of its own.
    pub fn datagrams(&mut self, options: &ConnectOptions) -> [QpEnd; 2] {
        [0, 1].map(|side| self.datagram_end(side, options, None))
    }

    /// One on host `side`, with receives from a shared receive queue, if there is one.
    pub fn datagram_end(&mut self, side: usize, options: &ConnectOptions, srq: Option<&Srq>) -> QpEnd {
        let end = self.hosts[side].create_on(&ConnectOptions { service: QpType::Ud, ..*options }, srq);
        let attr = QpAttr { qkey: QKEY, sq_psn: Psn::new(7), ..QpAttr::default() };
        for (qp_state, mask) in [
            (QpState::Init, M::PKEY_INDEX | M::PORT | M::QKEY),
            (QpState::Rtr, M::empty()),
            (QpState::Rts, M::SQ_PSN),
        ] {
            self.modify(side, end.qp.qpn(), &QpAttr { qp_state, ..attr }, mask | M::STATE);
        }
        end
    }

    /// Whom a datagram of the other host's is for that goes to this end on host `side`.
    pub fn addr_of(&mut self, side: usize, end: &QpEnd) -> UdAddr {
        let attr = AhAttr::to(self.hosts[side].address.into());
        let from = &mut self.hosts[1 - side];
        let (_, ah) = from.shard.create_ah(from.pd, &attr).expect("an address handle");
        UdAddr { ah, remote_qpn: end.qp.qpn(), remote_qkey: QKEY }
    }
}

impl Host {
    /// Posts a signaled datagram of one element.
    ///
    /// # Errors
    /// As [`QpShared::post_datagram`](userdma_objects::QpShared::post_datagram).
    pub fn send_to(&self, end: &QpEnd, wr_id: u64, sge: Sge, to: &UdAddr) -> Result<(), PostError> {
        let wr = SendWr { wr_id, op: SendOp::Send, flags: SendFlags::SIGNALED, sgl: &[sge], inline: &[] };
        end.qp.post_datagram(&wr, to)?;
        self.ring(end.qp.qpn());
        Ok(())
    }
}
