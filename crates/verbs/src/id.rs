//! Identifiers: numbers that must not be confused with one another.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty), $mask:literal, $width:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name($int);

        impl $name {
            /// The identifier with this value; bits above its width are dropped.
            pub const fn new(value: $int) -> Self {
                Self(value & $mask)
            }

            /// The value as a number.
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#0", $width, "x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{:#0", $width, "x}"), self.0)
            }
        }
    };
}

number! {
    /// A queue pair number: 24 bits. 0 is SMI, 1 is GSI, 0xffffff names a multicast receiver.
    Qpn(u32), 0xff_ffff, "8"
}
number! {
    /// A shared receive queue's number on its device: 24 bits.
    Srqn(u32), 0xff_ffff, "8"
}
number! {
    /// A message sequence number: 24 bits, counts finished messages of a responder.
    Msn(u32), 0xff_ffff, "8"
}
number! {
    /// A partition key: 15 bits of partition and the full-membership bit 0x8000.
    PKey(u16), 0xffff, "6"
}
number! {
    /// A queue key, which guards datagram QPs. Values with the top bit set are privileged.
    QKey(u32), 0xffff_ffff, "10"
}
number! {
    /// The key by which local work requests name a memory region.
    LKey(u32), 0xffff_ffff, "10"
}
number! {
    /// The key by which a peer names a memory region or window.
    RKey(u32), 0xffff_ffff, "10"
}
number! {
    /// A local identifier on an InfiniBand subnet; unused on Ethernet.
    Lid(u16), 0xffff, "6"
}

impl Qpn {
    /// Queue pair 1, to which management datagrams go: the general service interface.
    pub const GSI: Self = Self(1);
    /// The destination that multicast packets carry.
    pub const MULTICAST: Self = Self(0xff_ffff);
    /// Low bits of a queue pair's number that are its index on its device; those above are the device's slot.
    pub const INDEX_BITS: u32 = 14;

    /// The slot of the device that a number of this implementation belongs to: 0 ..= 1023.
    pub const fn slot(self) -> u32 {
        self.0 >> Self::INDEX_BITS
    }
}

impl Msn {
    /// The number after `self`, modulo 2^24.
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }
}

impl QKey {
    /// The key that every queue pair 1 has. As the kernel's `ib_mad.h IB_QP1_QKEY`.
    pub const GSI: Self = Self(0x8001_0000);
}

impl PKey {
    /// The default partition with full membership.
    pub const DEFAULT: Self = Self(0xffff);

    /// Whether packets with key `other` belong to this partition: equal partition bits, and at least
    /// one of the two a full member.
    pub const fn matches(self, other: Self) -> bool {
        self.0 & 0x7fff == other.0 & 0x7fff && (self.0 | other.0) & 0x8000 != 0
    }
}

impl LKey {
    /// The remote key with the same value: a region's two keys are equal in this implementation.
    pub const fn as_rkey(self) -> RKey {
        RKey(self.0)
    }
}

impl RKey {
    /// The local key with the same value.
    pub const fn as_lkey(self) -> LKey {
        LKey(self.0)
    }

    /// The key with its low byte (the consumer's part) replaced.
    pub const fn with_variant(self, variant: u8) -> Self {
        Self(self.0 & 0xffff_ff00 | variant as u32)
    }
}

/// A global identifier: 128 bits in network order. On RoCE v2 it is an IPv6 address, or an IPv4 address
/// in its IPv6-mapped form.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Gid([u8; 16]);

impl Gid {
    /// The GID with these 16 bytes, in network order.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in network order.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The address that a RoCE v2 packet to this GID carries: IPv4 if the GID is IPv4-mapped.
    pub fn ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }

    /// Whether all bits are zero, as in an unused table entry.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip.to_ipv6_mapped().octets())
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_members_do_not_match_each_other() {
        assert!(PKey::new(0xffff).matches(PKey::new(0x7fff)));
        assert!(!PKey::new(0x7fff).matches(PKey::new(0x7fff)));
        assert!(!PKey::new(0xffff).matches(PKey::new(0x9234)));
    }

    #[test]
    fn gids_are_addresses() {
        let v4: IpAddr = Ipv4Addr::new(10, 99, 0, 1).into();
        assert_eq!(Gid::from(v4).ip(), v4);
        assert_eq!(Gid::from(v4).to_string(), "::ffff:10.99.0.1");
        let v6: IpAddr = Ipv6Addr::LOCALHOST.into();
        assert_eq!(Gid::from(v6).ip(), v6);
    }

    #[test]
    fn a_qpn_has_24_bits() {
        assert_eq!(Qpn::new(0x0100_0005).get(), 5);
        assert_eq!(format!("{:?}", Qpn::new(0x11)), "Qpn(0x000011)");
    }
}
