//! Whose port it is.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn home(addresses: &[&str]) -> Home {
    Home { udp_port: 4791, addresses: addresses.iter().map(|text| ip(text)).collect() }
}

fn at(address: &str, port: u16) -> PortRequest {
    PortRequest { space: PortSpace::Tcp, port, address: ip(address), reuse_address: false, af_only: true }
}

/// Reserves port 7 for members 1, 2, … with these homes and requests, one after another; what each is told.
fn reserve_all(wishes: &[(&[&str], PortRequest)]) -> Vec<Result<u16, PortError>> {
    let mut registry = Registry::default();
    let each = (1..).zip(wishes);
    each.map(|(member, (addresses, request))| {
        registry.reserve(Member(member), &home(addresses), 1, request, 0)
    })
    .collect()
}

#[test]
fn a_port_of_an_address_is_one_devices() {
    let taken = reserve_all(&[(&["10.0.0.1"], at("10.0.0.1", 7)), (&["10.0.0.1"], at("10.0.0.1", 7))]);
    assert_eq!(taken, [Ok(7), Err(PortError::InUse)]);
    let elsewhere = reserve_all(&[(&["10.0.0.1"], at("10.0.0.1", 7)), (&["10.0.0.2"], at("10.0.0.2", 7))]);
    assert_eq!(elsewhere, [Ok(7), Ok(7)], "another address is another host");
    let udp = PortRequest { space: PortSpace::Udp, ..at("10.0.0.1", 7) };
    let spaces = reserve_all(&[(&["10.0.0.1"], at("10.0.0.1", 7)), (&["10.0.0.1"], udp)]);
    assert_eq!(spaces, [Ok(7), Ok(7)], "another port space");
    assert_eq!(reserve_all(&[(&["10.0.0.1"], at("10.0.0.9", 7))]), [Err(PortError::NotAvailable)]);
}

#[test]
fn all_addresses_of_a_device_are_those_of_its_family() {
    let both: &[&str] = &["10.0.0.1", "fd00::1"];
    let (v4, v6) = (at("0.0.0.0", 7), at("::", 7));
    assert_eq!(reserve_all(&[(both, v4), (both, v6)]), [Ok(7), Ok(7)]);
    let dual = PortRequest { af_only: false, ..v6 };
    assert_eq!(reserve_all(&[(both, v4), (both, dual)]), [Ok(7), Err(PortError::NotAvailable)]);
    assert_eq!(
        reserve_all(&[(both, dual), (both, at("10.0.0.1", 7))]),
        [Ok(7), Err(PortError::NotAvailable)]
    );
    assert_eq!(reserve_all(&[(&["10.0.0.1"], v4), (&["10.0.0.2"], v4)]), [Ok(7), Ok(7)]);
    assert_eq!(
        reserve_all(&[(&["10.0.0.1"], v6)]),
        [Err(PortError::NotAvailable)],
        "no address of the family"
    );
}

#[test]
fn a_port_is_shared_by_those_who_agree_until_one_listens() {
    let (mut registry, home) = (Registry::default(), home(&["10.0.0.1"]));
    let shared = PortRequest { reuse_address: true, ..at("10.0.0.1", 7) };
    for member in [1, 2] {
        registry.reserve(Member(member), &home, 5, &shared, 0).unwrap();
    }
    assert_eq!(
        registry.reserve(Member(3), &home, 5, &at("10.0.0.1", 7), 0),
        Err(PortError::InUse),
        "who does not agree"
    );
    assert_eq!(registry.begin_listening(Member(1), 5), Err(PortError::InUse), "the other is there");
    registry.release(Member(2), 5);
    registry.begin_listening(Member(1), 5).unwrap();
    registry.begin_listening(Member(1), 5).unwrap();
    assert_eq!(registry.reserve(Member(2), &home, 6, &shared, 0), Err(PortError::InUse), "one listens");
    assert_eq!(registry.begin_listening(Member(2), 5), Err(PortError::Unknown));
    registry.end_listening(Member(1), 5);
    assert_eq!(registry.reserve(Member(2), &home, 6, &shared, 0), Ok(7), "no longer");
}

#[test]
fn ephemeral_ports_are_taken_in_turn_from_where_chance_says() {
    let (mut registry, home) = (Registry::default(), home(&["10.0.0.1"]));
    let any = at("10.0.0.1", 0);
    assert_eq!(registry.reserve(Member(1), &home, 0, &any, EPHEMERAL_COUNT - 1), Ok(60_999));
    assert_eq!(registry.reserve(Member(1), &home, 1, &any, EPHEMERAL_COUNT - 1), Ok(32_768));
    assert_eq!(registry.reserve(Member(2), &home, 1, &any, 0), Ok(32_769));
    assert_eq!(
        registry.reserve(Member(1), &home, 1, &any, 0),
        Err(PortError::Unknown),
        "the number is in use"
    );
    registry.release(Member(1), 0);
    assert_eq!(registry.reserve(Member(2), &home, 2, &any, EPHEMERAL_COUNT - 1), Ok(60_999));
}

