//! What devices and ports are.

use std::ffi::{c_int, c_void};

use userdma_host::GidEntry;
use userdma_verbs::{DeviceAttr, PKey, PortAttr, PortState};

use crate::abi::{self, Context};
use crate::answer::{INVALID, Refused, number, status, wrong};
use crate::context::state;
use crate::devices::{DeviceObject, put};
use crate::lids::Lids;

/// `ibv_query_device`.
pub(crate) unsafe extern "C" fn query_device(context: *mut Context, attr: *mut abi::DeviceAttr) -> c_int {
    status(|| {
        // SAFETY: the caller gives an open context and room for the attributes.
        unsafe { attr.write(device_attr(context)) };
        Ok(())
    })
}

/// `ibv_query_device_ex`, with the size of the structure as the program was compiled with it.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut Context,
    input: *const c_void,
    attr: *mut abi::DeviceAttrEx,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: the input, if there is one, starts with a mask of what follows.
        let has_input = !input.is_null() && unsafe { input.cast::<u32>().read() } != 0;
        if has_input || size < size_of::<abi::DeviceAttr>() {
            return Err(INVALID);
        }
        let full = abi::DeviceAttrEx {
            // SAFETY: the caller gives an open context.
            orig_attr: unsafe { device_attr(context) },
            comp_mask: 0,
            odp_caps: [0; 3],
            completion_timestamp_mask: 0,
            hca_core_clock: 0,
            device_cap_flags_ex: u64::from(CAPABILITIES),
            none: [0; 27],
            phys_port_cnt_ex: 1,
        };
        // SAFETY: the caller has room for `size` bytes.
        unsafe { write_sized(&full, attr.cast(), size) };
        Ok(())
    })
}

/// `ibv_query_port` of the library: the part of the structure that the oldest programs know.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut Context,
    port: u8,
    attr: *mut abi::PortAttr,
) -> c_int {
    // SAFETY: the caller has room for so much.
    unsafe { query_port_sized(context, port, attr, OLDEST_PORT_ATTR) }
}

/// `ibv_query_port` of the header, with the size of the structure as the program was compiled with it.
pub(crate) unsafe extern "C" fn query_port_sized(
    context: *mut Context,
    port: u8,
    attr: *mut abi::PortAttr,
    size: usize,
) -> c_int {
    status(|| {
        check_port(port)?;
        // SAFETY: the caller gives an open context.
        let state = unsafe { state(context) };
        let own = state.host().control(|shard, _| shard.port_attr())?;
        let attributes = abi::PortAttr {
            state: own.state as c_int,
            max_mtu: own.max_mtu as c_int,
            active_mtu: own.active_mtu as c_int,
            gid_tbl_len: int(own.gid_tbl_len),
            port_cap_flags: PORT_CAPABILITIES,
            max_msg_sz: own.max_msg_sz,
            bad_pkey_cntr: 0,
            qkey_viol_cntr: 0,
            pkey_tbl_len: 1,
            lid: state.lids().map_or(0, Lids::own),
            sm_lid: 0,
            lmc: 0,
            max_vl_num: 1,
            sm_sl: 0,
            subnet_timeout: 0,
            init_type_reply: 0,
            active_width: WIDTH_1X,
            active_speed: SPEED_10_GBIT,
            phys_state: if own.state == PortState::Down { PHYS_DISABLED } else { PHYS_LINK_UP },
            link_layer: LINK_LAYER_ETHERNET,
            flags: 0,
            port_cap_flags2: 0,
        };
        // SAFETY: the caller has room for `size` bytes.
        unsafe { write_sized(&attributes, attr.cast(), size) };
        Ok(())
    })
}

/// `ibv_query_gid`. An empty entry is zero.
pub(crate) unsafe extern "C" fn query_gid(
    context: *mut Context,
    port: u8,
    index: c_int,
    gid: *mut abi::Gid,
) -> c_int {
    number(|| {
        let index = u32::try_from(index).map_err(|_| INVALID)?;
        // SAFETY: the caller gives an open context.
        let entry = unsafe { entry(context, port.into(), index) }?;
        // SAFETY: the caller has room for a GID.
        unsafe { gid.write(abi::Gid(entry.map_or([0; 16], |entry| entry.gid.bytes()))) };
        Ok(0)
    })
}

