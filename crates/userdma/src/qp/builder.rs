//! How a queue pair is made.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::AtomicU32;

use userdma_verbs::{AccessFlags, Psn, QKey, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType};

use super::{Init, Inner, Qp, UdQp, Unchecked};
use crate::ledger::Ledger;
use crate::{Cq, Error, Pd, Srq};

/// A queue pair to be made. Defaults: a reliable connection, 128 sends and receives, 16 elements a list, 512 bytes inline, all remote
/// rights, GID 0, a random first PSN.
#[derive(Clone, Debug)]
pub struct QpBuilder {
    pd: Pd,
    send_cq: Cq,
    recv_cq: Cq,
    service: QpType,
    cap: QpCap,
    sq_sig_all: bool,
    access: AccessFlags,
    sgid_index: u8,
    psn: Option<Psn>,
    srq: Option<Srq>,
}

impl QpBuilder {
    pub(crate) fn new(pd: &Pd, send_cq: &Cq, recv_cq: &Cq) -> Self {
        Self {
            pd: pd.clone(),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            service: QpType::Rc,
            cap: QpCap {
                max_send_wr: 128,
                max_recv_wr: 128,
                max_send_sge: 16,
                max_recv_sge: 16,
                max_inline_data: 512,
            },
            sq_sig_all: false,
            access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
            sgid_index: 0,
            psn: None,
            srq: None,
        }
    }

    /// The transport service, of both sides. An unreliable connection ([`QpType::Uc`]) has SEND, WRITE, both with immediate
    /// data, windows, and nobody who answers: a send completes when it has left, and what is lost on the way, or finds no
    /// receive, is lost. What arrives is whole, in order, and comes once. A send that fails locally takes it to SQE, from where
    /// [`Qp::modify`] leads back to RTS.
    #[must_use]
    pub fn service(mut self, service: QpType) -> Self {
        self.service = service;
        self
    }

    /// Sends that may be outstanding, from post until their completion (or a later one) is polled.
    #[must_use]
    pub fn max_send_wr(mut self, count: u32) -> Self {
        self.cap.max_send_wr = count;
        self
    }

    /// Receives that may be outstanding, likewise.
    #[must_use]
    pub fn max_recv_wr(mut self, count: u32) -> Self {
        self.cap.max_recv_wr = count;
        self
    }

    /// Elements of a send's scatter/gather list.
    #[must_use]
    pub fn max_send_sge(mut self, count: u32) -> Self {
        self.cap.max_send_sge = count;
        self
    }

    /// Elements of a receive's scatter/gather list.
    #[must_use]
    pub fn max_recv_sge(mut self, count: u32) -> Self {
        self.cap.max_recv_sge = count;
        self
    }

    /// Bytes of an inline send: 0 to 1024.
    #[must_use]
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// Whether every send completes, signaled or not.
    #[must_use]
    pub fn sq_sig_all(mut self, all: bool) -> Self {
        self.sq_sig_all = all;
        self
    }

    /// What the peer may do through it: remote rights.
    #[must_use]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = access;
        self
    }

    /// Which of the device's GIDs it uses.
    #[must_use]
    pub fn sgid_index(mut self, index: u8) -> Self {
        self.sgid_index = index;
        self
    }

    /// The PSN that it starts with.
    #[must_use]
    pub fn psn(mut self, psn: Psn) -> Self {
        self.psn = Some(psn);
        self
    }

    /// It takes receives from a shared receive queue, and has none of its own: [`Qp::post_recv`](crate::Qp::post_recv) and the
    /// sizes of receives have no meaning. Their completions come to its `recv_cq`.
    #[must_use]
    pub fn srq(mut self, srq: &Srq) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    pub(crate) fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// Makes it, in state INIT.
    ///
    /// # Errors
    /// [`Error::CreateQp`] says which size is too large, or that there is no such service; [`Error::OtherDevice`] if a queue
    /// is of another device.
    pub fn build(self) -> Result<Qp<Init>, Error> {
        let access = self.access;
        let inner = self.make()?;
        let attr =
            QpAttr { qp_state: QpState::Init, port_num: 1, qp_access_flags: access, ..QpAttr::default() };
        let mask = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        inner.modify(&attr, mask)?;
        Ok(Qp::new(inner))
    }

    /// Makes it, in state RESET, for programs that go through the states with [`Qp::modify`].
    ///
    /// # Errors
    /// As [`QpBuilder::build`].
    pub fn build_unchecked(self) -> Result<Qp<Unchecked>, Error> {
        Ok(Qp::new(self.make()?))
    }

    /// Makes one of unreliable datagrams instead, in state RTS, that receives what comes with the key `qkey`. Rights of peers
    /// mean nothing to it.
    ///
    /// # Errors
    /// As [`QpBuilder::build`].
    pub fn build_ud(self, qkey: QKey) -> Result<UdQp, Error> {
        UdQp::start(self.service(QpType::Ud).make()?, qkey)
    }

    fn make(self) -> Result<Box<Inner>, Error> {
        let Self { pd, send_cq, recv_cq, service, cap, sq_sig_all, sgid_index, psn, srq, .. } = self;
        let host = pd.host().clone();
        if ![&send_cq, &recv_cq].iter().all(|cq| cq.host().is_same(&host)) {
            return Err(Error::OtherDevice("completion queue"));
        }
        if srq.as_ref().is_some_and(|srq| !srq.host().is_same(&host)) {
            return Err(Error::OtherDevice("shared receive queue"));
        }
        let gids = host.gids();
        let gid = gids
            .get(usize::from(sgid_index))
            .map(|entry| entry.gid)
            .ok_or(Error::NoGid { index: sgid_index, len: gids.len() })?;
        let init = QpInitAttr { qp_type: service, cap, sq_sig_all };
        let qp =
            host.create_qp(pd.id(), init, send_cq.number(), recv_cq.number(), srq.as_ref().map(Srq::srqn))??;
        let cap = qp.cap();
        if let Some(srq) = &srq {
            srq.completes_on(&recv_cq);
        }
        let sends = send_cq.add_ledger(|tag| Ledger::new(cap.max_send_wr, cap.max_send_sge, tag));
        let recvs = recv_cq.add_ledger(|tag| Ledger::new(cap.max_recv_wr, cap.max_recv_sge, tag));
        let psn = psn.unwrap_or_else(random_psn);
        let active_mtu = host.control(|shard, _| shard.port_attr())?.active_mtu;
        Ok(Box::new(Inner {
            pd,
            qp,
            send_cq,
            recv_cq,
            sends,
            recvs,
            srq,
            sgid_index,
            gid,
            psn,
            active_mtu,
            batches: AtomicU32::new(0),
        }))
    }
}

/// A first PSN that packets of an earlier connection are unlikely to have.
fn random_psn() -> Psn {
    // 24 of the 64 bits are enough; the standard library's hash keys come from the system.
    Psn::new(u32::try_from(RandomState::new().build_hasher().finish() & 0xff_ffff).unwrap_or(0))
}
