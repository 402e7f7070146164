//! What a queue pair needs to be connected: the attributes of its transitions.

use userdma_verbs::{
    AccessFlags, AckTimeout, AhAttr, GlobalRoute, QpAttr, QpAttrMask as M, QpState, QpType, RnrTimer,
};

use crate::rdma::entry::{Entry, Link, Phase};
use crate::rdma::system::Device;
use crate::rdma::{CmError, CmId, Ids, PathRecord};

impl Ids {
    /// The attributes with which the identifier's queue pair goes to `state`, and which they are. As
    /// `cma.c rdma_init_qp_attr()`.
    ///
    /// # Errors
    /// The identifier has no device, or what `state` needs is not known yet or no longer.
    pub fn init_qp_attr(&mut self, id: CmId, state: QpState) -> Result<(QpAttr, M), CmError> {
        let entry = self.table.get_mut(&id).ok_or(CmError::NoId)?;
        let device = entry.port.and_then(|port| self.devices.get(&port)).ok_or(refused("a device"))?;
        let (mut attr, mask) = match entry.link {
            Some(link) if !entry.is_ud() => connected(entry, &link, device, state)?,
            Some(_) | None => unconnected(entry),
        };
        attr.qp_state = state;
        if state == QpState::Rtr {
            attr.rq_psn = entry.starting_psn;
        }
        if let Some(timeout) =
            entry.ack_timeout.and_then(AckTimeout::new).filter(|_| mask.contains(M::TIMEOUT))
        {
            attr.timeout = timeout;
        }
        Ok((attr, mask))
    }
}

/// Before there is a connection, and of datagrams: whatever the state. As `cma.c cma_ib_init_qp_attr()`.
fn unconnected(entry: &mut Entry) -> (QpAttr, M) {
    let mut attr = QpAttr::default();
    let mask = M::STATE | M::PKEY_INDEX | M::PORT;
    if entry.is_ud() {
        attr.qkey = entry.qkey();
        (attr, mask | M::QKEY)
    } else {
        (attr, mask | M::ACCESS_FLAGS)
    }
}

/// As `cm.c ib_cm_init_qp_attr()`.
fn connected(entry: &Entry, link: &Link, device: &Device, state: QpState) -> Result<(QpAttr, M), CmError> {
    match (state, link.phase) {
        (QpState::Init, Phase::Asked | Phase::Known) => Ok(to_init(link)),
        (QpState::Rtr, Phase::Known) => Ok(to_rtr(entry, link, device)),
        (QpState::Rts, Phase::Known) => Ok(to_rts(entry, link)),
        (QpState::Init | QpState::Rtr | QpState::Rts, _) => Err(refused("a connection that is being made")),
        (QpState::Reset | QpState::Sqd | QpState::Sqe | QpState::Err, _) => Err(refused("INIT, RTR or RTS")),
    }
}

/// As `cm.c cm_init_qp_init_attr()`.
fn to_init(link: &Link) -> (QpAttr, M) {
    let remote = AccessFlags::REMOTE_WRITE;
    let reading = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    let qp_access_flags = if link.responder_resources > 0 { remote | reading } else { remote };
    let attr = QpAttr { qp_access_flags, ..QpAttr::default() };
    (attr, M::STATE | M::ACCESS_FLAGS | M::PKEY_INDEX | M::PORT)
}

/// As `cm.c cm_init_qp_rtr_attr()`.
fn to_rtr(entry: &Entry, link: &Link, device: &Device) -> (QpAttr, M) {
    let attr = QpAttr {
        ah_attr: entry.path.map(|path| ah_of(&path, device)).unwrap_or_default(),
        path_mtu: link.mtu,
        dest_qp_num: link.remote_qpn,
        max_dest_rd_atomic: link.responder_resources,
        min_rnr_timer: RnrTimer::default(),
        ..QpAttr::default()
    };
    let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let reliable = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    (attr, if entry.qp_type == QpType::Rc { mask | reliable } else { mask })
}

/// As `cm.c cm_init_qp_rts_attr()`.
fn to_rts(entry: &Entry, link: &Link) -> (QpAttr, M) {
    let attr = QpAttr {
        sq_psn: link.sq_psn,
        retry_cnt: link.retry_count,
        rnr_retry: link.rnr_retry_count,
        max_rd_atomic: link.initiator_depth,
        timeout: AckTimeout::new(link.ack_timeout).unwrap_or_default(),
        ..QpAttr::default()
    };
    let reliable = M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC | M::TIMEOUT;
    let mask = M::STATE | M::SQ_PSN;
    (attr, if entry.qp_type == QpType::Rc { mask | reliable } else { mask })
}

/// The way to the other end of a path.
pub(super) fn ah_of(path: &PathRecord, device: &Device) -> AhAttr {
    let from = path.sgid.ip();
    let index = device.addresses.iter().position(|ip| ip.to_canonical() == from);
    AhAttr {
        grh: GlobalRoute {
            dgid: path.dgid,
            flow_label: path.flow_label,
            // A device has few addresses.
            sgid_index: index.and_then(|index| u8::try_from(index).ok()).unwrap_or(0),
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        },
        sl: path.sl,
        port_num: 1,
    }
}

fn refused(wanted: &'static str) -> CmError {
    CmError::State { call: "init_qp_attr", wanted }
}
