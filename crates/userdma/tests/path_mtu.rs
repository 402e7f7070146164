//! Sides whose links carry different sizes agree on the smaller one.

mod common;

use userdma::{Device, Endpoint, Mtu};

#[test]
fn the_smaller_path_mtu_of_the_two_sides_is_used() {
    let device = Device::open("127.0.222.2").unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4).unwrap());
    for (theirs, used) in [(Mtu::Mtu512, Mtu::Mtu512), (Mtu::Mtu4096, Mtu::Mtu4096)] {
        let qp = pd.create_qp(&cq, &cq).build().unwrap();
        assert_eq!(qp.endpoint().path_mtu, Mtu::Mtu4096, "loopback carries the largest");
        let peer = Endpoint { path_mtu: theirs, ..qp.endpoint() };
        assert_eq!(qp.connect(&peer).unwrap().query().unwrap().path_mtu, used);
    }
}
