//! Seeds: what other implementations said to each other, as programs.

use userdma_wire::{ExtHeaders, Opcode, Operation, OwnedPacket, Packet};

use super::program::{Answer, Post, Recv, Request, Role, Step, payload_code};

/// A program for the responder: receives enough, then these requests of one side of a connection.
pub fn responder_seed(requests: &[Packet<'_>], mtu: usize) -> Vec<u8> {
    let mut out = setup(mtu);
    let sends = requests.iter().filter(|packet| packet.info().is_end() && packet.reth().is_none()).count();
    for _ in 0..sends.min(16) {
        Step::Recv(Recv { kind: 0, len: 0x800 }).write(Role::Responder, &mut out);
    }
    for packet in requests {
        Step::Request(request(packet, mtu)).write(Role::Responder, &mut out);
        Step::Release.write(Role::Responder, &mut out);
    }
    out
}

/// A program for the requester: the messages that these requests began, then the answers to them.
pub fn requester_seed(requests: &[Packet<'_>], answers: &[Packet<'_>], mtu: usize) -> Vec<u8> {
    let mut out = setup(mtu);
    for packet in requests.iter().filter(|packet| packet.info().is_start()) {
        Step::Post(post(packet)).write(Role::Requester, &mut out);
    }
    for packet in answers {
        Step::Answer(answer(packet)).write(Role::Requester, &mut out);
        Step::Wait(10).write(Role::Requester, &mut out);
    }
    out
}

/// Programs of one request each: a WRITE and an atomic to everything that a program has a name for, and WRITEs that begin
/// a byte too early or end a byte too late. With their names.
pub fn border_seeds() -> Vec<(String, Vec<u8>)> {
    let at = |opcode: Opcode, key, offset| {
        let (len, payload) = if opcode == Opcode::RcWriteOnly { (16, 16) } else { (0, 0) };
        let opcode = opcode as u8;
        let request =
            Request { opcode, flags: Request::ACK_REQ, key, offset, len, payload, ..Request::default() };
        let mut out = setup(256);
        Step::Request(Request { operands: [1, 0], ..request }).write(Role::Responder, &mut out);
        out
    };
    let mut seeds = Vec::new();
    for key in 0..10 {
        seeds.push((format!("write-{key}"), at(Opcode::RcWriteOnly, key, 0)));
        seeds.push((format!("atomic-{key}"), at(Opcode::RcFetchAdd, key, 0)));
    }
    for (key, len) in [(0, 0x801), (7, 0x100)] {
        seeds.push((format!("early-{key}"), at(Opcode::RcWriteOnly, key, -1)));
        seeds.push((format!("late-{key}"), at(Opcode::RcWriteOnly, key, len - 15)));
    }
    seeds
}

/// Every right, four READs, seven retries of each kind; a few PSNs before the wrap.
fn setup(mtu: usize) -> Vec<u8> {
    vec![if mtu > 256 { 0x17 } else { 0x07 }, 0xfc, 3]
}

fn request(packet: &Packet<'_>, mtu: usize) -> Request {
    let bth = packet.bth();
    let mut flags = 0;
    if bth.ack_req() {
        flags |= Request::ACK_REQ;
    }
    if bth.solicited() {
        flags |= Request::SOLICITED;
    }
    let names_window = packet.info().headers.contains(ExtHeaders::IETH);
    Request {
        opcode: bth.opcode_byte(),
        flags,
        key: if names_window { 7 } else { 0 },
        len: packet.reth().map_or(0, |reth| u16::try_from(reth.dma_len()).unwrap_or(u16::MAX).min(0x800)),
        operands: [1, 0],
        payload: payload_code(OwnedPacket::from(packet).payload.len(), mtu),
        ..Request::default()
    }
}

fn post(packet: &Packet<'_>) -> Post {
    let has = |header| packet.info().has(header);
    let kind = match packet.info().op {
        Operation::Write => {
            if has(ExtHeaders::IMM) {
                7
            } else {
                1
            }
        }
        Operation::ReadRequest => 2,
        Operation::FetchAdd => 3,
        Operation::CompareSwap => 4,
        Operation::Send if has(ExtHeaders::IMM) => 5,
        Operation::Send if has(ExtHeaders::IETH) => 6,
        Operation::Send
        | Operation::ReadResponse
        | Operation::Acknowledge
        | Operation::AtomicAcknowledge
        | Operation::Flush
        | Operation::AtomicWrite
        | Operation::Cnp => 0,
    };
    let len = packet.reth().map_or(packet.payload().len(), |reth| reth.dma_len() as usize);
    Post { kind, flags: 1, len: u16::try_from(len).unwrap_or(u16::MAX).min(0x800) }
}

fn answer(packet: &Packet<'_>) -> Answer {
    let syndrome = packet.aeth().map_or(0, |aeth| aeth.syndrome_byte());
    // A refusal says more than that it is an answer.
    let kind = if syndrome > 31 { 3 } else { 0 };
    Answer { kind, psn: 0, syndrome, more: 0 }
}
