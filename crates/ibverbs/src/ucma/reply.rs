//! What commands answer, in the kernel's forms.

use userdma_host::cm::{self, Address, Event, IbAddress, Query};
use userdma_verbs::{PKey, QpAttr, QpAttrMask};

use super::abi::{
    ConnParam, Ece, EventResponse, Param, PathRec, PathRecData, Plain, QueryAddrResponse, QueryPathResponse,
    QueryRouteResponse, UdParam,
};
use super::address;
use crate::convert::{c_ah_attr, c_qp_attr};
use crate::marshal::{KernQpAttr, kern_ah_attr, kern_qp_attr};

/// An event of the identifier or membership with this number, which the program knows as `uid`.
pub(super) fn event(event: &Event, uid: u64, id: u32) -> EventResponse {
    let mut response = EventResponse {
        uid,
        id,
        event: event.kind as u32,
        status: event.status.cast_unsigned(),
        param: Param::zeroed(),
        reserved: 0,
        ece: Ece::zeroed(),
    };
    match &event.param {
        cm::Param::Conn(conn) => {
            response.param.conn = conn_param(conn);
            response.ece = Ece { vendor_id: conn.ece.vendor_id, attr_mod: conn.ece.attr_mod };
        }
        cm::Param::Ud(ud) => response.param.ud = ud_param(ud),
    }
    response
}

fn conn_param(conn: &cm::ConnParam) -> ConnParam {
    let (private_data, private_data_len) = private_data(&conn.private_data);
    ConnParam {
        qp_num: conn.qpn.get(),
        qkey: conn.qkey.get(),
        private_data,
        private_data_len,
        srq: conn.srq.into(),
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control.into(),
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
        valid: 0,
    }
}

fn ud_param(ud: &cm::UdParam) -> UdParam {
    let (private_data, private_data_len) = private_data(&ud.private_data);
    UdParam {
        qp_num: ud.qpn.get(),
        qkey: ud.qkey.get(),
        ah_attr: kern_ah_attr(&c_ah_attr(&ud.ah)),
        private_data,
        private_data_len,
        reserved: [0; 7],
    }
}

/// At most what the length can say; no message has so much.
fn private_data(data: &[u8]) -> ([u8; 256], u8) {
    let len = u8::try_from(data.len()).unwrap_or(u8::MAX);
    let mut room = [0; 256];
    room[..len.into()].copy_from_slice(&data[..len.into()]);
    (room, len)
}

/// Attributes for a queue pair, and which of them count.
pub(super) fn qp_attr(attr: &QpAttr, mask: QpAttrMask) -> KernQpAttr {
    let kern = kern_qp_attr(&c_qp_attr(attr), mask.bits());
    // It is not what a query tells, where the state is the current one.
    KernQpAttr { cur_qp_state: attr.cur_qp_state as u32, ..kern }
}

/// The device of an identifier: its number in the list, and its GUID.
#[derive(Clone, Copy)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) guid: [u8; 8],
}

/// As `ucma.c ucma_query_addr()`.
pub(super) fn query_addr(query: &Query, device: Option<Device>) -> QueryAddrResponse {
    let (src_addr, src_size) = address::build(query.src.as_ref());
    let (dst_addr, dst_size) = address::build(query.dst.as_ref());
    QueryAddrResponse { src_size, dst_size, src_addr, dst_addr, ..device_part(device) }
}

/// As `ucma.c ucma_query_gid()`: the GIDs, and the services that the ports stand for.
pub(super) fn query_gid(query: &Query, device: Option<Device>) -> QueryAddrResponse {
    let pkey = if device.is_some() { PKey::DEFAULT.get() } else { 0 };
    let ib = |own: Option<&Address>, gid, service_id| match own {
        Some(Address::Ib(own)) => address::build(Some(&Address::Ib(*own))),
        Some(Address::Ip(_)) | None => {
            address::build(Some(&Address::Ib(IbAddress { pkey, gid, service_id, ..IbAddress::default() })))
        }
    };
    let (src_addr, src_size) = ib(query.src.as_ref(), query.sgid, query.src_service_id);
    let (dst_addr, dst_size) = ib(query.dst.as_ref(), query.dgid, query.dst_service_id);
    QueryAddrResponse { src_size, dst_size, src_addr, dst_addr, ..device_part(device) }
}

