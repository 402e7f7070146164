//! Address handles, also from what a datagram came with.

use std::ffi::c_int;
use std::sync::Arc;

use userdma_host::Host;
use userdma_nic::AhId;
use userdma_objects::{Ah, UdAddr};
use userdma_verbs::{Gid, QKey, Qpn, WcFlags};
use userdma_wire::NetworkHeader;

use crate::abi::{self, Context};
use crate::answer::{INVALID, Refused, minus_one, pointer, status};
use crate::context::{self, ContextState};
use crate::convert::ah_attr;
use crate::pd::PdObject;

/// What a `struct ibv_ah` lies in.
#[repr(C)]
pub(crate) struct AhObject {
    abi: abi::Ah,
    state: Arc<ContextState>,
    id: AhId,
    ah: Ah,
}

impl AhObject {
    /// Whom a datagram of a queue pair on `host` is for that names this handle.
    ///
    /// # Safety
    /// `ah` is null, or was made here and is not destroyed.
    #[inline]
    pub(crate) unsafe fn addr(
        ah: *const abi::Ah,
        qpn: u32,
        qkey: u32,
        host: &Host,
    ) -> Result<UdAddr, Refused> {
        // SAFETY: the caller's promise.
        let object = unsafe { ah.cast::<Self>().as_ref() }.ok_or(INVALID)?;
        if !object.state.host().is_same(host) {
            return Err(INVALID);
        }
        Ok(UdAddr { ah: object.ah, remote_qpn: Qpn::new(qpn), remote_qkey: QKey::new(qkey) })
    }
}

/// `ibv_create_ah`.
pub(crate) unsafe extern "C" fn create_ah(pd: *mut abi::Pd, attr: *mut abi::AhAttr) -> *mut abi::Ah {
    // SAFETY: the caller gives a domain that exists, and attributes.
    pointer(|| unsafe { create(pd, &*attr) })
}

/// `ibv_destroy_ah`. What was posted with it is sent all the same.
pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut abi::Ah) -> c_int {
    status(|| {
        let ah = ah.cast::<AhObject>();
        // SAFETY: the caller gives an address handle that exists.
        let AhObject { state, id, .. } = unsafe { &*ah };
        let id = *id;
        state.host().control(move |shard, _| shard.destroy_ah(id))??;
        // SAFETY: the caller gives it up.
        drop(unsafe { Box::from_raw(ah) });
        Ok(())
    })
}

/// `ibv_init_ah_from_wc`: the attributes of a handle that leads back to where a datagram came from.
pub(crate) unsafe extern "C" fn init_ah_from_wc(
    context: *mut Context,
    port: u8,
    wc: *const abi::Wc,
    grh: *const [u8; NetworkHeader::LEN],
    attr: *mut abi::AhAttr,
) -> c_int {
    // SAFETY: the caller gives an open context, a completion, and if that says so the first 40 bytes of its buffer.
    match unsafe { way_back(context, port, &*wc, grh) } {
        Ok(found) => {
            // SAFETY: the caller has room.
            unsafe { attr.write(found) };
            0
        }
        Err(refused) => minus_one(refused),
    }
}

/// `ibv_create_ah_from_wc`.
pub(crate) unsafe extern "C" fn create_ah_from_wc(
    pd: *mut abi::Pd,
    wc: *const abi::Wc,
    grh: *const [u8; NetworkHeader::LEN],
    port: u8,
) -> *mut abi::Ah {
    // SAFETY: the caller gives a domain that exists, and what `init_ah_from_wc` needs.
    pointer(|| unsafe { create(pd, &way_back(PdObject::of(pd).context(), port, &*wc, grh)?) })
}

/// # Safety
/// The domain exists.
unsafe fn create(pd: *mut abi::Pd, attr: &abi::AhAttr) -> Result<*mut abi::Ah, Refused> {
    // SAFETY: the caller's promise.
    let domain = unsafe { PdObject::of(pd) };
    let (state, pd_id) = (Arc::clone(&domain.state), domain.id);
    let attr = ah_attr(attr, state.lids())?;
    let (id, ah) = state.host().control(move |shard, _| shard.create_ah(pd_id, &attr))??;
    let object = AhObject { abi: abi::Ah { context: domain.context(), pd, handle: id.0 }, state, id, ah };
    let object = Box::into_raw(Box::new(object));
    // Requests name it by its address.
    let _ = object.expose_provenance();
    Ok(object.cast())
}

/// # Safety
/// The context is open, and there are 40 bytes at `grh` if the completion says so.
unsafe fn way_back(
    context: *mut Context,
    port: u8,
    wc: &abi::Wc,
    grh: *const [u8; NetworkHeader::LEN],
) -> Result<abi::AhAttr, Refused> {
    let has_grh = wc.wc_flags & WcFlags::GRH.bits() != 0;
    // SAFETY: the caller's promise.
    let came = if has_grh { Some(read(unsafe { &*grh })?) } else { None };
    let mut attr = abi::AhAttr {
        grh: abi::GlobalRoute {
            dgid: abi::Gid([0; 16]),
            flow_label: 0,
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
        },
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: u8::from(has_grh),
        port_num: port,
    };
    if let Some(came) = came {
        // SAFETY: the caller's promise.
        let host = unsafe { context::state(context) }.host();
        let index = host.gids().iter().position(|entry| entry.gid == Gid::from(came.dst)).ok_or(INVALID)?;
        attr.grh.dgid = abi::Gid(Gid::from(came.src).bytes());
        attr.grh.sgid_index = u8::try_from(index).map_err(|_| INVALID)?;
        attr.grh.hop_limit = came.hop_limit;
        attr.grh.traffic_class = came.traffic_class;
        attr.grh.flow_label = came.flow_label;
    }
    Ok(attr)
}

/// Where a datagram came from.
fn read(grh: &[u8; NetworkHeader::LEN]) -> Result<NetworkHeader, Refused> {
    let came = NetworkHeader::read(grh).map_err(|_| Refused(libc::EPROTONOSUPPORT))?;
    // Nothing leads back from a group.
    if came.dst.is_multicast() { Err(INVALID) } else { Ok(came) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_back_to_a_group_or_from_another_protocol() {
        let header = |dst: &str| NetworkHeader {
            src: "10.99.0.2".parse().unwrap(),
            dst: dst.parse().unwrap(),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let found = header("10.99.0.1");
        assert_eq!(read(&found.write(100)), Ok(found));
        assert_eq!(read(&header("224.0.0.9").write(100)), Err(INVALID));
        assert_eq!(read(&[0; 40]), Err(Refused(libc::EPROTONOSUPPORT)));
    }
}
