//! From INIT to RTS.

use userdma_verbs::{AckTimeout, AhAttr, GlobalRoute, Mtu, QpAttr, QpAttrMask, QpState, QpType, RnrTimer};

use super::{Init, Inner, Posts, Qp, Rtr, Rts, Unchecked};
use crate::{Endpoint, Error};

/// Attributes of the transition to RTR besides the peer. An unreliable connection has no use for READs and the RNR timer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RtrAttr {
    /// Path MTU, the same on both sides; if `None`, the smaller of the two that the sides' links carry.
    pub path_mtu: Option<Mtu>,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// What an RNR NAK asks the peer to wait: 0.64 ms unless set.
    pub min_rnr_timer: RnrTimer,
    /// Hop limit of the packets.
    pub hop_limit: u8,
    /// DSCP and ECN bits of the packets.
    pub traffic_class: u8,
    /// Flow label; chooses the source port if not 0.
    pub flow_label: u32,
}

/// Attributes of the transition to RTS. An unreliable connection has no use for them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RtsAttr {
    /// How long to wait for an acknowledgement: 67 ms unless set. A peer that is gone is noticed after `retry_cnt + 1` times
    /// that.
    pub timeout: AckTimeout,
    /// Resends before giving up: 0 ..= 7; 7 unless set.
    pub retry_cnt: u8,
    /// Resends after RNR before giving up: 0 ..= 7, 7 is for ever; 7 unless set.
    pub rnr_retry: u8,
    /// READs and atomics that this side may have outstanding.
    pub max_rd_atomic: u8,
}

impl Default for RtrAttr {
    /// The MTU that both links carry, 16 READs, 0.64 ms, 64 hops.
    fn default() -> Self {
        Self {
            path_mtu: None,
            max_dest_rd_atomic: 16,
            // 12 is below 32.
            min_rnr_timer: RnrTimer::new(12).unwrap_or_default(),
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }
    }
}

impl Default for RtsAttr {
    /// 67 ms, 7 resends, RNR for ever, 16 READs.
    fn default() -> Self {
        // 14 is below 32.
        Self {
            timeout: AckTimeout::new(14).unwrap_or_default(),
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
        }
    }
}

/// A queue pair that stayed in its state, and why.
#[derive(Debug)]
pub struct SetupError<S> {
    /// The queue pair, unchanged.
    pub qp: Qp<S>,
    /// Why.
    pub reason: Error,
}

impl<S> std::fmt::Display for SetupError<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.reason.fmt(f)
    }
}

impl<S: std::fmt::Debug> std::error::Error for SetupError<S> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

impl<S> From<SetupError<S>> for Error {
    fn from(e: SetupError<S>) -> Self {
        e.reason
    }
}

impl Qp<Init> {
    /// INIT to RTR: from now on it receives from `peer`.
    ///
    /// # Errors
    /// The queue pair as it was, and which attribute is wrong.
    pub fn to_rtr(self, peer: &Endpoint, attr: &RtrAttr) -> Result<Qp<Rtr>, SetupError<Init>> {
        match self.inner.modify_to_rtr(peer, attr) {
            Ok(()) => Ok(Qp::new(self.inner)),
            Err(reason) => Err(SetupError { qp: self, reason }),
        }
    }

    /// INIT to RTS with the default attributes. Both sides do it. Messages that arrive before the peer is there are
    /// resent until it is, after an ACK timeout (67 ms): to save that, exchange a word over the stream that brought the
    /// endpoints before the first message.
    ///
    /// A peer that is quicker may have sent already. If it was a request that is refused (a wrong key, say), this queue pair
    /// is in ERR when it is returned, as if it had come a moment later: receives are flushed, an event says why.
    ///
    /// # Errors
    /// The reason; the queue pair is destroyed.
    pub fn connect(self, peer: &Endpoint) -> Result<Qp<Rts>, Error> {
        self.connect_with(peer, &RtrAttr::default(), &RtsAttr::default())
    }

    /// As [`Qp::connect`], with these attributes.
    ///
    /// # Errors
    /// The reason; the queue pair is destroyed.
    pub fn connect_with(self, peer: &Endpoint, rtr: &RtrAttr, rts: &RtsAttr) -> Result<Qp<Rts>, Error> {
        self.to_rtr(peer, rtr)?.finish(rts)
    }

    /// Sets attributes, for somebody who takes it to RTS.
    pub(crate) fn modify_init(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        self.inner.modify(attr, mask)
    }

    /// The same, which somebody has taken to RTS.
    pub(crate) fn into_connected(self) -> Qp<Rts> {
        Qp::new(self.inner)
    }
}

impl Qp<Rtr> {
    /// RTR to RTS: from now on it sends.
    ///
    /// # Errors
    /// The queue pair as it was, and which attribute is wrong.
    pub fn to_rts(self, attr: &RtsAttr) -> Result<Qp<Rts>, SetupError<Rtr>> {
        match self.inner.modify_to_rts(attr) {
            Ok(()) => Ok(Qp::new(self.inner)),
            Err(reason) => Err(SetupError { qp: self, reason }),
        }
    }

