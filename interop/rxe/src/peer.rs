//! What both sides tell each other over TCP: `struct peer`, twice.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use userdma::{Endpoint, Gid, Mtu, Psn, Qpn, RKey, RemoteMr};

use crate::options::Options;

/// Bytes of the structure.
const LEN: usize = 40;

/// One side's `struct peer`: 40 bytes, little-endian.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Peer {
    /// GID, QPN and first PSN.
    pub(crate) endpoint: Endpoint,
    /// The region. Its length is not told; both sides know it.
    pub(crate) region: RemoteMr,
    /// The key of the first memory window; 0 without.
    pub(crate) window: RKey,
}

impl Peer {
    fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0..4].copy_from_slice(&self.endpoint.qpn.get().to_le_bytes());
        out[4..8].copy_from_slice(&self.endpoint.psn.get().to_le_bytes());
        out[8..12].copy_from_slice(&self.region.rkey.get().to_le_bytes());
        out[12..16].copy_from_slice(&self.window.get().to_le_bytes());
        out[16..24].copy_from_slice(&self.region.addr.to_le_bytes());
        out[24..40].copy_from_slice(&self.endpoint.gid.bytes());
        out
    }

    fn decode(bytes: &[u8; LEN], region_len: u64) -> Self {
        let le32 = |at: usize| bytes[at..at + 4].iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
        let addr = u64::from(le32(20)) << 32 | u64::from(le32(16));
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[24..40]);
        Self {
            endpoint: Endpoint {
                gid: Gid::new(gid),
                qpn: Qpn::new(le32(0)),
                psn: Psn::new(le32(4)),
                path_mtu: Mtu::Mtu4096,
            },
            region: RemoteMr { addr, rkey: RKey::new(le32(8)), len: region_len },
            window: RKey::new(le32(12)),
        }
    }

    /// Sends ours, receives the other side's.
    pub(crate) fn swap(&self, stream: &mut TcpStream) -> io::Result<Self> {
        stream.write_all(&self.encode())?;
        let mut bytes = [0; LEN];
        stream.read_exact(&mut bytes)?;
        Ok(Self::decode(&bytes, self.region.len))
    }
}

/// The connection to the peer: made, if we are the client, or awaited.
pub(crate) fn open(options: &Options) -> io::Result<TcpStream> {
    let stream = match options.server {
        Some(server) => connect(server, options.tcp_port)?,
        None => TcpListener::bind(("0.0.0.0", options.tcp_port))?.accept()?.0,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Tries for ten seconds: the server may still be starting.
fn connect(server: IpAddr, port: u16) -> io::Result<TcpStream> {
    let address = (server, port);
    for _ in 0..200 {
        // Without a limit of its own: an attempt that is given up may still be taken for a connection over there.
        if let Ok(stream) = TcpStream::connect(address) {
            return Ok(stream);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    TcpStream::connect(address)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_structure_has_vts_layout() {
        let peer = Peer {
            endpoint: Endpoint {
                gid: Ipv4Addr::new(10, 99, 0, 1).into(),
                qpn: Qpn::new(0x11),
                psn: Psn::new(0xffffd),
                path_mtu: Mtu::Mtu4096,
            },
            region: RemoteMr { addr: 0x7f00_1122_3344_5566, rkey: RKey::new(0xaabb_ccdd), len: 8 << 20 },
            window: RKey::new(0x99),
        };
        let bytes = peer.encode();
        assert_eq!(bytes[..16], *b"\x11\0\0\0\xfd\xff\x0f\0\xdd\xcc\xbb\xaa\x99\0\0\0");
        assert_eq!(bytes[16..24], *b"\x66\x55\x44\x33\x22\x11\0\x7f");
        assert_eq!(bytes[34..], *b"\xff\xff\x0a\x63\0\x01");
        assert_eq!(Peer::decode(&bytes, 8 << 20), peer);
    }
}
