//! The wrong requests. The first 26 are those of `crates/wire/tests/golden/probe_errors.txt`, in its order.

use super::request::{Ext, Request};
use super::{MTU, PSN};

/// A case: what is sent, on a fresh connection.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is called, here, in the captures' list and in the table.
    pub name: &'static str,
    /// What is done.
    pub steps: Vec<Step>,
    /// Length of the receives that the responder has posted.
    pub receive_len: usize,
}

/// A step of a case.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send a packet.
    Send(Request),
    /// Wait until everything before was answered.
    Settle,
}

const DATA: &[u8] = b"12345678";

fn reth(off: u64, len: u32) -> Ext {
    Ext::Reth { off, len, wrong_key: false }
}

fn wrong_key(len: u32) -> Ext {
    Ext::Reth { off: 0, len, wrong_key: true }
}

fn row(name: &'static str, requests: impl IntoIterator<Item = Request>) -> Row {
    Row { name, steps: requests.into_iter().map(Step::Send).collect(), receive_len: 65_536 }
}

fn full() -> Vec<u8> {
    vec![b'x'; MTU]
}

/// All of them.
pub fn rows() -> Vec<Row> {
    let mut rows = dropped();
    rows.extend(wrong_messages());
    rows.extend(one_sided());
    rows.extend(sequence());
    rows.extend(optional());
    rows.extend(beyond_the_list());
    rows
}

/// Duplicates, and what no queue pair should answer.
fn dropped() -> Vec<Row> {
    let with = |change: fn(&mut Request)| {
        let mut request = Request::send(PSN, DATA);
        change(&mut request);
        [request]
    };
    vec![
        row(
            "good SEND, then the same again (duplicate)",
            [Request::send(PSN, DATA), Request::send(PSN, DATA)],
        ),
        row("wrong ICRC", with(|r| r.bad_icrc = true)),
        row("pkey 0x7fff (limited member)", with(|r| r.pkey = 0x7fff)),
        row("pkey 0x1234", with(|r| r.pkey = 0x1234)),
        row("unknown QPN", with(|r| r.qpn = Some(0x777))),
        row("transport header version 1", with(|r| r.version = 1)),
        row("reserved opcode 0x1f", with(|r| r.opcode = 0x1f)),
        row("UC SEND Only (0x24) to an RC QP", with(|r| r.opcode = 0x24)),
    ]
}

/// SENDs whose packets do not make a message.
fn wrong_messages() -> Vec<Row> {
    let first = || Request { ack_req: false, ..Request::new(0x00, PSN, Ext::None, &full()) };
    vec![
        row("SEND Middle first", [Request::new(0x01, PSN, Ext::None, &full())]),
        row("SEND First, then SEND Only", [first(), Request::send(PSN + 1, DATA)]),
        row("SEND First shorter than the MTU", [Request::new(0x00, PSN, Ext::None, &full()[..512])]),
        row("SEND Only longer than the MTU", [Request::send(PSN, &[b'x'; 1200])]),
        row("SEND First, Last of 0 bytes", [first(), Request::new(0x02, PSN + 1, Ext::None, b"")]),
    ]
}

/// One-sided requests whose headers are wrong.
fn one_sided() -> Vec<Row> {
    let misaligned = Ext::Cas { off: 4, wrong_key: false };
    vec![
        row("WRITE Only, RETH length more than payload", [Request::new(0x0a, PSN, reth(0, 16), DATA)]),
        row("WRITE Only, RETH length less than payload", [Request::new(0x0a, PSN, reth(0, 4), DATA)]),
        row("WRITE of 0 bytes with a bad rkey", [Request::new(0x0a, PSN, wrong_key(0), b"")]),
        row("READ of 0 bytes with a bad rkey", [Request::new(0x0c, PSN, wrong_key(0), b"")]),
        row("READ length 2^31+1", [Request::new(0x0c, PSN, reth(0, (1 << 31) + 1), b"")]),
        row("misaligned CAS", [Request::new(0x13, PSN, misaligned, b"")]),
    ]
}

