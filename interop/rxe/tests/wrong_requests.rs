//! `docs/wrong-requests.md` is true: our responder answers as its table says, and what it says of rxe is what the
//! captures of rxe show.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use userdma::{AccessFlags, Cq, Device, Endpoint, Mr, Mtu, Pd, Psn, Qp, Qpn, RtrAttr, Rts, RtsAttr};
use userdma_interop_rxe::probe::{
    Answer, DocRow, FENCE_QPN, OWN_QPN, Outcome, PSN, Prober, Quiet, Target, parse_doc, rows,
};
use userdma_wire::Packet;

const DEVICE: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 1);
const PROBER: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 2);

/// The objects of the responder.
struct Responder {
    pd: Pd,
    cq: Cq,
    region: Mr,
    landing: Mr,
    device: Device,
}

impl Responder {
    fn new() -> Self {
        let device = Device::open(&DEVICE.to_string()).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(1024).unwrap();
        let rights = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let region = pd.alloc(1 << 16, rights).unwrap();
        let landing = pd.alloc(1 << 16, AccessFlags::LOCAL_WRITE).unwrap();
        Self { pd, cq, region, landing, device }
    }

    /// A queue pair whose peer is the prober, with receives of this length.
    fn connect(&self, peer_qpn: u32, receive_len: usize) -> (Qp<Rts>, Target) {
        let qp = self.pd.create_qp(&self.cq, &self.cq).psn(Psn::new(0x1000)).build().unwrap();
        let peer = Endpoint {
            gid: PROBER.into(),
            qpn: Qpn::new(peer_qpn),
            psn: Psn::new(PSN),
            path_mtu: Mtu::Mtu4096,
        };
        let rtr = RtrAttr { path_mtu: Some(Mtu::Mtu1024), ..RtrAttr::default() };
        let qp = qp.connect_with(&peer, &rtr, &RtsAttr::default()).unwrap();
        for wr_id in 0..16 {
            qp.post_recv(wr_id, &self.landing.slice(..receive_len)).unwrap();
        }
        let region = self.region.remote();
        let target =
            Target { qpn: qp.qpn().get(), addr: region.addr, rkey: region.rkey.get(), len: region.len };
        (qp, target)
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table() -> Vec<DocRow> {
    parse_doc(&fs::read_to_string(repository().join("docs/wrong-requests.md")).unwrap())
}

#[test]
fn our_responder_answers_as_the_table_says() {
    let responder = Responder::new();
    let (_fence_qp, fence) = responder.connect(FENCE_QPN, 100);
    let mut prober = Prober::new(IpAddr::V4(PROBER), IpAddr::V4(DEVICE), Quiet::Fence(fence)).unwrap();
    let listed: BTreeMap<String, DocRow> =
        table().into_iter().map(|row| (row.request.clone(), row)).collect();
    let mut wrong = Vec::new();
    for row in rows() {
        let (_qp, target) = responder.connect(OWN_QPN, row.receive_len);
        let ours = prober.run(&row, &target).unwrap().to_string();
        match listed.get(row.name) {
            Some(listed) if listed.ours == ours => {}
            listed => wrong.push(format!("{}: {ours}; the table: {:?}", row.name, listed.map(|l| &l.ours))),
        }
    }
    let stats = responder.device.stats().unwrap();
    assert!(wrong.is_empty(), "{} rows differ:\n{}\n{stats:?}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_table_has_every_request_once_and_a_reason_where_we_differ() {
    let table = table();
    let names: Vec<&str> = table.iter().map(|row| row.request.as_str()).collect();
    let rows = rows();
    assert_eq!(names, rows.iter().map(|row| row.name).collect::<Vec<_>>());
    for row in &table {
        assert_eq!(row.ours == row.rxe, row.why.is_empty(), "{}: {} | {}", row.request, row.rxe, row.ours);
    }
}

#[test]
fn what_the_table_says_of_rxe_is_what_was_captured() {
    let list = fs::read_to_string(repository().join("crates/wire/tests/golden/probe_errors.txt")).unwrap();
    let table = table();
    let mut compared = 0;
    for (line, row) in list.lines().zip(&table) {
        let (answers, afterwards) = line.split_once(" | afterwards: ").unwrap();
        let answers = answers.strip_prefix(&row.request).and_then(|rest| rest.strip_prefix(": ")).unwrap();
        let answers = match answers {
            "nothing" => Vec::new(),
            some => some.split("; ").map(|a| Answer::of_listed(a, PSN).unwrap()).collect(),
        };
        let outcome = Outcome { answers, lives: afterwards != "QP silent" };
        assert_eq!(row.rxe, outcome.to_string(), "{}", row.request);
        compared += 1;
    }
    assert_eq!(compared, 26, "the list has as many cases");
}

#[test]
fn rxes_refusals_in_the_captures_are_those_of_the_table() {
    let table = table();
    for (capture, request) in [
        ("nak_badkey_write", "WRITE with a wrong rkey"),
        ("nak_badkey_read", "READ with a wrong rkey"),
        ("nak_badkey_atomic", "CAS with a wrong rkey"),
        ("nak_oob", "WRITE outside the region"),
        ("nak_length", "SEND longer than the receive"),
    ] {
        let refusal = refusal_in(&repository().join(format!("crates/wire/tests/golden/rxe/{capture}.pcap")));
        let row = table.iter().find(|row| row.request == request).unwrap();
        assert!(row.rxe.starts_with(&refusal), "{request}: the table says {}, {capture} {refusal}", row.rxe);
    }
}

/// The first NAK of a capture, without its numbers.
fn refusal_in(path: &Path) -> String {
    let file = fs::File::open(path).unwrap();
    let mut reader = pcap_file::pcap::PcapReader::new(file).unwrap();
    while let Some(frame) = reader.next_packet() {
        // Ethernet, IPv4 and UDP headers are 42 bytes.
        let frame = frame.unwrap();
        let Some(bytes) = frame.data.get(42..) else { continue };
        let Ok(packet) = Packet::parse(bytes) else { continue };
        let answer = Answer::of(&packet, packet.bth().psn().get()).to_string();
        if packet.aeth().is_some() && answer.starts_with("NAK") {
            return answer.split(" +").next().unwrap_or_default().to_owned();
        }
    }
    panic!("no NAK in {}", path.display());
}
