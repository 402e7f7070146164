//! The global route header (GRH): what an InfiniBand packet between subnets carries, and what a datagram
//! receiver finds in the first 40 bytes of its buffer. Laid out as an IPv6 header.

use userdma_verbs::Gid;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The global route header, 40 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Grh {
    version_class_flow: U32,
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    sgid: [u8; 16],
    dgid: [u8; 16],
}

impl Grh {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();
    /// The next header value that announces a BTH.
    pub const NEXT_HEADER: u8 = 0x1b;

    /// A header in front of `payload_len` bytes (BTH to ICRC); traffic class and flow label 0, hop limit 64.
    pub const fn new(sgid: Gid, dgid: Gid, payload_len: u16) -> Self {
        Self {
            version_class_flow: U32::from_bytes([0x60, 0, 0, 0]),
            payload_len: U16::from_bytes(payload_len.to_be_bytes()),
            next_header: Self::NEXT_HEADER,
            hop_limit: 64,
            sgid: sgid.bytes(),
            dgid: dgid.bytes(),
        }
    }

    /// The IP version field: 6.
    pub const fn version(&self) -> u8 {
        let [first, ..] = self.version_class_flow.get().to_be_bytes();
        first >> 4
    }

    /// The traffic class.
    pub const fn traffic_class(&self) -> u8 {
        let [first, second, ..] = self.version_class_flow.get().to_be_bytes();
        first << 4 | second >> 4
    }

    /// The flow label, 20 bits.
    pub const fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0xf_ffff
    }

    /// Bytes that follow, up to and with the ICRC.
    pub const fn payload_len(&self) -> u16 {
        self.payload_len.get()
    }

    /// What follows.
    pub const fn next_header(&self) -> u8 {
        self.next_header
    }

    /// The hop limit.
    pub const fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// The source.
    pub const fn sgid(&self) -> Gid {
        Gid::new(self.sgid)
    }

    /// The destination.
    pub const fn dgid(&self) -> Gid {
        Gid::new(self.dgid)
    }

    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) {
        let rest = self.version_class_flow.get() & !(0xff << 20);
        self.version_class_flow = U32::new(rest | u32::from(class) << 20);
    }

    /// Sets the flow label; bits above the 20th are dropped.
    pub fn set_flow_label(&mut self, label: u32) {
        let rest = self.version_class_flow.get() & !0xf_ffff;
        self.version_class_flow = U32::new(rest | label & 0xf_ffff);
    }

    /// Sets what follows.
    pub const fn set_next_header(&mut self, next: u8) {
        self.next_header = next;
    }

    /// Sets the hop limit.
    pub const fn set_hop_limit(&mut self, limit: u8) {
        self.hop_limit = limit;
    }
}

const _: () = assert!(Grh::LEN == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_an_ipv6_header_has_them() {
        let mut grh = Grh::new(Gid::new([1; 16]), Gid::new([2; 16]), 0x0102);
        grh.set_traffic_class(0xab);
        grh.set_flow_label(0xfff1_2345);
        grh.set_hop_limit(9);
        assert_eq!(grh.as_bytes()[..8], [0x6a, 0xb1, 0x23, 0x45, 0x01, 0x02, 0x1b, 9]);
        assert_eq!(grh.as_bytes()[8..24], [1; 16]);
        assert_eq!(grh.as_bytes()[24..], [2; 16]);
        assert_eq!((grh.version(), grh.traffic_class(), grh.flow_label()), (6, 0xab, 0x1_2345));
        grh.set_traffic_class(0);
        assert_eq!((grh.version(), grh.traffic_class(), grh.flow_label()), (6, 0, 0x1_2345));
    }
}