fn device_part(device: Option<Device>) -> QueryAddrResponse {
    let mut response = QueryAddrResponse::zeroed();
    if let Some(Device { index, guid }) = device {
        response.node_guid = u64::from_ne_bytes(guid);
        response.port_num = 1;
        response.pkey = PKey::DEFAULT.get().to_be();
        response.ibdev_index = index;
    }
    response
}

/// As `ucma.c ucma_query_path()`: how many paths there are, and those for which there is room.
pub(super) fn query_path(query: &Query) -> (QueryPathResponse, Option<PathRecData>) {
    let record = query.path.as_ref().map(|path| PathRecData {
        flags: PATH_FLAGS,
        reserved: 0,
        path_rec: packed(path),
    });
    (QueryPathResponse { num_paths: record.is_some().into(), reserved: 0 }, record)
}

/// A path record as subnet management sends it, `struct ibv_path_record`.
fn packed(path: &cm::PathRecord) -> [u8; 64] {
    let mut record = [0; 64];
    let mut put = |at: usize, part: &[u8]| record[at..at + part.len()].copy_from_slice(part);
    put(8, &path.dgid.bytes());
    put(24, &path.sgid.bytes());
    put(44, &(path.flow_label << 8 | u32::from(path.hop_limit)).to_be_bytes());
    // Reversible, of which there is one.
    put(48, &[path.traffic_class, REVERSIBLE | 1]);
    put(50, &path.pkey.get().to_be_bytes());
    put(52, &u16::from(path.sl).to_be_bytes());
    put(54, &[EXACTLY << 6 | path.mtu as u8, EXACTLY << 6 | path.rate, EXACTLY << 6 | path.packet_life_time]);
    record
}

/// As `ucma.c ucma_query_route()`.
pub(super) fn query_route(query: &Query, device: Option<Device>) -> QueryRouteResponse {
    let mut response = QueryRouteResponse::zeroed();
    response.src_addr = address::build_in6(query.src.as_ref());
    response.dst_addr = address::build_in6(query.dst.as_ref());
    let Some(Device { index, guid }) = device else { return response };
    response.node_guid = u64::from_ne_bytes(guid);
    response.port_num = 1;
    response.ibdev_index = index;
    response.ib_route[0] = match &query.path {
        Some(path) => path_rec(path),
        None => PathRec {
            dgid: query.dgid.bytes(),
            sgid: query.sgid.bytes(),
            pkey: PKey::DEFAULT.get().to_be(),
            ..PathRec::zeroed()
        },
    };
    response.num_paths = query.path.is_some().into();
    response
}

fn path_rec(path: &cm::PathRecord) -> PathRec {
    PathRec {
        dgid: path.dgid.bytes(),
        sgid: path.sgid.bytes(),
        dlid: 0,
        slid: 0,
        raw_traffic: 0,
        flow_label: path.flow_label.to_be(),
        reversible: 1,
        mtu: path.mtu as u32,
        pkey: path.pkey.get().to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        numb_path: 0,
        sl: path.sl,
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        rate: path.rate,
        packet_life_time_selector: EXACTLY,
        packet_life_time: path.packet_life_time,
        preference: 0,
    }
}

/// A path for messages of management and for data, both ways: `IB_PATH_GMP`, `IB_PATH_PRIMARY`, `IB_PATH_BIDIRECTIONAL`.
pub(super) const PATH_FLAGS: u32 = 1 | 2 | 8 | 32;
const REVERSIBLE: u8 = 0x80;
/// The selector of a value that is no bound.
const EXACTLY: u8 = 2;
