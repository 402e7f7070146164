use std::net::{IpAddr, Ipv4Addr};

use super::{Route, TxBatch};
use crate::{LinkCaps, LinkId};

fn batch(max_batch_bytes: usize, max_batch_packets: usize) -> TxBatch {
    TxBatch::new(&LinkCaps { max_batch_bytes, max_batch_packets, mtu: 1500 })
}

fn route(last: u8) -> Route {
    Route {
        link: LinkId(0),
        local: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        remote: IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)),
        scope_id: 0,
        socket: 0,
        local_port: 50_000,
        remote_port: 4791,
        traffic_class: 2,
        hop_limit: 64,
    }
}

/// Pushes a packet of `size` equal bytes; its index.
fn push(batch: &mut TxBatch, route: &Route, size: usize, byte: u8) -> Option<u16> {
    let (index, bytes) = batch.push(route, size)?;
    assert_eq!(bytes.len(), size);
    bytes.fill(byte);
    Some(index)
}

#[test]
fn equal_packets_lie_one_after_another_and_are_numbered_from_0() {
    let mut batch = batch(1000, 64);
    assert!(batch.is_empty());
    assert_eq!((batch.route(), batch.bytes(), batch.packets().count()), (None, &[][..], 0));
    for number in 0..3 {
        assert_eq!(push(&mut batch, &route(3), 20, number), Some(u16::from(number)));
    }
    assert_eq!((batch.count(), batch.segment(), batch.route()), (3, 20, Some(&route(3))));
    assert_eq!(batch.bytes(), [[0; 20], [1; 20], [2; 20]].concat());
    let packets: Vec<_> = batch.packets().collect();
    assert_eq!(packets, [[0; 20], [1; 20], [2; 20]]);
}

#[test]
fn a_shorter_packet_is_the_last() {
    let mut batch = batch(1000, 64);
    push(&mut batch, &route(3), 20, 0).unwrap();
    assert_eq!(push(&mut batch, &route(3), 7, 1), Some(1));
    assert!(!batch.fits(&route(3), 7) && !batch.fits(&route(3), 20));
    assert_eq!(push(&mut batch, &route(3), 7, 2), None);
    assert_eq!(batch.packets().map(<[u8]>::len).collect::<Vec<_>>(), [20, 7]);
}

#[test]
fn a_longer_packet_does_not_join() {
    let mut batch = batch(1000, 64);
    push(&mut batch, &route(3), 20, 0).unwrap();
    assert_eq!(push(&mut batch, &route(3), 21, 1), None);
    assert_eq!(push(&mut batch, &route(3), 20, 1), Some(1), "a refusal changes nothing");
}

#[test]
fn another_route_does_not_join() {
    let mut batch = batch(1000, 64);
    push(&mut batch, &route(3), 20, 0).unwrap();
    let base = route(3);
    let others = [
        Route { link: LinkId(1), ..base },
        Route { local: route(9).remote, ..base },
        Route { remote: route(9).remote, ..base },
        Route { scope_id: 1, ..base },
        Route { socket: 1, ..base },
        Route { local_port: 1, ..base },
        Route { remote_port: 1, ..base },
        Route { traffic_class: 0, ..base },
        Route { hop_limit: 1, ..base },
    ];
    for other in others {
        assert!(!batch.fits(&other, 20), "{other:?}");
        assert_eq!(push(&mut batch, &other, 20, 1), None);
    }
    assert!(batch.fits(&base, 20));
}

#[test]
fn bytes_and_packets_are_limited_by_the_link() {
    let mut bytes = batch(64, 64);
    assert!(!bytes.fits(&route(3), 65) && bytes.fits(&route(3), 64));
    for number in 0..3 {
        assert_eq!(push(&mut bytes, &route(3), 20, 0), Some(number));
    }
    assert_eq!(push(&mut bytes, &route(3), 20, 0), None, "4 bytes are left");
    assert_eq!(push(&mut bytes, &route(3), 4, 0), Some(3));

    let mut packets = batch(1000, 2);
    assert_eq!(push(&mut packets, &route(3), 20, 0), Some(0));
    assert_eq!(push(&mut packets, &route(3), 20, 0), Some(1));
    assert_eq!(push(&mut packets, &route(3), 20, 0), None);
}

#[test]
fn a_packet_of_no_bytes_does_not_exist() {
    let mut batch = batch(64, 64);
    assert!(!batch.fits(&route(3), 0));
    assert_eq!(push(&mut batch, &route(3), 0, 0), None);
    assert!(batch.is_empty());
}

#[test]
fn a_link_that_stops_segmenting_gets_single_packets() {
    let mut batch = batch(1000, 64);
    for limit in [1, 0] {
        batch.set_max_packets(limit);
        assert_eq!(push(&mut batch, &route(3), 20, 0), Some(0));
        assert_eq!(push(&mut batch, &route(3), 20, 0), None);
        batch.clear();
    }
}

#[test]
fn a_packet_taken_back_leaves_no_trace() {
    let mut batch = batch(1000, 64);
    push(&mut batch, &route(3), 20, 0).unwrap();
    push(&mut batch, &route(3), 20, 1).unwrap();
    push(&mut batch, &route(3), 7, 2).unwrap();
    batch.pop(7);
    assert_eq!(batch.bytes(), [[0; 20], [1; 20]].concat());
    assert_eq!(push(&mut batch, &route(3), 20, 3), Some(2), "no longer closed");
    batch.pop(20);
    batch.pop(20);
    assert_eq!(batch.packets().collect::<Vec<_>>(), [[0; 20]]);
    batch.pop(20);
    assert!(batch.is_empty() && batch.route().is_none());
    assert_eq!(push(&mut batch, &route(4), 50, 0), Some(0), "any size and route may be the first again");
    batch.clear();
    batch.pop(50);
    assert_eq!((batch.count(), batch.bytes().len()), (0, 0));
}

#[test]
fn a_cleared_batch_keeps_its_memory() {
    let mut batch = batch(1000, 64);
    push(&mut batch, &route(3), 20, 0).unwrap();
    push(&mut batch, &route(3), 7, 0).unwrap();
    let place = batch.bytes().as_ptr();
    batch.clear();
    assert!(batch.is_empty() && batch.route().is_none() && batch.bytes().is_empty());
    assert_eq!(push(&mut batch, &route(4), 30, 0), Some(0));
    assert_eq!(batch.bytes().as_ptr(), place);
}
