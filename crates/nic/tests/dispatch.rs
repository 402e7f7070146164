//! Packets that are nobody's: dropped, counted, and no answer.

use std::net::{IpAddr, Ipv4Addr};

use userdma_ibt::Stats;
use userdma_mem::{Frame, FrameMeta, LinkId, TxBatch};
use userdma_sim::{ConnectOptions, Pair, PairOptions, QpEnd};
use userdma_verbs::{PKey, QpAttr, QpAttrMask, QpState, Qpn};
use userdma_wire::{Bth, Opcode, PacketWriter, Pseudo, packet_len};

struct Bench {
    pair: Pair,
    end: QpEnd,
}

/// A SEND of 4 bytes to host 0, as its peer would send it, and what may be wrong with it.
struct Forged {
    opcode: Opcode,
    qpn: Qpn,
    pkey: PKey,
    source: IpAddr,
    destination: IpAddr,
    id: u16,
    traffic_class: u8,
    spoil: fn(&mut Vec<u8>),
}

impl Bench {
    fn new() -> Self {
        let mut pair = Pair::new(&PairOptions::default());
        let [end, _] = pair.connect(&ConnectOptions::default());
        let memory = pair.hosts[0].memory(4096, userdma_verbs::AccessFlags::LOCAL_WRITE);
        for id in 0..8 {
            pair.hosts[0].recv(&end, id, memory.sge(0, 64));
        }
        pair.drive();
        Self { pair, end }
    }

    fn forged(&self) -> Forged {
        Forged {
            opcode: Opcode::RcSendOnly,
            qpn: self.end.qp.qpn(),
            pkey: PKey::DEFAULT,
            source: self.pair.hosts[1].address,
            destination: self.pair.hosts[0].address,
            id: 0,
            traffic_class: 0,
            spoil: |_| (),
        }
    }

    /// Delivers the packet; which counters it moved, and whether anything came of it.
    fn deliver(&mut self, forged: &Forged) -> Outcome {
        let psn = ConnectOptions::default().psn[1];
        let len = if forged.opcode == Opcode::RcSendOnly { 4 } else { 0 };
        let mut bytes = vec![0; packet_len(forged.opcode, len)];
        let mut bth = Bth::new(forged.opcode, forged.qpn, psn, forged.pkey);
        bth.set_ack_req(true);
        if forged.opcode == Opcode::RcSendOnly {
            PacketWriter::new(&mut bytes, &bth).payload(4).copy_from_slice(b"data");
        } else {
            bytes[..Bth::LEN].copy_from_slice(zerocopy_bytes(&bth).as_slice());
        }
        Pseudo::new(forged.source, forged.destination, 50_000, 4791).seal(&mut bytes, forged.id);
        (forged.spoil)(&mut bytes);
        let meta = FrameMeta {
            link: LinkId(0),
            remote: forged.source,
            remote_port: 50_000,
            local: forged.destination,
            local_port: 4791,
            traffic_class: forged.traffic_class,
            segment: 0,
        };
        let now = self.pair.now();
        let shard = &mut self.pair.hosts[0].shard;
        let before = *shard.stats();
        shard.handle_frame(now, Frame { bytes: &bytes, meta });
        shard.release_acks();
        let mut batch = TxBatch::new(&PairOptions::default().link);
        let answered = shard.poll_transmit(now, &mut batch).is_some();
        Outcome {
            moved: moved(&before, shard.stats()),
            answered,
            completed: !self.end.poll_recv().is_empty(),
        }
    }
}

#[derive(Debug, Eq, PartialEq)]
struct Outcome {
    moved: Vec<&'static str>,
    answered: bool,
    completed: bool,
}

fn dropped(counter: &'static str) -> Outcome {
    Outcome { moved: vec![counter], answered: false, completed: false }
}

fn moved(before: &Stats, after: &Stats) -> Vec<&'static str> {
    before.iter().zip(after.iter()).filter(|(b, a)| b.1 != a.1).map(|(_, (name, _))| name).collect()
}

/// A header's bytes, through a packet that carries nothing else.
fn zerocopy_bytes(bth: &Bth) -> Vec<u8> {
    let mut bytes = vec![0; packet_len(Opcode::RcSendOnly, 0)];
    let mut plain = *bth;
    plain.set_opcode(Opcode::RcSendOnly);
    PacketWriter::new(&mut bytes, &plain).finish();
    bytes[0] = bth.opcode_byte();
    bytes[..Bth::LEN].to_vec()
}

#[test]
fn the_packet_that_nothing_is_wrong_with_is_received_and_answered() {
    let mut bench = Bench::new();
    let outcome = bench.deliver(&bench.forged());
    assert_eq!(outcome.moved, ["rcvd_pkts", "sent_pkts", "sent_acks"]);
    assert!(outcome.answered && outcome.completed);
}

