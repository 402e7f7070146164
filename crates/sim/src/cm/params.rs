//! What programs of tests ask for and answer where it does not matter.

use std::net::IpAddr;

use userdma_mgmt::cm::{RepParams, ReqParams};
use userdma_mgmt::rdma::{Ece, PathRecord};
use userdma_verbs::{Gid, Mtu, PKey, Psn, QpType, Qpn};

use super::{PORT, SERVICE};

/// A request from the first address to the second, over a path on which a packet is under way for
/// 4.096 µs · 2^`packet_life_time` at most.
pub(crate) fn req(
    (from, to): (IpAddr, IpAddr),
    qpn: Qpn,
    starting_psn: Psn,
    packet_life_time: u8,
) -> ReqParams<'static> {
    ReqParams {
        port: PORT,
        from,
        to,
        service_id: SERVICE,
        qpn,
        qp_type: QpType::Rc,
        starting_psn,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        flow_control: false,
        srq: false,
        path: PathRecord {
            sgid: Gid::default(),
            dgid: Gid::default(),
            flow_label: 0,
            hop_limit: 64,
            traffic_class: 0,
            sl: 0,
            pkey: PKey::DEFAULT,
            mtu: Mtu::Mtu1024,
            rate: 0,
            packet_life_time,
        },
        ack_timeout: packet_life_time + 1,
        remote_response_timeout: 20,
        local_response_timeout: 20,
        max_cm_retries: 15,
        private_data: &[],
        ece: Ece::default(),
    }
}

/// Its acceptance.
pub(crate) fn rep(qpn: Qpn, starting_psn: Psn) -> RepParams<'static> {
    RepParams {
        qpn,
        starting_psn,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        target_ack_delay: 15,
        private_data: &[],
        ece: Ece::default(),
    }
}
