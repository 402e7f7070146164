//! What the integration tests share: the captures, and the plain invariant CRC as an oracle.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot read its data fails")]

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::PcapReader;

/// The frames of a capture file.
pub(crate) fn frames(path: &Path) -> Vec<Vec<u8>> {
    timed_frames(path).into_iter().map(|(_, frame)| frame).collect()
}

/// The frames of a capture file, and when each was captured.
pub(crate) fn timed_frames(path: &Path) -> Vec<(Duration, Vec<u8>)> {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        frames.push((packet.timestamp, packet.data.into_owned()));
    }
    frames
}

/// The path of a file below `tests/golden`.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The capture files of a folder below `tests/golden`, in order of their names.
pub(crate) fn captures(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(golden(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "pcap"));
    paths.sort();
    paths
}

/// CRC-32 a bit at a time.
pub(crate) fn plain_crc32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let mut register = u32::MAX;
    for byte in bytes {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = if register & 1 == 1 { register >> 1 ^ 0xedb8_8320 } else { register >> 1 };
        }
    }
    !register
}

/// The invariant CRC from a definition that shares no line with the crate's: an IP packet (header to padding,
/// without ICRC) with its variant fields replaced by ones.
pub(crate) fn plain_icrc(ip_packet: &[u8]) -> u32 {
    let mut masked = ip_packet.to_vec();
    let udp = match masked[0] >> 4 {
        4 => {
            for at in [1, 8, 10, 11] {
                masked[at] = 0xff;
            }
            20
        }
        _ => {
            masked[0] |= 0x0f;
            for at in [1, 2, 3, 7] {
                masked[at] = 0xff;
            }
            40
        }
    };
    for at in [udp + 6, udp + 7, udp + 12] {
        masked[at] = 0xff;
    }
    plain_crc32([0xff; 8].into_iter().chain(masked))
}

/// An IP packet around `covered` (BTH to padding) as the oracle wants it, its lengths those with an ICRC.
pub(crate) fn ip_packet(
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    dst_port: u16,
    id: u16,
    covered: &[u8],
) -> Vec<u8> {
    let udp_len = u16::try_from(8 + covered.len() + 4).unwrap();
    let mut out = Vec::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            out.extend([0x45, 0]);
            out.extend((udp_len + 20).to_be_bytes());
            out.extend(id.to_be_bytes());
            out.extend([0x40, 0, 64, 17, 0, 0]);
            out.extend(src.octets());
            out.extend(dst.octets());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            out.extend([0x60, 0, 0, 0]);
            out.extend(udp_len.to_be_bytes());
            out.extend([17, 64]);
            out.extend(src.octets());
            out.extend(dst.octets());
        }
        _ => panic!("{src} and {dst} are not of one family"),
    }
    out.extend(src_port.to_be_bytes());
    out.extend(dst_port.to_be_bytes());
    out.extend(udp_len.to_be_bytes());
    out.extend([0, 0]);
    out.extend(covered);
    out
}
