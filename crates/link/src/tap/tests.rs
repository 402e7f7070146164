use std::sync::mpsc::{Receiver, Sender, channel};

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::{Block, PcapNgReader};
use userdma_mem::{FrameMeta, LinkCaps, LinkId, Route};
use userdma_wire::Pseudo;

use super::*;

/// A file whose bytes the test gets back.
struct Pipe(Sender<Vec<u8>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn capture() -> (Capture, Receiver<Vec<u8>>) {
    let (send, recv) = channel();
    (Capture::new(Pipe(send), 1_000).unwrap(), recv)
}

fn packets(capture: &Capture, written: &Receiver<Vec<u8>>) -> Vec<EnhancedPacketBlock<'static>> {
    capture.flush().unwrap();
    let bytes = written.try_iter().flatten().collect::<Vec<_>>();
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            packets.push(packet.into_owned());
        }
    }
    packets
}

fn batch(sizes: &[usize]) -> TxBatch {
    let caps = LinkCaps { max_batch_bytes: 4096, max_batch_packets: 64, mtu: 1500 };
    let route = Route {
        link: LinkId(0),
        local: "127.0.0.2".parse().unwrap(),
        remote: "127.0.0.3".parse().unwrap(),
        scope_id: 0,
        socket: 3,
        local_port: 0xc003,
        remote_port: 4791,
        traffic_class: 2,
        hop_limit: 64,
    };
    let mut batch = TxBatch::new(&caps);
    for &size in sizes {
        let (index, bytes) = batch.push(&route, size).unwrap();
        bytes.fill(u8::try_from(index).unwrap());
    }
    batch
}

#[test]
fn a_super_packet_appears_as_the_packets_it_stands_for() {
    let (capture, written) = capture();
    let tap = capture.tap("roce_lo").unwrap();
    tap.sent(Time::from_nanos(5), &batch(&[100, 100, 40]));
    let packets = packets(&capture, &written);
    assert_eq!(packets.len(), 3);
    for (index, (packet, size)) in packets.iter().zip([100, 100, 40]).enumerate() {
        assert_eq!(packet.data.len(), 42 + size);
        assert_eq!(packet.data[16..18], u16::try_from(28 + size).unwrap().to_be_bytes(), "IPv4 length");
        assert_eq!(packet.data[18..20], [0, u8::try_from(index).unwrap()], "IPv4 identification");
        assert!(packet.data[42..].iter().all(|&byte| usize::from(byte) == index));
        assert_eq!(packet.options, [EnhancedPacketOption::Flags(2)]);
    }
    assert_eq!(capture.packets(), 3);
}

#[test]
fn a_received_packet_shows_the_id_that_its_icrc_needs_or_its_place() {
    let (capture, written) = capture();
    let tap = capture.tap("roce_lo").unwrap();
    let meta = FrameMeta {
        link: LinkId(0),
        remote: "127.0.0.3".parse().unwrap(),
        remote_port: 0xc000,
        local: "127.0.0.2".parse().unwrap(),
        local_port: 4791,
        traffic_class: 0,
        segment: 7,
    };
    // A BTH (SEND ONLY, padding 0) and its ICRC, made for identification 0xbeef.
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&[0x04, 0, 0xff, 0xff]);
    Pseudo::new(meta.remote, meta.local, meta.remote_port, meta.local_port).seal(&mut bytes, 0xbeef);
    tap.received(Time::ZERO, &Frame { bytes: &bytes, meta });
    tap.received(Time::ZERO, &Frame { bytes: &[9; 20], meta });
    let packets = packets(&capture, &written);
    assert_eq!(packets[0].data[18..20], [0xbe, 0xef]);
    assert_eq!(packets[1].data[18..20], [0, 7]);
    assert_eq!(packets[1].data[26..34], [127, 0, 0, 3, 127, 0, 0, 2]);
    assert_eq!(packets[1].options, [EnhancedPacketOption::Flags(1)]);
}

#[test]
fn two_links_share_a_file() {
    let (capture, written) = capture();
    let (v4, v6) = (capture.tap("a").unwrap(), capture.tap("b").unwrap());
    v6.sent(Time::ZERO, &batch(&[8]));
    v4.sent(Time::ZERO, &batch(&[8]));
    let interfaces: Vec<u32> = packets(&capture, &written).iter().map(|p| p.interface_id).collect();
    assert_eq!(interfaces, [1, 0]);
}

#[test]
fn a_full_disk_ends_the_capture_and_is_told() {
    let (capture, written) = capture();
    let tap = capture.tap("a").unwrap();
    capture.flush().unwrap();
    drop(written);
    let big = batch(&[1000, 1000, 1000, 1000]);
    for _ in 0..100 {
        tap.sent(Time::ZERO, &big);
    }
    let packets = capture.packets();
    assert!(packets < 400);
    assert_eq!(capture.flush().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    tap.sent(Time::ZERO, &big);
    assert_eq!(capture.packets(), packets);
}

#[test]
fn packets_reach_the_file_in_whole_blocks_and_after_a_while_by_themselves() {
    let (capture, written) = capture();
    let tap = capture.tap("lo").unwrap();
    let ms = |n: u64| Time::from_nanos(n * 1_000_000);
    let headers: Vec<u8> = written.try_iter().flatten().collect();
    assert!(headers.len() > 28, "section and interface are there at once");
    tap.sent(ms(1), &batch(&[100, 100]));
    tap.sent(ms(15), &batch(&[100]));
    tap.flush_if_due(ms(20));
    assert!(written.try_iter().next().is_none(), "not yet");
    assert_eq!(tap.next_deadline(), Some(ms(1) + MAX_LAG));
    tap.flush_if_due(ms(21));
    let blocks = written.try_iter().collect::<Vec<_>>();
    assert_eq!(blocks.len(), 1, "in one piece");
    assert_eq!(tap.next_deadline(), None);
    // Many packets do not wait, and no piece ends within a block.
    let large = batch(&[1000; 4]);
    (0..1000).for_each(|_| tap.sent(ms(30), &large));
    let pieces: Vec<Vec<u8>> = written.try_iter().collect();
    assert!(pieces.len() > 5);
    let mut file = [headers, blocks.concat()].concat();
    for piece in pieces {
        file.extend(piece);
        let mut reader = PcapNgReader::new(&file[..]).unwrap();
        while let Some(block) = reader.next_block() {
            block.unwrap();
        }
    }
}
