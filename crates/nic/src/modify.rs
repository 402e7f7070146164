//! Modify: what a transition needs, which values are possible, and where a connection's packets go.

use std::net::IpAddr;

use userdma_ibt::Path;
use userdma_mem::{Route, crc32};
use userdma_verbs::{
    AccessFlags, AhAttr, DeviceAttr, Gid, ModifyQpError, Mtu, QpAttr, QpAttrMask as M, QpState, QpType, Qpn,
    Time, Transition,
};
use userdma_wire::{FlowIcrc, Pseudo};

use crate::{GidEntry, Shard};

/// A value that is not possible, and what would be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BadValue {
    Field { field: &'static str, value: u64, allowed: &'static str },
    Dgid { dgid: Gid, allowed: &'static str },
}

impl From<BadValue> for ModifyQpError {
    fn from(bad: BadValue) -> Self {
        match bad {
            BadValue::Field { field, value, allowed } => Self::Value { field, value, allowed },
            BadValue::Dgid { dgid, allowed } => Self::Dgid { dgid, allowed },
        }
    }
}

impl Shard {
    /// Sets attributes and changes the state. Either all of it happens or nothing. RESET forgets everything, also completions
    /// that nobody has polled.
    ///
    /// # Errors
    /// Which attribute or transition is wrong, with its value; `NoQp`.
    pub fn modify_qp(&mut self, now: Time, qpn: Qpn, attr: &QpAttr, mask: M) -> Result<(), ModifyQpError> {
        let index = self.index_of(qpn).ok_or(ModifyQpError::NoQp)?;
        let Some(qp) = self.qps.get(index) else { return Err(ModifyQpError::NoQp) };
        let to = check_transition(qp.shared.qp_type(), qp.transport.state(), attr, mask)?;
        check_values(attr, mask)?;
        let dest =
            if mask.contains(M::DEST_QPN) { attr.dest_qp_num } else { qp.transport.attr().dest_qp_num };
        let path =
            if mask.contains(M::AV) { Some(self.resolve_path(&attr.ah_attr, qpn, dest)?) } else { None };
        if mask.contains(M::PATH_MTU) {
            self.check_mtu(attr)?;
        }
        if let Some(path) = &path {
            // Bound once: what is under way stays accounted where it was.
            let window = qp.window.unwrap_or_else(|| self.windows.acquire(&path.route, dest));
            if let Some(qp) = self.qps.get_mut(index) {
                qp.window = Some(window);
            }
        }
        self.drive(now, index, |machine, ctx| machine.modify(ctx, to, attr, mask, path));
        if to == QpState::Err {
            // The program may give the queue pair up right after this.
            self.release_owed_ack(index);
        }
        if to == QpState::Reset {
            self.unbind_window(index);
            self.forget(index, qpn);
            self.forget_completions(index);
        }
        Ok(())
    }

    fn unbind_window(&mut self, index: u32) {
        if let Some(window) = self.qps.get_mut(index).and_then(|qp| qp.window.take()) {
            self.windows.release(window);
            self.wake_one(window);
        }
    }

    fn resolve_path(&self, av: &AhAttr, qpn: Qpn, dest: Qpn) -> Result<Path, BadValue> {
        let label = if av.grh.flow_label != 0 { av.grh.flow_label } else { flow_label(qpn, dest) };
        let route = self.resolve_single(av, label)?;
        let pseudo = Pseudo::new(route.local, route.remote, route.local_port, route.remote_port);
        Ok(Path { route, icrc: FlowIcrc::with_crc32(pseudo, crc32) })
    }

    /// As [`Shard::resolve`], to a single peer.
    pub(crate) fn resolve_single(&self, av: &AhAttr, label: u32) -> Result<Route, BadValue> {
        let dgid = av.grh.dgid;
        if dgid.ip().is_multicast() {
            return Err(BadValue::Dgid { dgid, allowed: "a single peer's GID, not a group's" });
        }
        self.resolve(av, label)
    }

    /// Where packets with an address vector go, to a peer or a group. `label` chooses the transmit socket.
    pub(crate) fn resolve(&self, av: &AhAttr, label: u32) -> Result<Route, BadValue> {
        check(av.port_num == 1, "ah_attr.port_num", av.port_num, "1")?;
        check(av.sl <= 15, "ah_attr.sl", av.sl, "0 to 15")?;
        check(av.grh.flow_label < 1 << 20, "grh.flow_label", av.grh.flow_label, "a number of 20 bits")?;
        let gid = self.config.gids.get(usize::from(av.grh.sgid_index));
        let gid = gid.ok_or(BadValue::Field {
            field: "grh.sgid_index",
            value: av.grh.sgid_index.into(),
            allowed: "an index of the GID table",
        })?;
        let remote = check_dgid(av.grh.dgid, gid)?;
        let socket = socket_of(label);
        Ok(Route {
            link: gid.link,
            local: gid.local.to_canonical(),
            remote,
            scope_id: if is_link_local(remote) { gid.scope_id } else { 0 },
            socket,
            local_port: gid.tx_ports[usize::from(socket)],
            remote_port: self.config.peer_port,
            traffic_class: av.grh.traffic_class,
            hop_limit: if av.grh.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { av.grh.hop_limit },
        })
    }

    fn check_mtu(&self, attr: &QpAttr) -> Result<(), BadValue> {
        let gid = self.config.gids.get(usize::from(attr.ah_attr.grh.sgid_index));
        let link = gid.and_then(|gid| self.config.links.get(usize::from(gid.link.0)));
        let active = link.and_then(|link| Mtu::for_link(link.mtu));
        let fits = active.is_some_and(|active| attr.path_mtu <= active);
        check(fits, "path_mtu", attr.path_mtu.bytes(), at_most(active))
    }
}