/// PSNs, acknowledgements, padding.
fn sequence() -> Vec<Row> {
    let ahead = || Request::send(PSN + 5, DATA);
    let quiet_write = Request { ack_req: false, ..Request::write(PSN, 0, DATA) };
    let padded = Request { pad: Some((3, 0)), ..Request::send(PSN, DATA) };
    let mut reads = row(
        "READ, then duplicate READ of its second half",
        [Request::new(0x0c, PSN, reth(0, 3000), b""), Request::new(0x0c, PSN + 1, reth(1024, 1976), b"")],
    );
    reads.steps.insert(1, Step::Settle);
    vec![
        row("PSN 5 ahead, twice, then the right one", [ahead(), ahead(), Request::send(PSN, DATA)]),
        row("WRITE without AckReq, then one with", [quiet_write, Request::write(PSN + 1, 0, DATA)]),
        row(
            "RC Acknowledge out of nowhere, then a good WRITE",
            [Request::new(0x11, 0x1000, Ext::Aeth(0x1f00_0001), b""), Request::write(PSN, 0, DATA)],
        ),
        row("nonzero pad count on 8 bytes (pad 4 bytes impossible: 3)", [padded]),
        reads,
    ]
}

/// Operations that a responder may do without.
fn optional() -> Vec<Row> {
    vec![
        row("RDMA FLUSH (0x1c) without permission", [Request::new(0x1c, PSN, Ext::Flush { len: 8 }, b"")]),
        row("ATOMIC WRITE (0x1d)", [Request::new(0x1d, PSN, reth(0, 8), DATA)]),
    ]
}

/// What the list does not have.
fn beyond_the_list() -> Vec<Row> {
    let far = |len: u32| Ext::Reth { off: 1 << 40, len, wrong_key: false };
    let mut too_long = row("SEND longer than the receive", [Request::send(PSN, &[b'x'; 200])]);
    too_long.receive_len = 100;
    let mut too_long_later = row(
        "SEND of two packets, the second longer than what is left of the receive",
        [
            Request { ack_req: false, ..Request::new(0x00, PSN, Ext::None, &full()) },
            Request::new(0x02, PSN + 1, Ext::None, &[b'x'; 200]),
        ],
    );
    too_long_later.receive_len = 1100;
    vec![
        row("WRITE with a wrong rkey", [Request::new(0x0a, PSN, wrong_key(8), DATA)]),
        row("READ with a wrong rkey", [Request::new(0x0c, PSN, wrong_key(8), b"")]),
        row("CAS with a wrong rkey", [Request::new(0x13, PSN, Ext::Cas { off: 0, wrong_key: true }, b"")]),
        row("WRITE outside the region", [Request::new(0x0a, PSN, far(8), DATA)]),
        row("READ outside the region", [Request::new(0x0c, PSN, far(8), b"")]),
        too_long,
        too_long_later,
        row(
            "SEND with invalidate of a key that nobody has",
            [Request::new(0x17, PSN, Ext::Ieth(0x1234_5678), DATA)],
        ),
        row(
            "length of the packet no multiple of four",
            [Request { pad: Some((0, 0)), ..Request::send(PSN, b"1234567") }],
        ),
        row(
            "pad count 3, but nothing behind the header",
            [Request { pad: Some((3, 0)), ..Request::send(PSN, b"") }],
        ),
        row("WRITE whose payload is missing", [Request::new(0x0a, PSN, reth(0, 8), b"")]),
        row("WRITE without a RETH: shorter than its headers", [Request::new(0x0a, PSN, Ext::None, b"")]),
        row("READ with a payload", [Request::new(0x0c, PSN, reth(0, 8), DATA)]),
        row(
            "SEND First, then WRITE Middle",
            [
                Request { ack_req: false, ..Request::new(0x00, PSN, Ext::None, &full()) },
                Request::new(0x07, PSN + 1, Ext::None, &full()),
            ],
        ),
        row("WRITE First of a message that fits one packet", [Request::new(0x06, PSN, reth(0, 8), &full())]),
        row(
            "WRITE Last before the end of the RETH's length",
            [
                Request { ack_req: false, ..Request::new(0x06, PSN, reth(0, 3000), &full()) },
                Request::new(0x08, PSN + 1, Ext::None, &full()),
            ],
        ),
        row("RD SEND Only (0x44) to an RC QP", [Request { opcode: 0x44, ..Request::send(PSN, DATA) }]),
        row("a READ response out of nowhere", [Request::new(0x10, 0x1000, Ext::Aeth(0x1f00_0001), DATA)]),
    ]
}
