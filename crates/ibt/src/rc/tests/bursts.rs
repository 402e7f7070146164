//! Messages of many packets from lists of any shape: each packet carries the bytes that its PSN stands for, under a right ICRC,
//! however often it is sent and whatever was answered in between.

use userdma_verbs::{SendFlags, SendOp, SendWr};
use userdma_wire::{IcrcCheck, NakCode};

use super::*;

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % u64::from(bound)) as u32
    }
}

/// What is known of the sender: the bytes of each PSN from the first on, and which part of its message they are.
struct Model {
    first: Psn,
    packets: Vec<(&'static str, Vec<u8>)>,
}

impl Model {
    fn add(&mut self, message: &[u8]) {
        let count = message.len().div_ceil(MTU as usize).max(1);
        for n in 0..count {
            let end = message.len().min((n + 1) * MTU as usize);
            let name = match (n == 0, n + 1 == count) {
                (true, true) => "Only",
                (true, false) => "First",
                (false, true) => "Last",
                (false, false) => "Middle",
            };
            self.packets.push((name, message[n * MTU as usize..end].to_vec()));
        }
    }

    fn is_answered(&self, a: &Side) -> bool {
        usize::try_from(a.rc.req.una_psn.distance(self.first)) == Ok(self.packets.len())
    }

    fn check(&self, pseudo: &Pseudo, index: usize, bytes: &[u8]) {
        let packet = Packet::parse(bytes).unwrap();
        let at = packet.bth().psn().distance(self.first);
        let (name, payload) = &self.packets[usize::try_from(at).unwrap()];
        assert!(packet.info().name.contains(name), "{} is {name}", packet.info().name);
        assert!(packet.payload() == &payload[..], "the bytes of packet {at}");
        assert_eq!(pseudo.verify(&packet, index as u16), IcrcCheck::Good, "packet {at}");
    }
}

/// A list of up to four elements, empty ones among them, which end anywhere.
fn random_list(a: &Side, random: &mut Random) -> Vec<Sge> {
    let count = 1 + random.below(4);
    let length = |random: &mut Random| match random.below(4) {
        0 => random.below(4),
        1 => MTU * random.below(6),
        2 => random.below(6 * MTU),
        _ => MTU - 1 + random.below(3),
    };
    (0..count)
        .map(|_| {
            let offset = random.below(32 << 10);
            let length = length(random);
            a.sge(offset.into(), length)
        })
        .collect()
}

fn post_random(a: &mut Side, model: &mut Model, random: &mut Random) {
    let signaled = if random.below(2) == 0 { SendFlags::SIGNALED } else { SendFlags::empty() };
    let (mut inline, mut list) = (Vec::new(), Vec::new());
    let message = if random.below(4) == 0 {
        inline = (0..random.below(513)).map(|n| (n * 7) as u8).collect();
        inline.clone()
    } else {
        list = random_list(a, random);
        list.iter().flat_map(|sge| a.bytes(sge.addr - a.memory.addr(), sge.length as usize)).collect()
    };
    let flags = if list.is_empty() { signaled | SendFlags::INLINE } else { signaled };
    let op = if random.below(2) == 0 { SendOp::Send } else { SendOp::Write(a.remote(0)) };
    let wr = SendWr { wr_id: 0, op, flags, sgl: &list, inline: &inline };
    if a.qp.post_send(&wr).is_ok() {
        model.add(&message);
    }
}

fn send_random(a: &mut Side, model: &Model, random: &mut Random) {
    let caps = LinkCaps {
        max_batch_bytes: 400 + random.below(20_000) as usize,
        max_batch_packets: 1 + random.below(64) as usize,
        mtu: 65_536,
    };
    let mut batch = TxBatch::new(&caps);
    for _ in 0..random.below(6) {
        batch.clear();
        let fill = a.run(|rc, ctx| rc.fill(ctx, &mut batch, true));
        batch.packets().enumerate().for_each(|(index, packet)| model.check(&a.pseudo, index, packet));
        if fill == Fill::Done {
            return;
        }
        assert!(!batch.is_empty());
    }
}

/// A peer that acknowledges or misses any packet that was sent, or says nothing.
fn answer_random(a: &mut Side, model: &Model, random: &mut Random) {
    let req = &a.rc.req;
    let sent = req.max_psn.distance(model.first);
    let open = u32::try_from(req.max_psn.distance(req.una_psn)).unwrap();
    if open == 0 {
        return;
    }
    // Answers count from `PSN`, modulo 2^24.
    let back = i32::try_from(1 + random.below(open)).unwrap();
    let psn = (model.first.distance(Psn::new(PSN)) + sent - back).cast_unsigned() & 0xff_ffff;
    match random.below(5) {
        0 => a.receive(&acknowledge(psn, Syndrome::Nak(NakCode::PsnSequence))),
        1 | 2 => a.ack(psn),
        _ => {}
    }
}

fn run(seed: u64) {
    let mut random = Random(seed | 1);
    // Some begin just before the PSNs start anew.
    let first = Psn::new(if random.below(2) == 0 { PSN } else { 0xff_ffff - random.below(60) });
    let mut a = Side::with(&QpAttr { sq_psn: first, retry_cnt: 7, ..attributes() });
    let mut model = Model { first, packets: Vec::new() };
    for _ in 0..200 {
        match random.below(8) {
            0..3 => post_random(&mut a, &mut model, &mut random),
            3..6 => send_random(&mut a, &model, &mut random),
            6 => answer_random(&mut a, &model, &mut random),
            _ => {
                a.now = Time::from_nanos(a.now.nanos() + u64::from(random.below(3_000_000)));
                a.run(|rc, ctx| rc.handle_timeout(ctx));
            }
        }
    }
    for _ in 0..4000 {
        if model.is_answered(&a) || a.rc.state() == QpState::Err {
            break;
        }
        send_random(&mut a, &model, &mut random);
        answer_random(&mut a, &model, &mut random);
        a.now = Time::from_nanos(a.now.nanos() + 100_000);
        a.run(|rc, ctx| rc.handle_timeout(ctx));
        a.sent_wcs();
    }
    if a.rc.state() == QpState::Rts {
        assert!(model.is_answered(&a), "all is sent");
        assert_eq!(a.window.in_flight(), 0);
    }
}

#[test]
fn each_packet_carries_what_its_number_stands_for() {
    let seed = std::env::var("USERDMA_SEED").ok().and_then(|s| s.parse().ok());
    let (first, count) = seed.map_or((0x5eed, 300), |seed| (seed, 1));
    for seed in first..first + count {
        println!("USERDMA_SEED={seed}");
        run(seed);
    }
}
