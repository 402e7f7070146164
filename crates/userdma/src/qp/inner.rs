//! What a queue pair has in every state.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use userdma_host::Host;
use userdma_objects::QpShared;
use userdma_verbs::{Gid, Mtu, Psn, QpAttr, QpAttrMask, QpState, QpType};

use crate::ledger::Ledger;
use crate::{Cq, Error, Pd, Srq};

/// The queue pair and everything that it keeps alive.
pub(super) struct Inner {
    pub(super) pd: Pd,
    pub(super) qp: Arc<QpShared>,
    pub(super) send_cq: Cq,
    pub(super) recv_cq: Cq,
    pub(super) sends: Arc<Ledger>,
    pub(super) recvs: Arc<Ledger>,
    /// Where its receives are posted instead.
    pub(super) srq: Option<Srq>,
    pub(super) sgid_index: u8,
    pub(super) gid: Gid,
    /// The PSN that it starts with.
    pub(super) psn: Psn,
    /// The largest path MTU of the port.
    pub(super) active_mtu: Mtu,
    /// Batches that are open: what is posted meanwhile is not started.
    pub(super) batches: AtomicU32,
}

impl Inner {
    pub(super) fn host(&self) -> &Host {
        self.pd.host()
    }

    /// Sets attributes and state. A reset forgets what is posted, here as on the device.
    pub(super) fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        if mask.contains(QpAttrMask::STATE) && attr.qp_state == QpState::Reset {
            self.let_go_of_shared()?;
            // Nobody posts between the device's reset and the ledgers'.
            let (mut sends, mut recvs) = (self.sends.lock(), self.recvs.lock());
            self.modify_device(attr, mask)?;
            sends.reset();
            recvs.reset();
            return Ok(());
        }
        self.modify_device(attr, mask)
    }

    /// A queue pair that takes receives from a shared queue goes to the error state before it is reset or destroyed: there the one
    /// that a message under way has taken completes, which otherwise would be lost to the queue.
    fn let_go_of_shared(&self) -> Result<(), Error> {
        match (&self.srq, self.qp.state()) {
            (None, _) | (Some(_), QpState::Reset | QpState::Err) => Ok(()),
            (Some(_), QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe) => {
                let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
                self.modify_device(&attr, QpAttrMask::STATE)
            }
        }
    }

    fn modify_device(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        Ok(self.host().modify_qp(self.qp.qpn(), attr, mask)??)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A device that fails or is not usable completes nothing any more.
        let _ = self.let_go_of_shared();
        if self.qp.qp_type() == QpType::Ud {
            let _ = self.host().detach_all_multicast(self.qp.qpn());
        }
        // First the device lets go of the memory, then the ledgers do. A device that is not usable touches nothing.
        let _ = self.host().destroy_qp(self.qp.qpn());
        self.send_cq.remove_ledger(&self.sends);
        self.recv_cq.remove_ledger(&self.recvs);
    }
}
