//! What two sides tell each other before they connect.

use std::io::{self, Read, Write};

use userdma_verbs::{Gid, Mtu, Psn, Qpn, RKey};

use crate::RemoteMr;

/// One side of a connection: what the other needs to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// The address.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
    /// The PSN that this side starts with.
    pub psn: Psn,
    /// The largest path MTU that this side's link carries: two sides use the smaller of theirs.
    pub path_mtu: Mtu,
}

/// Values with a form of fixed length, integers in network order.
pub trait Exchange: Sized {
    /// Bytes.
    const LEN: usize;

    /// Writes the form into `out`, which has `LEN` bytes.
    fn encode(&self, out: &mut [u8]);

    /// Reads the form from `bytes`, which has `LEN` bytes.
    fn decode(bytes: &[u8]) -> Self;
}

impl Exchange for Endpoint {
    const LEN: usize = 28;

    fn encode(&self, out: &mut [u8]) {
        out[..16].copy_from_slice(&self.gid.bytes());
        out[16..20].copy_from_slice(&self.qpn.get().to_be_bytes());
        out[20..24].copy_from_slice(&self.psn.get().to_be_bytes());
        out[24..28].copy_from_slice(&self.path_mtu.bytes().to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[..16]);
        Self {
            gid: Gid::new(gid),
            qpn: Qpn::new(be32(&bytes[16..20])),
            psn: Psn::new(be32(&bytes[20..24])),
            // A size that is none fits no link; the smallest fits all.
            path_mtu: Mtu::from_bytes(be32(&bytes[24..28])).unwrap_or(Mtu::Mtu256),
        }
    }
}

impl Exchange for RemoteMr {
    const LEN: usize = 20;

    fn encode(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.addr.to_be_bytes());
        out[8..16].copy_from_slice(&self.len.to_be_bytes());
        out[16..20].copy_from_slice(&self.rkey.get().to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        let be64 = |b: &[u8]| u64::from(be32(&b[..4])) << 32 | u64::from(be32(&b[4..8]));
        Self { addr: be64(&bytes[..8]), len: be64(&bytes[8..16]), rkey: RKey::new(be32(&bytes[16..20])) }
    }
}

impl<A: Exchange, B: Exchange> Exchange for (A, B) {
    const LEN: usize = A::LEN + B::LEN;

    fn encode(&self, out: &mut [u8]) {
        self.0.encode(&mut out[..A::LEN]);
        self.1.encode(&mut out[A::LEN..]);
    }

    fn decode(bytes: &[u8]) -> Self {
        (A::decode(&bytes[..A::LEN]), B::decode(&bytes[A::LEN..]))
    }
}

/// Sends `ours` over a stream that both sides have, usually TCP, and receives the other's. Both sides call it with the
/// same type: an [`Endpoint`], a [`RemoteMr`] ([`RemoteMr::NONE`] if a side has none), or a pair of such values, as
/// `(qp.endpoint(), mr.remote())`. It waits for the other as long as the stream does: a time-out is set there.
///
/// # Errors
/// Those of the stream: the other side has gone, or told less.
pub fn exchange<T: Exchange>(stream: &mut (impl Read + Write), ours: &T) -> io::Result<T> {
    let mut bytes = vec![0; T::LEN];
    ours.encode(&mut bytes);
    stream.write_all(&bytes)?;
    stream.flush()?;
    stream.read_exact(&mut bytes)?;
    Ok(T::decode(&bytes))
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, &b| n << 8 | u32::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went() {
        let endpoint = Endpoint {
            gid: std::net::Ipv4Addr::new(10, 1, 2, 3).into(),
            qpn: Qpn::new(0x123456),
            psn: Psn::new(0xfedcba),
            path_mtu: Mtu::Mtu2048,
        };
        let remote = RemoteMr { addr: 0x1122_3344_5566_7788, rkey: RKey::new(0x99aa_bbcc), len: 1 << 33 };
        let mut bytes = vec![0; <(Endpoint, RemoteMr)>::LEN];
        (endpoint, remote).encode(&mut bytes);
        assert_eq!(bytes.len(), 48);
        assert_eq!(<(Endpoint, RemoteMr)>::decode(&bytes), (endpoint, remote));
    }
}
