//! What objects say of themselves when a program prints them: a line that identifies them, and nothing of their insides.

#![allow(clippy::unwrap_used, reason = "tests")]

use userdma::{AccessFlags, Device};

#[test]
fn objects_print_their_numbers_and_state() {
    let device = Device::open("127.47.22.2").unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(16).unwrap();
    let mr = pd.alloc(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let qp = pd.create_qp(&cq, &cq).build().unwrap();
    let ud = pd.create_qp(&cq, &cq).build_ud(userdma::QKey::new(1)).unwrap();
    let srq = pd.create_srq(8, 1).unwrap();
    assert!(format!("{pd:?}").starts_with("Pd(roce_lo "), "{pd:?}");
    assert_eq!(format!("{cq:?}"), format!("Cq(roce_lo {}, 0 of {})", cq.number(), cq.capacity()));
    assert_eq!(format!("{qp:?}"), format!("Qp(roce_lo {} Init)", qp.qpn()));
    assert_eq!(format!("{ud:?}"), format!("UdQp(roce_lo {} Rts)", ud.qpn()));
    let said = format!("{mr:?}");
    let addr = format!("Mr {{ addr: {:#x}, len: 4096, lkey: {:?}, ", mr.addr(), mr.lkey());
    assert!(said.starts_with(&addr) && said.ends_with("access: AccessFlags(LOCAL_WRITE) }"), "{said}");
    for said in [format!("{srq:?}"), said] {
        assert!(said.len() < 160, "{said}");
    }
}