/// `_ibv_query_gid_ex`, which the header's `ibv_query_gid_ex` calls with the size that it knows. `ENODATA` for an empty entry.
pub(crate) unsafe extern "C" fn query_gid_ex(
    context: *mut Context,
    port: u32,
    index: u32,
    to: *mut abi::GidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    status(|| {
        if flags != 0 {
            return Err(INVALID);
        }
        // SAFETY: the caller gives an open context.
        let entry = unsafe { entry(context, port, index) }?.ok_or(Refused(libc::ENODATA))?;
        // SAFETY: the caller has room for `size` bytes.
        unsafe { write_sized(&gid_entry(entry, index), to.cast(), size) };
        Ok(())
    })
}

/// `_ibv_query_gid_table`: all entries of all ports, `size` bytes each; their number, or a negative error number, also if there
/// is no room for all.
pub(crate) unsafe extern "C" fn query_gid_table(
    context: *mut Context,
    entries: *mut abi::GidEntry,
    max_entries: usize,
    flags: u32,
    size: usize,
) -> isize {
    // SAFETY: the caller gives an open context.
    let gids = unsafe { state(context) }.host().gids();
    if flags != 0 || gids.len() > max_entries {
        return -(libc::EINVAL as isize);
    }
    for ((place, gid), index) in gids.iter().enumerate().zip(0..) {
        // SAFETY: the caller has room for `max_entries` of `size` bytes.
        unsafe { write_sized(&gid_entry(gid, index), entries.byte_add(place * size).cast(), size) };
    }
    gids.len().cast_signed()
}

/// `ibv_query_gid_type`, by which the tools of the distribution tell RoCE v2 from v1. An empty entry has the type that is 0.
pub(crate) unsafe extern "C" fn query_gid_type(
    context: *mut Context,
    port: u8,
    index: u32,
    gid_type: *mut c_int,
) -> c_int {
    number(|| {
        // SAFETY: the caller gives an open context.
        let entry = unsafe { entry(context, port.into(), index) }?;
        // SAFETY: the caller has room for the type.
        unsafe { gid_type.write(entry.map_or(SYSFS_NONE, |_| SYSFS_ROCE_V2)) };
        Ok(0)
    })
}

/// `ibv_query_pkey`, in network order.
pub(crate) unsafe extern "C" fn query_pkey(_: *mut Context, port: u8, index: c_int, pkey: *mut u16) -> c_int {
    number(|| {
        check_port(port)?;
        if index != 0 {
            return Err(INVALID);
        }
        // SAFETY: the caller has room for a key.
        unsafe { pkey.write(PKey::DEFAULT.get().to_be()) };
        Ok(0)
    })
}

/// `ibv_get_pkey_index`, of a key in network order.
pub(crate) unsafe extern "C" fn get_pkey_index(_: *mut Context, port: u8, pkey: u16) -> c_int {
    number(|| {
        check_port(port)?;
        if u16::from_be(pkey) == PKey::DEFAULT.get() { Ok(0) } else { Err(INVALID) }
    })
}

fn check_port(port: u8) -> Result<(), Refused> {
    if port == 1 { Ok(()) } else { Err(wrong("port_num", port, "1")) }
}

/// An entry of the GID table; `None` if it is empty.
///
/// # Safety
/// `context` is open as long as the result is used.
unsafe fn entry<'a>(context: *mut Context, port: u32, index: u32) -> Result<Option<&'a GidEntry>, Refused> {
    if port != 1 || index >= PortAttr::GID_TBL_LEN {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { state(context) }.host().gids().get(index as usize))
}

fn gid_entry(entry: &GidEntry, index: u32) -> abi::GidEntry {
    let interface = userdma_link::interface_of(entry.local, entry.scope_id).ok().flatten();
    abi::GidEntry {
        gid: abi::Gid(entry.gid.bytes()),
        gid_index: index,
        port_num: 1,
        gid_type: GID_TYPE_ROCE_V2,
        ndev_ifindex: interface.map_or(0, |interface| interface.index),
    }
}