#[test]
fn what_a_device_may_have_is_bounded_and_goes_with_it() {
    let (mut registry, home) = (Registry::default(), home(&["10.0.0.1"]));
    let any = at("10.0.0.1", 0);
    for id in 0..u32::try_from(MAX_BOOKED).unwrap() {
        registry.reserve(Member(1), &home, id, &any, id).unwrap();
    }
    assert_eq!(registry.reserve(Member(1), &home, u32::MAX, &any, 0), Err(PortError::TooMany));
    registry.reserve(Member(2), &home, 0, &at("10.0.0.1", 7), 0).unwrap();
    registry.forget(Member(1));
    assert_eq!((registry.ports.len(), registry.reserved.len()), (1, 1));
}

#[test]
fn a_service_is_found_by_its_number_on_its_address() {
    let (mut registry, both) = (Registry::default(), home(&["10.0.0.1", "10.0.0.2"]));
    let service = |id| Services { id, mask: u64::MAX };
    registry.listen(Member(1), &both, service(7), Some(ip("10.0.0.1"))).unwrap();
    registry.listen(Member(2), &both, service(7), Some(ip("10.0.0.2"))).unwrap();
    assert_eq!(registry.listen(Member(3), &both, service(7), None), Err(PortError::InUse));
    registry.listen(Member(3), &both, Services { id: 0x0106_1234, mask: !0xffff }, None).unwrap();
    let find = |registry: &Registry, at: &str, id| registry.listener(ip(at), 4791, id);
    assert_eq!(find(&registry, "10.0.0.1", 7), Some(Member(1)));
    assert_eq!(find(&registry, "10.0.0.2", 7), Some(Member(2)));
    assert_eq!(find(&registry, "10.0.0.2", 0x0106_ffff), Some(Member(3)), "bits that do not count");
    assert_eq!(find(&registry, "10.0.0.2", 0x0107_0000), None);
    assert_eq!(registry.listener(ip("10.0.0.1"), 4792, 7), None, "another UDP port");
    registry.listen(Member(1), &both, service(7), Some(ip("10.0.0.1"))).unwrap();
    registry.unlisten(Member(1), &both, service(7), Some(ip("10.0.0.1")));
    assert_eq!(find(&registry, "10.0.0.1", 7), Some(Member(1)), "it was said twice");
    registry.unlisten(Member(1), &both, service(7), Some(ip("10.0.0.1")));
    registry.unlisten(Member(1), &both, service(7), Some(ip("10.0.0.1")));
    assert_eq!(find(&registry, "10.0.0.1", 7), None);
    registry.forget(Member(3));
    assert_eq!(find(&registry, "10.0.0.2", 0x0106_ffff), None);
}

/// Two listeners of one mask are not looked at for others' sake, so each pair of masks is.
#[test]
fn no_two_devices_listen_to_one_service_whatever_the_masks() {
    const WISHES: [Services; 6] = [
        Services { id: 0x1234, mask: u64::MAX },
        Services { id: 0x1200, mask: 0xff00 },
        Services { id: 0x0034, mask: 0x00ff },
        Services { id: 0x0230, mask: 0x0ff0 },
        Services { id: 0x1334, mask: u64::MAX },
        Services { id: 0, mask: 0 },
    ];
    let home = home(&["10.0.0.1"]);
    for first in WISHES {
        for second in WISHES {
            let mut registry = Registry::default();
            registry.listen(Member(1), &home, first, None).unwrap();
            let meets = (first.id ^ second.id) & first.mask & second.mask == 0;
            let listened = registry.listen(Member(2), &home, second, None);
            assert_eq!(listened.is_err(), meets, "{first:x?} {second:x?}");
            registry.listen(Member(1), &home, second, None).unwrap_or_else(|_| assert!(!meets));
            let found = registry.listener(ip("10.0.0.1"), 4791, first.id);
            assert_eq!(found, Some(Member(1)), "{first:x?} {second:x?}");
            registry.forget(Member(1));
            let left = registry.listener(ip("10.0.0.1"), 4791, second.id);
            assert_eq!(left, (!meets).then_some(Member(2)), "{first:x?} {second:x?}");
        }
    }
}

#[test]
fn what_was_reserved_under_another_agent_is_entered_as_it_was() {
    let (mut registry, home) = (Registry::default(), home(&["10.0.0.1"]));
    let shared = PortRequest { reuse_address: true, ..at("10.0.0.1", 7) };
    registry.restore(Member(1), &home, 9, &shared, true);
    assert_eq!(registry.reserve(Member(2), &home, 1, &shared, 0), Err(PortError::InUse), "it listens");
    registry.release(Member(1), 9);
    assert_eq!(registry.reserve(Member(2), &home, 1, &shared, 0), Ok(7));
}