#[test]
fn each_wrong_packet_moves_its_counter_and_nothing_else() {
    let mut bench = Bench::new();
    let stranger = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));
    let cases = [
        ("drop_malformed", Forged { spoil: |b| b.truncate(11), ..bench.forged() }),
        ("drop_malformed", Forged { spoil: |b| b[1] |= 1, ..bench.forged() }),
        ("drop_malformed", Forged { spoil: |b| b.clear(), ..bench.forged() }),
        ("drop_icrc", Forged { spoil: |b| b[13] ^= 4, ..bench.forged() }),
        ("drop_icrc", Forged { spoil: |b| *b.last_mut().unwrap() ^= 1, ..bench.forged() }),
        ("drop_qpn", Forged { qpn: Qpn::new(0x4003), ..bench.forged() }),
        ("drop_qpn", Forged { qpn: Qpn::new(0x8002), ..bench.forged() }),
        ("drop_qpn", Forged { qpn: Qpn::new(0), ..bench.forged() }),
        ("drop_qpn", Forged { qpn: Qpn::MULTICAST, ..bench.forged() }),
        ("drop_opcode", Forged { opcode: Opcode::UcSendOnly, ..bench.forged() }),
        ("drop_address", Forged { source: stranger, ..bench.forged() }),
        ("drop_address", Forged { destination: stranger, ..bench.forged() }),
        ("drop_pkey", Forged { pkey: PKey::new(0x1234), ..bench.forged() }),
    ];
    for (counter, forged) in &cases {
        assert_eq!(bench.deliver(forged), dropped(counter));
    }
    let outcome = bench.deliver(&bench.forged());
    assert!(outcome.completed, "and the connection has not been disturbed");
}

#[test]
fn a_limited_member_of_the_partition_is_heard() {
    let mut bench = Bench::new();
    let outcome = bench.deliver(&Forged { pkey: PKey::new(0x7fff), ..bench.forged() });
    assert!(outcome.completed);
}

#[test]
fn a_queue_pair_that_does_not_receive_yet_or_any_more_drops() {
    let mut bench = Bench::new();
    let qpn = bench.end.qp.qpn();
    bench.pair.fail(0, qpn);
    let _ = bench.end.poll_recv();
    assert_eq!(bench.deliver(&bench.forged()), dropped("drop_qpn"));
    for state in [QpState::Reset, QpState::Init] {
        let attr = QpAttr { qp_state: state, ..QpAttr::default() };
        let more = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        let mask = if state == QpState::Init { QpAttrMask::STATE | more } else { QpAttrMask::STATE };
        bench.pair.modify(0, qpn, &attr, mask);
        assert_eq!(bench.deliver(&bench.forged()), dropped("drop_qpn"));
    }
}

#[test]
fn an_unknown_ipv4_identification_is_believed_once_and_counted() {
    let mut bench = Bench::new();
    let outcome = bench.deliver(&Forged { id: 0x9000, ..bench.forged() });
    assert!(outcome.completed && outcome.moved.contains(&"icrc_unknown_id"));
    // The peer counts now; what lies far off is not believed.
    assert_eq!(bench.deliver(&Forged { id: 0x4000, ..bench.forged() }), dropped("drop_icrc"));
}

#[test]
fn congestion_marks_are_counted() {
    let mut bench = Bench::new();
    let outcome = bench.deliver(&Forged { traffic_class: 0b11, ..bench.forged() });
    assert!(outcome.moved.contains(&"rcvd_ecn_marked") && outcome.completed);
}

#[test]
fn random_bytes_and_random_damage_do_not_disturb() {
    use rand::rngs::SmallRng;
    use rand::{Rng, RngExt, SeedableRng};
    let mut rng = SmallRng::seed_from_u64(0x000d_1ce5);
    let mut bench = Bench::new();
    let now = bench.pair.now();
    let meta = FrameMeta {
        link: LinkId(0),
        remote: bench.pair.hosts[1].address,
        remote_port: 50_000,
        local: bench.pair.hosts[0].address,
        local_port: 4791,
        traffic_class: 0,
        segment: 0,
    };
    for _ in 0..20_000 {
        let mut bytes = vec![0; rng.random_range(0..80)];
        rng.fill_bytes(&mut bytes);
        if bytes.len() > 8 && rng.random_bool(0.9) {
            bytes[0] = rng.random_range(0..0x20);
            bytes[1] &= 0xf0;
            bytes[5..8].copy_from_slice(&bench.end.qp.qpn().get().to_be_bytes()[1..]);
        }
        bench.pair.hosts[0].shard.handle_frame(now, Frame { bytes: &bytes, meta });
    }
    let stats = bench.pair.hosts[0].shard.stats();
    assert_eq!(stats.drop_malformed + stats.drop_icrc, 20_000, "{stats:?}");
    assert_eq!(bench.end.qp.state(), QpState::Rts);
}