/// Copies as much of `value` as there is room for, and fills the rest with zeros.
///
/// # Safety
/// `size` bytes at `to` may be written.
unsafe fn write_sized<T>(value: &T, to: *mut u8, size: usize) {
    let len = size.min(size_of::<T>());
    // SAFETY: `len` is within both, and the rest within the caller's room.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast(), to, len);
        to.add(len).write_bytes(0, size - len);
    }
}

/// # Safety
/// `context` is open.
unsafe fn device_attr(context: *mut Context) -> abi::DeviceAttr {
    const LIMITS: DeviceAttr = DeviceAttr::LIMITS;
    // SAFETY: a context's device is one of the list.
    let guid = u64::from_ne_bytes(unsafe { DeviceObject::of((*context).device) }.guid());
    let mut attr = abi::DeviceAttr {
        fw_ver: [0; 64],
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: LIMITS.max_mr_size,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR_ID,
        vendor_part_id: VENDOR_PART_ID,
        hw_ver: 0,
        max_qp: int(LIMITS.max_qp),
        max_qp_wr: int(LIMITS.max_qp_wr),
        device_cap_flags: CAPABILITIES,
        max_sge: int(LIMITS.max_sge),
        max_sge_rd: int(LIMITS.max_sge),
        max_cq: int(LIMITS.max_cq),
        max_cqe: int(LIMITS.max_cqe),
        max_mr: int(LIMITS.max_mr),
        max_pd: int(LIMITS.max_pd),
        max_qp_rd_atom: LIMITS.max_qp_rd_atom.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: c_int::from(LIMITS.max_qp_rd_atom) * int(LIMITS.max_qp),
        max_qp_init_rd_atom: LIMITS.max_qp_init_rd_atom.into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: ATOMIC_GLOB,
        max_ee: 0,
        max_rdd: 0,
        max_mw: int(LIMITS.max_mw),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(LIMITS.max_mcast_grp),
        max_mcast_qp_attach: int(LIMITS.max_mcast_qp_attach),
        max_total_mcast_qp_attach: int(LIMITS.max_total_mcast_qp_attach),
        max_ah: int(LIMITS.max_pd),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(LIMITS.max_srq),
        max_srq_wr: int(LIMITS.max_srq_wr),
        max_srq_sge: int(LIMITS.max_srq_sge),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
    };
    put(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr
}

/// A limit as the C structures have it.
pub(crate) fn int(limit: u32) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

/// `IBV_DEVICE_SYS_IMAGE_GUID`, `RC_RNR_NAK_GEN`, `SRQ_RESIZE`, `MEM_WINDOW` (of type 1), `MEM_MGT_EXTENSIONS` (invalidation)
/// and `MEM_WINDOW_TYPE_2B`.
const CAPABILITIES: u32 = 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 21 | 1 << 24;
/// `IBV_ATOMIC_GLOB`: atomics are the processor's.
const ATOMIC_GLOB: c_int = 2;
const OLDEST_PORT_ATTR: usize = 48;
/// `IBV_PORT_CM_SUP` and `IBV_PORT_IP_BASED_GIDS`.
pub(crate) const PORT_CAPABILITIES: u32 = 1 << 16 | 1 << 26;
/// No vendor's, so that nobody takes the device for one of theirs.
pub(crate) const VENDOR_ID: u32 = 0xff_ffff;
pub(crate) const VENDOR_PART_ID: u32 = 0;
const WIDTH_1X: u8 = 1;
const SPEED_10_GBIT: u8 = 4;
/// A port that is down.
const PHYS_DISABLED: u8 = 3;
const PHYS_LINK_UP: u8 = 5;
const LINK_LAYER_ETHERNET: u8 = 2;
/// `IBV_GID_TYPE_ROCE_V2`, of `struct ibv_gid_entry`.
const GID_TYPE_ROCE_V2: u32 = 2;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`, of the private function.
const SYSFS_ROCE_V2: c_int = 1;
/// `IBV_GID_TYPE_SYSFS_IB_ROCE_V1`.
const SYSFS_NONE: c_int = 0;