/// The state that a modify leads to, if there is such a transition and it has the attributes that it needs and no
/// others. As the kernel's `core/verbs.c ib_modify_qp_is_ok()`.
fn check_transition(
    qp_type: QpType,
    from: QpState,
    attr: &QpAttr,
    mask: M,
) -> Result<QpState, ModifyQpError> {
    let to = if mask.contains(M::STATE) { attr.qp_state } else { from };
    if mask.contains(M::CUR_STATE) && attr.cur_qp_state != from {
        return Err(ModifyQpError::CurState { claimed: attr.cur_qp_state, actual: from });
    }
    let transition = Transition::of(qp_type, from, to).ok_or(ModifyQpError::Transition { from, to })?;
    let missing = transition.required.difference(mask);
    if !missing.is_empty() {
        return Err(ModifyQpError::Missing { from, to, missing });
    }
    let extra = mask.difference(transition.required | transition.optional | M::STATE);
    if !extra.is_empty() {
        return Err(ModifyQpError::Extra { from, to, extra });
    }
    Ok(to)
}

/// Values that are possible or not whatever the device is like.
fn check_values(attr: &QpAttr, mask: M) -> Result<(), BadValue> {
    let limits = DeviceAttr::LIMITS;
    let set = |flag| mask.contains(flag);
    check(!set(M::PORT) || attr.port_num == 1, "port_num", attr.port_num, "1")?;
    check(!set(M::PKEY_INDEX) || attr.pkey_index == 0, "pkey_index", attr.pkey_index, "0")?;
    let unknown = attr.qp_access_flags.difference(QP_ACCESS).bits();
    check(
        !set(M::ACCESS_FLAGS) || unknown == 0,
        "qp_access_flags",
        attr.qp_access_flags.bits(),
        "local write, remote write, read and atomic, and what a region may have besides",
    )?;
    check(
        !set(M::DEST_QPN) || attr.dest_qp_num != Qpn::MULTICAST,
        "dest_qp_num",
        attr.dest_qp_num.get(),
        "a queue pair's number",
    )?;
    let depth = attr.max_rd_atomic;
    check(
        !set(M::MAX_QP_RD_ATOMIC) || depth <= limits.max_qp_init_rd_atom,
        "max_rd_atomic",
        depth,
        "0 to 128",
    )?;
    let depth = attr.max_dest_rd_atomic;
    check(
        !set(M::MAX_DEST_RD_ATOMIC) || depth <= limits.max_qp_rd_atom,
        "max_dest_rd_atomic",
        depth,
        "0 to 128",
    )?;
    check(!set(M::RETRY_CNT) || attr.retry_cnt <= 7, "retry_cnt", attr.retry_cnt, "0 to 7")?;
    check(!set(M::RNR_RETRY) || attr.rnr_retry <= 7, "rnr_retry", attr.rnr_retry, "0 to 7")?;
    check(!set(M::ALT_PATH), "alt_ah_attr", 1u8, "no alternate path")
}

/// The address of a destination GID that can be reached from `local`.
fn check_dgid(dgid: Gid, local: &GidEntry) -> Result<IpAddr, BadValue> {
    let remote = dgid.ip();
    let refuse = |allowed| Err(BadValue::Dgid { dgid, allowed });
    if dgid.is_zero() || remote.is_unspecified() {
        refuse("the peer's GID (RoCE needs the global route)")
    } else if remote.is_ipv4() != local.local.to_canonical().is_ipv4() {
        refuse("a GID of the same address family as the GID at sgid_index")
    } else {
        Ok(remote)
    }
}

fn check(
    ok: bool,
    field: &'static str,
    value: impl Into<u64>,
    allowed: &'static str,
) -> Result<(), BadValue> {
    if ok { Ok(()) } else { Err(BadValue::Field { field, value: value.into(), allowed }) }
}

/// A flow label of 20 bits that both sides of a connection get alike. As the kernel's `ib_verbs.h
/// rdma_calc_flow_label()`.
fn flow_label(local: Qpn, remote: Qpn) -> u32 {
    let mut v = u64::from(local.get()) * u64::from(remote.get());
    v ^= v >> 20;
    v ^= v >> 40;
    // The mask leaves 20 bits.
    (v & 0xf_ffff) as u32
}

/// The transmit socket that a flow label chooses.
fn socket_of(label: u32) -> u8 {
    // The mask leaves three bits.
    ((label ^ (label >> 14) ^ (label >> 7)) & 7) as u8
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// What `qp_access_flags` may hold: as the kernel's `rxe_verbs.h RXE_ACCESS_SUPPORTED_QP`, whose peers set more than
/// a queue pair has a use for.
const QP_ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::MW_BIND)
    .union(AccessFlags::RELAXED_ORDERING);

const DEFAULT_HOP_LIMIT: u8 = 64;

/// The path MTUs that a port offers, in words.
const fn at_most(active: Option<Mtu>) -> &'static str {
    match active {
        None => "none (the port's link is too narrow)",
        Some(Mtu::Mtu256) => "at most the port's active_mtu, 256,",
        Some(Mtu::Mtu512) => "at most the port's active_mtu, 512,",
        Some(Mtu::Mtu1024) => "at most the port's active_mtu, 1024,",
        Some(Mtu::Mtu2048) => "at most the port's active_mtu, 2048,",
        Some(Mtu::Mtu4096) => "at most the port's active_mtu, 4096,",
    }
}
