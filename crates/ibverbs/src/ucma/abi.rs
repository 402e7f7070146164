//! The commands of `/dev/infiniband/rdma_cm` and what they answer, as `<rdma/rdma_user_cm.h>` lays them out (ABI version 4).
//!
//! Names are the header's without `rdma_ucm`. A test compares every size and offset with the header of the distribution.

use crate::marshal::KernAhAttr;
pub(crate) use crate::marshal::{KernPathRec as PathRec, KernQpAttr as QpAttr};

/// What may be copied from and to a program byte by byte.
///
/// # Safety
/// Every pattern of bits is a value, and there are no bytes between fields.
pub(crate) unsafe trait Plain: Copy {
    /// All zeros.
    fn zeroed() -> Self {
        // SAFETY: every pattern of bits is a value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "bytes between fields");
        // SAFETY: numbers and arrays of numbers, without bytes between them, as just said.
        unsafe impl Plain for $name {}
        )*

        /// What lies where: name, size, alignment, and the offset of each field.
        #[cfg(test)]
        fn layouts() -> Vec<Layout> {
            vec![$(Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: vec![$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            },)*]
        }
    };
}

#[cfg(test)]
struct Layout {
    name: &'static str,
    size: usize,
    align: usize,
    fields: Vec<(&'static str, usize)>,
}

plain! {
    /// What every command begins with: its number, bytes behind this header, bytes of the answer.
    Header { command: u32, input: u16, output: u16, }
    CreateId { uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5], }
    CreateIdResponse { id: u32, }
    DestroyId { response: u64, id: u32, reserved: u32, }
    DestroyIdResponse { events_reported: u32, }
    BindIp { response: u64, addr: SockaddrIn6, id: u32, }
    Bind { id: u32, addr_size: u16, reserved: u16, addr: SockaddrStorage, }
    ResolveIp { src_addr: SockaddrIn6, dst_addr: SockaddrIn6, id: u32, timeout_ms: u32, }
    ResolveAddr {
        id: u32, timeout_ms: u32, src_size: u16, dst_size: u16, reserved: u32,
        src_addr: SockaddrStorage, dst_addr: SockaddrStorage,
    }
    ResolveRoute { id: u32, timeout_ms: u32, }
    Query { response: u64, id: u32, option: u32, }
    QueryRouteResponse {
        node_guid: u64, ib_route: [PathRec; 2], src_addr: SockaddrIn6, dst_addr: SockaddrIn6,
        num_paths: u32, port_num: u8, reserved: [u8; 3], ibdev_index: u32, reserved1: u32,
    }
    QueryAddrResponse {
        node_guid: u64, port_num: u8, reserved: u8, pkey: u16, src_size: u16, dst_size: u16,
        src_addr: SockaddrStorage, dst_addr: SockaddrStorage, ibdev_index: u32, reserved1: u32,
    }
    /// Without the records that follow.
    QueryPathResponse { num_paths: u32, reserved: u32, }
    /// `struct ib_path_rec_data`, whose record is as it is on the wire.
    PathRecData { flags: u32, reserved: u32, path_rec: [u8; 64], }
    ConnParam {
        qp_num: u32, qkey: u32, private_data: [u8; 256], private_data_len: u8, srq: u8, responder_resources: u8,
        initiator_depth: u8, flow_control: u8, retry_count: u8, rnr_retry_count: u8, valid: u8,
    }
    UdParam {
        qp_num: u32, qkey: u32, ah_attr: KernAhAttr, private_data: [u8; 256], private_data_len: u8, reserved: [u8; 7],
    }
    Ece { vendor_id: u32, attr_mod: u32, }
    Connect { conn_param: ConnParam, id: u32, reserved: u32, ece: Ece, }
    Listen { id: u32, backlog: u32, }
    Accept { uid: u64, conn_param: ConnParam, id: u32, reserved: u32, ece: Ece, }
    Reject { id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; 256], }
    Disconnect { id: u32, }
    InitQpAttr { response: u64, id: u32, qp_state: u32, }
    Notify { id: u32, event: u32, }
    JoinIpMcast { response: u64, uid: u64, addr: SockaddrIn6, id: u32, }
    JoinMcast { response: u64, uid: u64, id: u32, addr_size: u16, join_flags: u16, addr: SockaddrStorage, }
    GetEvent { response: u64, }
    EventResponse { uid: u64, id: u32, event: u32, status: u32, param: Param, reserved: u32, ece: Ece, }
    SetOption { optval: u64, id: u32, level: u32, optname: u32, optlen: u32, }
    MigrateId { response: u64, id: u32, fd: u32, }
    MigrateResponse { events_reported: u32, }
    /// `struct iovec`.
    Part { base: usize, len: usize, }
}

/// `struct sockaddr_in6`, or a `struct sockaddr_in` in its place.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
pub(crate) struct SockaddrIn6(pub(crate) [u8; 28]);

/// `struct __kernel_sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct SockaddrStorage(pub(crate) [u8; 128]);

/// What an event says of the peer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Param {
    pub(crate) conn: ConnParam,
    pub(crate) ud: UdParam,
}

// SAFETY: bytes.
unsafe impl Plain for SockaddrIn6 {}
// SAFETY: bytes.
unsafe impl Plain for SockaddrStorage {}
// SAFETY: either of two such structures; what is behind the shorter one is zero where one is made.
unsafe impl Plain for Param {}
// SAFETY: numbers and arrays of numbers; the header's test knows every offset.
unsafe impl Plain for QpAttr {}
// SAFETY: as above.
unsafe impl Plain for PathRec {}

/// Numbers of commands.
pub(crate) mod command {
    pub(crate) const CREATE_ID: u32 = 0;
    pub(crate) const DESTROY_ID: u32 = 1;
    pub(crate) const BIND_IP: u32 = 2;
    pub(crate) const RESOLVE_IP: u32 = 3;
    pub(crate) const RESOLVE_ROUTE: u32 = 4;
    pub(crate) const QUERY_ROUTE: u32 = 5;
    pub(crate) const CONNECT: u32 = 6;
    pub(crate) const LISTEN: u32 = 7;
    pub(crate) const ACCEPT: u32 = 8;
    pub(crate) const REJECT: u32 = 9;
    pub(crate) const DISCONNECT: u32 = 10;
    pub(crate) const INIT_QP_ATTR: u32 = 11;
    pub(crate) const GET_EVENT: u32 = 12;
    pub(crate) const GET_OPTION: u32 = 13;
    pub(crate) const SET_OPTION: u32 = 14;
    pub(crate) const NOTIFY: u32 = 15;
    pub(crate) const JOIN_IP_MCAST: u32 = 16;
    pub(crate) const LEAVE_MCAST: u32 = 17;
    pub(crate) const MIGRATE_ID: u32 = 18;
    pub(crate) const QUERY: u32 = 19;
    pub(crate) const BIND: u32 = 20;
    pub(crate) const RESOLVE_ADDR: u32 = 21;
    pub(crate) const JOIN_MCAST: u32 = 22;
}

/// What `QUERY` asks for.
pub(crate) mod query {
    pub(crate) const ADDR: u32 = 0;
    pub(crate) const PATH: u32 = 1;
    pub(crate) const GID: u32 = 2;
}

#[cfg(test)]
mod tests;
