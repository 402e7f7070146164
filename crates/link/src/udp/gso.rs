//! A batch as the kernel wants it: one super-packet with its destination and control messages.

use std::net::IpAddr;

use userdma_mem::{Route, TxBatch};

use super::UdpConfig;
use super::control::Control;
use super::mmsg::Outgoing;
use super::sockaddr::SockAddr;

/// What the transmit sockets send unless a control message says otherwise. Those cost time, so they are sparse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    traffic_class: u8,
    hop_limit: u8,
}

impl Defaults {
    pub(super) fn new(config: &UdpConfig) -> Self {
        Self { traffic_class: config.traffic_class, hop_limit: config.hop_limit }
    }

    /// Whether a lone packet on this route needs no control message.
    #[inline]
    pub(super) fn suit(self, route: &Route) -> bool {
        route.traffic_class == self.traffic_class
            && (route.hop_limit == self.hop_limit || route.hop_limit == 0)
    }

    /// A whole batch, which the kernel cuts into packets if there are several.
    pub(super) fn super_packet<'a>(self, route: &Route, batch: &'a TxBatch) -> Outgoing<'a> {
        // A segment is a part of a batch, which has less than 64 KiB.
        let segment = u16::try_from(batch.segment()).ok().filter(|_| batch.count() > 1);
        self.outgoing(route, batch.bytes(), segment)
    }

    /// One packet by itself.
    pub(super) fn single<'a>(self, route: &Route, packet: &'a [u8]) -> Outgoing<'a> {
        self.outgoing(route, packet, None)
    }

    fn outgoing<'a>(self, route: &Route, bytes: &'a [u8], segment: Option<u16>) -> Outgoing<'a> {
        let mut control = Control::EMPTY;
        let mut len = 0;
        if let Some(segment) = segment {
            len = control.push(len, libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        let (level, traffic_class, hop_limit) = match route.remote {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        if route.traffic_class != self.traffic_class {
            let value = i32::from(route.traffic_class).to_ne_bytes();
            len = control.push(len, level, traffic_class, &value);
        }
        // With 0 a packet could not leave: it means "as usual".
        if route.hop_limit != self.hop_limit && route.hop_limit != 0 {
            let value = i32::from(route.hop_limit).to_ne_bytes();
            len = control.push(len, level, hop_limit, &value);
        }
        let addr = SockAddr::new(route.remote, route.remote_port, route.scope_id);
        Outgoing { bytes, addr, control: (control, len) }
    }
}

#[cfg(test)]
mod tests {
    use userdma_mem::{LinkCaps, LinkId};

    use super::*;

    fn kinds(remote: &str, change: impl FnOnce(&mut Route), packets: usize) -> Vec<(i32, i32, Vec<u8>)> {
        let defaults = Defaults::new(&UdpConfig::default());
        let mut route = Route {
            link: LinkId(0),
            local: remote.parse().unwrap(),
            remote: remote.parse().unwrap(),
            scope_id: 0,
            socket: 0,
            local_port: 0xc000,
            remote_port: 4791,
            traffic_class: defaults.traffic_class,
            hop_limit: defaults.hop_limit,
        };
        change(&mut route);
        let mut batch = TxBatch::new(&LinkCaps { max_batch_bytes: 1000, max_batch_packets: 64, mtu: 1500 });
        for _ in 0..packets {
            batch.push(&route, 100).unwrap();
        }
        let outgoing = defaults.super_packet(&route, &batch);
        let (control, len) = outgoing.control;
        control.messages(len).map(|(level, kind, value)| (level, kind, value.to_vec())).collect()
    }

    #[test]
    fn an_ordinary_packet_has_no_control_message() {
        assert_eq!(kinds("127.0.0.1", |_| (), 1), []);
        assert_eq!(kinds("::1", |_| (), 1), []);
    }

    #[test]
    fn several_packets_tell_their_size() {
        let wanted = (libc::SOL_UDP, libc::UDP_SEGMENT, 100u16.to_ne_bytes().to_vec());
        assert_eq!(kinds("127.0.0.1", |_| (), 2), [wanted]);
    }

    #[test]
    fn an_unusual_route_says_so_in_its_familys_terms() {
        let unusual = |route: &mut Route| (route.traffic_class, route.hop_limit) = (0x6b, 3);
        let value = |number: i32| number.to_ne_bytes().to_vec();
        let v4 = [(libc::IPPROTO_IP, libc::IP_TOS, value(0x6b)), (libc::IPPROTO_IP, libc::IP_TTL, value(3))];
        assert_eq!(kinds("127.0.0.1", unusual, 1), v4);
        let v6 = [
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, value(0x6b)),
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, value(3)),
        ];
        assert_eq!(kinds("::1", unusual, 1), v6);
        assert_eq!(kinds("127.0.0.1", |route| route.hop_limit = 0, 1), []);
        assert_eq!(kinds("127.0.0.1", unusual, 3).len(), 3);
    }
}
