//! From INIT to RTS.

use userdma_verbs::{AckTimeout, ModifyQpError, Mtu, QpAttr, QpAttrMask, RnrTimer};

use super::{Init, Qp, Rtr, Rts, Unchecked};
use crate::{Endpoint, Error};

/// Attributes of the transition to RTR besides the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RtrAttr {
    /// Path MTU; the device's active MTU if `None`. Both sides must agree.
    pub path_mtu: Option<Mtu>,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// What an RNR NAK asks the peer to wait.
    pub min_rnr_timer: RnrTimer,
    /// Hop limit of the packets.
    pub hop_limit: u8,
    /// DSCP and ECN bits of the packets.
    pub traffic_class: u8,
    /// Flow label; chooses the source port if not 0.
    pub flow_label: u32,
}

/// Attributes of the transition to RTS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RtsAttr {
    /// How long to wait for an acknowledgement.
    pub timeout: AckTimeout,
    /// Resends before giving up: 0 ..= 7.
    pub retry_cnt: u8,
    /// Resends after RNR before giving up: 0 ..= 7, 7 is for ever.
    pub rnr_retry: u8,
    /// READs and atomics that this side may have outstanding.
    pub max_rd_atomic: u8,
}

impl Default for RtrAttr {
    /// The device's MTU, 16 READs, 0.64 ms, 64 hops.
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
        Self { timeout: AckTimeout::new(14).unwrap_or_default(), retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 }
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
    pub fn to_rtr(self, peer: &Endpoint, attr: &RtrAttr) -> Result<Qp<Rtr>, SetupError<Init>> {
        let _ = (peer, attr);
        todo!()
    }

    /// INIT to RTS with the default attributes. Both sides do it; messages may arrive before the peer is there and are
    /// resent until it is.
    pub fn connect(self, peer: &Endpoint) -> Result<Qp<Rts>, SetupError<Init>> {
        self.connect_with(peer, &RtrAttr::default(), &RtsAttr::default())
    }

    /// INIT to RTS.
    pub fn connect_with(
        self,
        peer: &Endpoint,
        rtr: &RtrAttr,
        rts: &RtsAttr,
    ) -> Result<Qp<Rts>, SetupError<Init>> {
        let _ = (peer, rtr, rts);
        todo!()
    }
}

impl Qp<Rtr> {
    /// RTR to RTS: from now on it sends.
    pub fn to_rts(self, attr: &RtsAttr) -> Result<Qp<Rts>, SetupError<Rtr>> {
        let _ = attr;
        todo!()
    }
}

impl Qp<Rts> {
    /// Sets attributes and state as `ibv_modify_qp`: to SQD and back, to ERR, to RESET and up again.
    ///
    /// # Errors
    /// [`Error::ModifyQp`] says which attribute or transition was wrong; nothing has changed.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        let _ = (attr, mask, std::marker::PhantomData::<ModifyQpError>);
        todo!()
    }
}

impl Qp<Unchecked> {
    /// Sets attributes and state as `ibv_modify_qp`.
    ///
    /// # Errors
    /// [`Error::ModifyQp`] says which attribute or transition was wrong; nothing has changed.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        let _ = (attr, mask);
        todo!()
    }
}