    /// To RTS, where a queue pair that the peer has broken meanwhile counts as one that was there.
    fn finish(self, rts: &RtsAttr) -> Result<Qp<Rts>, Error> {
        match self.to_rts(rts) {
            Err(failed) if failed.qp.inner.qp.state() == QpState::Err => Ok(Qp::new(failed.qp.inner)),
            result => Ok(result?),
        }
    }
}

impl Qp<Unchecked> {
    /// INIT to RTS, for a queue pair that others hold already.
    pub(crate) fn connect_shared(&self, peer: &Endpoint, rtr: &RtrAttr, rts: &RtsAttr) -> Result<(), Error> {
        self.inner.modify_to_rtr(peer, rtr)?;
        self.inner.modify_to_rts(rts)
    }
}

impl<S: Posts> Qp<S> {
    /// Sets attributes and state as `ibv_modify_qp`: to SQD and back, to ERR, to RESET and up again.
    ///
    /// # Errors
    /// [`Error::ModifyQp`] says which attribute or transition is wrong; nothing has changed.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        self.inner.modify(attr, mask)
    }
}

impl Inner {
    fn modify_to_rtr(&self, peer: &Endpoint, rtr: &RtrAttr) -> Result<(), Error> {
        let path_mtu = rtr.path_mtu.unwrap_or(self.active_mtu.min(peer.path_mtu));
        let grh = GlobalRoute {
            dgid: peer.gid,
            flow_label: rtr.flow_label,
            sgid_index: self.sgid_index,
            hop_limit: rtr.hop_limit,
            traffic_class: rtr.traffic_class,
        };
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu,
            rq_psn: peer.psn,
            dest_qp_num: peer.qpn,
            ah_attr: AhAttr { grh, sl: 0, port_num: 1 },
            max_dest_rd_atomic: rtr.max_dest_rd_atomic,
            min_rnr_timer: rtr.min_rnr_timer,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::STATE
            | QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN;
        let of_rc = QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
        self.modify(&attr, if self.is_reliable() { mask | of_rc } else { mask })
    }

    fn modify_to_rts(&self, rts: &RtsAttr) -> Result<(), Error> {
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: self.psn,
            timeout: rts.timeout,
            retry_cnt: rts.retry_cnt,
            rnr_retry: rts.rnr_retry,
            max_rd_atomic: rts.max_rd_atomic,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::STATE | QpAttrMask::SQ_PSN;
        let of_rc = QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY
            | QpAttrMask::MAX_QP_RD_ATOMIC;
        self.modify(&attr, if self.is_reliable() { mask | of_rc } else { mask })
    }

    /// Whether the peer answers, so that there are time-outs, repetitions and READs to be limited.
    fn is_reliable(&self) -> bool {
        self.qp.qp_type() == QpType::Rc
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use userdma_verbs::{AccessFlags, SendFlags, WcStatus};

    use super::*;
    use crate::{Device, Inline, RemoteMr};

    /// A peer is ready first and writes with a wrong key, before this side is in RTS.
    #[test]
    fn a_peer_that_is_quick_and_wrong_breaks_a_connection_and_not_connecting() {
        let end = |address| {
            let device = Device::open(address).unwrap();
            let pd = device.alloc_pd().unwrap();
            let cq = device.create_cq(16).unwrap();
            let qp = pd.create_qp(&cq, &cq).build().unwrap();
            let mr = pd.alloc(64, AccessFlags::LOCAL_WRITE).unwrap();
            (qp, cq, mr)
        };
        let ((a, a_cq, a_mr), (b, b_cq, b_mr)) = (end("127.0.21.31"), end("127.0.21.32"));
        let (to_a, to_b) = (a.endpoint(), b.endpoint());
        a.post_recv(1, &a_mr.slice(..)).unwrap();
        let a = a.to_rtr(&to_b, &RtrAttr::default()).unwrap();
        let b = b.connect(&to_a).unwrap();
        let wrong = RemoteMr { addr: 0, rkey: b_mr.rkey(), len: 8 };
        b.post_write(2, Inline(&[1; 8]), wrong, SendFlags::SIGNALED).unwrap();
        let [wc] = b_cq.wait_for(1, Some(Duration::from_secs(10))).unwrap()[..] else {
            panic!("no completion")
        };
        assert_eq!(wc.status, WcStatus::RemAccessErr);

        let a = a.finish(&RtsAttr::default()).unwrap();
        let [wc] = a_cq.wait_for(1, Some(Duration::from_secs(10))).unwrap()[..] else {
            panic!("no completion")
        };
        assert_eq!((wc.wr_id, wc.status), (1, WcStatus::WrFlushErr));
        a.post_send(3, Inline(&[1; 8]), SendFlags::SIGNALED).unwrap();
        let [wc] = a_cq.wait_for(1, Some(Duration::from_secs(10))).unwrap()[..] else {
            panic!("no completion")
        };
        assert_eq!((wc.wr_id, wc.status), (3, WcStatus::WrFlushErr));
    }
}
