//! Attributes of devices, ports, queue pairs and address vectors.

use std::time::Duration;

use crate::{AccessFlags, AckTimeout, Gid, PKey, Psn, QKey, QpState, QpType, Qpn};

/// A path MTU: the most payload bytes a packet carries. Values of `enum ibv_mtu`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    #[default]
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// Every MTU, smallest first.
    pub const ALL: [Self; 5] = [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Bytes: 256 ..= 4096.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The MTU with this value of `enum ibv_mtu`: 1 ..= 5.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as u32 == code)
    }

    /// The MTU of exactly `bytes` bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.bytes() == bytes)
    }

    /// The largest MTU whose RoCE v2 packets fit a link that carries `link_bytes` above Ethernet: payload and
    /// at most 40 + 8 + 12 + 28 + 4 bytes of IPv6, UDP, BTH, the longest extended headers in use, and ICRC.
    /// Real adapters reserve a little more; so does this: links of 1500 bytes give 1024, of 4200 give 4096.
    pub fn for_link(link_bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|m| m.link_bytes() <= link_bytes)
    }

    /// Bytes that a link must carry above Ethernet for packets with this MTU: see [`Mtu::for_link`].
    pub const fn link_bytes(self) -> u32 {
        self.bytes() + 92
    }
}

/// An RNR NAK timer: 5 bits that stand for 0.01 to 655.36 ms.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The timer with this code: 0 ..= 31, `None` above.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The code: 0 ..= 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time it stands for. As the kernel's `rxe_comp.c rnrnak_usec`.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(RNR_MICROS[self.0 as usize & 31])
    }
}

/// Microseconds of each RNR timer code. Code 0 is the longest.
const RNR_MICROS: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120,
    7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_410, 81_920, 122_880, 163_840, 245_760, 327_680,
    491_520,
];

/// The global route of an address vector.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GlobalRoute {
    /// The peer's GID.
    pub dgid: Gid,
    /// Flow label: 20 bits. Chooses the UDP source port if not 0.
    pub flow_label: u32,
    /// Index of the local GID.
    pub sgid_index: u8,
    /// Hop limit; 0 is taken as 64, since packets with hop limit 0 go nowhere.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN bits.
    pub traffic_class: u8,
}

/// An address vector, as `struct ibv_ah_attr`. RoCE has no LIDs: the global route is all there is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AhAttr {
    /// The route.
    pub grh: GlobalRoute,
    /// Service level: 0 ..= 15.
    pub sl: u8,
    /// The local port, from 1.
    pub port_num: u8,
}

impl AhAttr {
    /// The way from the first GID of port 1 to `dgid`, with the defaults for everything else.
    pub fn to(dgid: Gid) -> Self {
        Self { grh: GlobalRoute { dgid, ..GlobalRoute::default() }, sl: 0, port_num: 1 }
    }
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QpCap {
    /// Send work requests that may be outstanding.
    pub max_send_wr: u32,
    /// Receive work requests that may be outstanding.
    pub max_recv_wr: u32,
    /// Elements of a send's scatter/gather list.
    pub max_send_sge: u32,
    /// Elements of a receive's scatter/gather list.
    pub max_recv_sge: u32,
    /// Bytes of an inline send.
    pub max_inline_data: u32,
}

/// How a queue pair is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpInitAttr {
    /// Transport service.
    pub qp_type: QpType,
    /// Sizes wanted; what was made may be larger.
    pub cap: QpCap,
    /// Whether every send completes, signaled or not.
    pub sq_sig_all: bool,
}

