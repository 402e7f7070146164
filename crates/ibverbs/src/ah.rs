//! Address handles, also from what a datagram came with.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use userdma_host::Host;
use userdma_nic::AhId;
use userdma_objects::{Ah, UdAddr};
use userdma_verbs::{Gid, QKey, Qpn, WcFlags};

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
    grh: *const [u8; 40],
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
    grh: *const [u8; 40],
    port: u8,
) -> *mut abi::Ah {
    // SAFETY: the caller gives a domain that exists, and what `init_ah_from_wc` needs.
    pointer(|| unsafe { create(pd, &way_back(PdObject::of(pd).context(), port, &*wc, grh)?) })
}

/// # Safety
/// The domain exists.
unsafe fn create(pd: *mut abi::Pd, attr: &abi::AhAttr) -> Result<*mut abi::Ah, Refused> {
    // SAFETY: the caller's promise.
    let (domain, attr) = unsafe { (PdObject::of(pd), ah_attr(attr)?) };
    let (state, pd_id) = (Arc::clone(&domain.state), domain.id);
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
    grh: *const [u8; 40],
) -> Result<abi::AhAttr, Refused> {
    let has_grh = wc.wc_flags & WcFlags::GRH.bits() != 0;
    // SAFETY: the caller's promise.
    let came = if has_grh { Some(Came::read(unsafe { &*grh })?) } else { None };
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
        let index = host.gids().iter().position(|entry| entry.gid == came.to).ok_or(INVALID)?;
        attr.grh.dgid = abi::Gid(came.from.bytes());
        attr.grh.sgid_index = u8::try_from(index).map_err(|_| INVALID)?;
        attr.grh.hop_limit = came.hop_limit;
        attr.grh.traffic_class = came.traffic_class;
        attr.grh.flow_label = came.flow_label;
    }
    Ok(attr)
}

/// What the first 40 bytes of a datagram's buffer tell.
#[derive(Debug, Eq, PartialEq)]
struct Came {
    from: Gid,
    to: Gid,
    hop_limit: u8,
    traffic_class: u8,
    flow_label: u32,
}

impl Came {
    /// Reads an IPv6 header, or an IPv4 header behind 20 bytes of anything. Those bytes may look like IPv6: what looks like both
    /// is IPv4 if its checksum is right.
    fn read(area: &[u8; 40]) -> Result<Self, Refused> {
        let [first, second, third, fourth, ..] = *area;
        let flow_label = u32::from_be_bytes([0, second & 0xf, third, fourth]);
        let (_, ipv4) = area.split_at(20);
        let is_ipv4 =
            if first >> 4 == 6 { ipv4[0] & 0xf == 5 && sum(ipv4) == 0xffff } else { ipv4[0] >> 4 == 4 };
        if is_ipv4 {
            return Self::read_ipv4(ipv4, flow_label);
        }
        if first >> 4 != 6 || area[6] != UDP {
            return Err(Refused(libc::EPROTONOSUPPORT));
        }
        let address = |at: usize| Ipv6Addr::from(std::array::from_fn(|i| area[at + i]));
        if address(24).is_multicast() {
            return Err(INVALID);
        }
        let (from, to) = (Gid::new(address(8).octets()), Gid::new(address(24).octets()));
        let traffic_class = first << 4 | second >> 4;
        Ok(Self { from, to, hop_limit: area[7], traffic_class, flow_label })
    }

    fn read_ipv4(header: &[u8], flow_label: u32) -> Result<Self, Refused> {
        let address = |at: usize| Ipv4Addr::from(std::array::from_fn(|i| header[at + i]));
        let (from, to) = (address(12), address(16));
        if to.is_multicast() {
            return Err(INVALID);
        }
        Ok(Self {
            from: from.into(),
            to: to.into(),
            hop_limit: header[8],
            traffic_class: header[1],
            flow_label,
        })
    }
}

/// The ones' complement sum of a header: all ones if its checksum is right.
fn sum(header: &[u8]) -> u32 {
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    (sum & 0xffff) + (sum >> 16)
}

/// UDP as an IPv6 header's next header: RoCE v2. That of v1, which is not spoken here, is another.
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    /// From 10.99.0.2 to 10.99.0.1, captured from rxe, Linux 6.12.
    const IPV4: [u8; 20] = [
        0x45, 0x00, 0x00, 0x6c, 0xf3, 0x29, 0x40, 0x00, 0x40, 0x11, 0x32, 0x8f, 0x0a, 0x63, 0x00, 0x02, 0x0a,
        0x63, 0x00, 0x01,
    ];

    fn area(start: &[u8], end: &[u8]) -> [u8; 40] {
        let mut area = [0; 40];
        area[..start.len()].copy_from_slice(start);
        area[40 - end.len()..].copy_from_slice(end);
        area
    }

    fn ip(address: &str) -> Gid {
        Gid::from(address.parse::<std::net::IpAddr>().unwrap())
    }

    #[test]
    fn an_ipv4_header_is_found_behind_zeros_and_behind_rubbish() {
        let came = Came::read(&area(&[], &IPV4)).unwrap();
        assert_eq!((came.from, came.to), (ip("10.99.0.2"), ip("10.99.0.1")));
        assert_eq!((came.hop_limit, came.traffic_class, came.flow_label), (64, 0, 0));
        assert_eq!(Came::read(&area(&[0x60], &IPV4)).unwrap().from, ip("10.99.0.2"), "looks like IPv6");
    }

    #[test]
    fn an_ipv6_header_is_read_unless_the_ipv4_checksum_is_right() {
        let mut header = area(&[0x66, 0x81, 0x23, 0x45, 0, 36, 17, 9], &[]);
        header[8..24].copy_from_slice(&ip("fd99::2").bytes());
        header[24..].copy_from_slice(&ip("fd99::1").bytes());
        // In the middle of the source's address, where IPv4 would have its version and length.
        header[20] = 0x45;
        let came = Came::read(&header).unwrap();
        assert_eq!((came.to, came.hop_limit, came.traffic_class), (ip("fd99::1"), 9, 0x68));
        assert_eq!(came.flow_label, 0x1_2345);
    }

    #[test]
    fn nothing_leads_back_to_a_group_or_from_another_protocol() {
        let mut group = IPV4;
        group[16] = 224;
        assert_eq!(Came::read(&area(&[], &group)), Err(INVALID));
        assert_eq!(Came::read(&area(&[0x60, 0, 0, 0, 0, 0, 0x1b], &[])), Err(Refused(libc::EPROTONOSUPPORT)));
        assert_eq!(Came::read(&[0; 40]), Err(Refused(libc::EPROTONOSUPPORT)));
    }
}