/// Attributes that a modify sets and a query reads, as `struct ibv_qp_attr`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpAttr {
    /// The state.
    pub qp_state: QpState,
    /// The state that the caller believes the QP to be in.
    pub cur_qp_state: QpState,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Guards datagram QPs.
    pub qkey: QKey,
    /// PSN that the peer starts with.
    pub rq_psn: Psn,
    /// PSN that this side starts with.
    pub sq_psn: Psn,
    /// The peer's QP.
    pub dest_qp_num: Qpn,
    /// What the peer may do through this QP.
    pub qp_access_flags: AccessFlags,
    /// Sizes.
    pub cap: QpCap,
    /// The path.
    pub ah_attr: AhAttr,
    /// Index into the partition table.
    pub pkey_index: u16,
    /// Whether SQD reports when it has drained.
    pub en_sqd_async_notify: bool,
    /// READs and atomics that this side may have outstanding: 0 ..= 128.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding here: 0 ..= 128.
    pub max_dest_rd_atomic: u8,
    /// What an RNR NAK from here asks the peer to wait.
    pub min_rnr_timer: RnrTimer,
    /// The local port, from 1.
    pub port_num: u8,
    /// How long to wait for an acknowledgement.
    pub timeout: AckTimeout,
    /// Resends before giving up: 0 ..= 7.
    pub retry_cnt: u8,
    /// Resends after RNR before giving up: 0 ..= 7, 7 is for ever.
    pub rnr_retry: u8,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            qp_state: QpState::Reset,
            cur_qp_state: QpState::Reset,
            path_mtu: Mtu::Mtu1024,
            qkey: QKey::new(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            dest_qp_num: Qpn::new(0),
            qp_access_flags: AccessFlags::empty(),
            cap: QpCap::default(),
            ah_attr: AhAttr::default(),
            pkey_index: 0,
            en_sqd_async_notify: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: RnrTimer::default(),
            port_num: 1,
            timeout: AckTimeout::default(),
            retry_cnt: 0,
            rnr_retry: 0,
        }
    }
}

/// State of a port. Values of `enum ibv_port_state`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum PortState {
    /// No link.
    Down = 1,
    /// Usable.
    Active = 4,
}

/// What a port is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortAttr {
    /// Whether it is usable.
    pub state: PortState,
    /// The largest MTU the device supports.
    pub max_mtu: Mtu,
    /// The largest MTU the link carries.
    pub active_mtu: Mtu,
    /// Longest message, bytes.
    pub max_msg_sz: u32,
    /// Entries of the GID table: [`PortAttr::GID_TBL_LEN`], of which the first are the device's addresses. The others are empty.
    pub gid_tbl_len: u32,
    /// The only partition.
    pub pkey: PKey,
}

impl PortAttr {
    /// As many as an `sgid_index` can name, and more than a device has addresses.
    pub const GID_TBL_LEN: u32 = 256;
}

/// The limits of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceAttr {
    /// Longest region, bytes.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Outstanding work requests of a queue.
    pub max_qp_wr: u32,
    /// Elements of a scatter/gather list.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives that may be posted to a shared receive queue and not taken.
    pub max_srq_wr: u32,
    /// Elements of the scatter/gather list of a shared receive queue's receives.
    pub max_srq_sge: u32,
    /// Groups (multicast) that queue pairs may be attached to.
    pub max_mcast_grp: u32,
    /// Queue pairs that may be attached to one group.
    pub max_mcast_qp_attach: u32,
    /// Attachments of all groups.
    pub max_total_mcast_qp_attach: u32,
    /// READs and atomics that a peer may have outstanding on a QP.
    pub max_qp_rd_atom: u8,
    /// READs and atomics that a QP may have outstanding.
    pub max_qp_init_rd_atom: u8,
    /// Longest message, bytes.
    pub max_msg_sz: u32,
}

impl DeviceAttr {
    /// What this implementation offers.
    pub const LIMITS: Self = Self {
        max_mr_size: 1 << 47,
        max_qp: (1 << 14) - 2,
        max_qp_wr: 1 << 16,
        max_sge: 32,
        max_inline_data: 1024,
        max_cq: 1 << 16,
        max_cqe: 1 << 22,
        max_mr: 1 << 17,
        max_mw: 1 << 17,
        max_pd: 1 << 16,
        max_srq: 1 << 16,
        max_srq_wr: 1 << 16,
        max_srq_sge: 32,
        max_mcast_grp: 128,
        max_mcast_qp_attach: 256,
        max_total_mcast_qp_attach: 128 * 256,
        max_qp_rd_atom: 128,
        max_qp_init_rd_atom: 128,
        max_msg_sz: 1 << 31,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_give_the_mtu_that_adapters_give() {
        assert_eq!(Mtu::for_link(1500), Some(Mtu::Mtu1024));
        assert_eq!(Mtu::for_link(4200), Some(Mtu::Mtu4096));
        assert_eq!(Mtu::for_link(65_536), Some(Mtu::Mtu4096));
        assert_eq!(Mtu::for_link(300), None);
        assert_eq!(Mtu::Mtu256.bytes(), 256);
    }

    #[test]
    fn rnr_timers_have_their_durations() {
        let ms = |code| RnrTimer::new(code).map(|t| t.duration().as_micros());
        assert_eq!((ms(0), ms(1), ms(12), ms(31)), (Some(655_360), Some(10), Some(640), Some(491_520)));
        assert_eq!(ms(32), None);
    }
}
