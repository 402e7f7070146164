//! Our messages beside those of the kernel: the REQ and REP that rxe, Linux 6.12, sent in a capture, and ours that say
//! the same. Every byte is equal but for the numbers that each side chooses: docs/cm.md has the table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets the unexpected fails")]

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use userdma_mgmt::cm::{Arrival, Cm, Event, PortId, RepParams, ReqParams};
use userdma_mgmt::rdma::{Ece, PathRecord};
use userdma_verbs::{Gid, Mtu, PKey, QpType, Time};
use userdma_wire::Packet;
use userdma_wire::encap::EncapFrame;
use userdma_wire::mad::MAD_LEN;
use userdma_wire::mad::cm::{Dreq, Message, Rep, Req, Rtu};

const PORT: PortId = PortId(1);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1));
const NOW: Time = Time::from_nanos(1);

/// The MADs of a capture.
fn mads(file: &str) -> Vec<[u8; MAD_LEN]> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden/rxe").join(file);
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut mads = Vec::new();
    while let Some(frame) = reader.next_packet() {
        let frame = frame.unwrap();
        let Ok(parsed) = EncapFrame::parse(&frame.data) else { continue };
        let Ok(packet) = Packet::parse(parsed.transport) else { continue };
        if packet.mad().is_some() {
            mads.push(packet.payload().try_into().unwrap());
        }
    }
    mads
}

/// Two MADs are equal but for some bytes of them.
fn assert_equal_but(ours: &[u8; MAD_LEN], kernels: &[u8; MAD_LEN], is_own: impl Fn(usize) -> bool) {
    for (at, (ours, kernels)) in ours.iter().zip(kernels).enumerate() {
        assert!(ours == kernels || is_own(at), "byte {at} is {ours:#04x}, the kernel's {kernels:#04x}");
    }
}

/// Where the transaction id stands, in requests.
fn is_transaction_id(at: usize) -> bool {
    (8..16).contains(&at)
}

/// Where the sender's communication id stands.
fn is_own_id(at: usize) -> bool {
    (24..28).contains(&at)
}

fn params_of(req: &Req) -> ReqParams<'_> {
    ReqParams {
        port: PORT,
        from: CLIENT,
        to: SERVER,
        service_id: req.service_id,
        qpn: req.local_qpn,
        qp_type: QpType::Rc,
        starting_psn: req.starting_psn,
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        flow_control: req.end_to_end_flow_control,
        srq: req.srq,
        path: PathRecord {
            sgid: Gid::from(CLIENT),
            dgid: Gid::from(SERVER),
            flow_label: req.primary.flow_label,
            hop_limit: req.primary.hop_limit,
            traffic_class: req.primary.traffic_class,
            sl: req.primary.sl,
            pkey: PKey::DEFAULT,
            mtu: Mtu::Mtu1024,
            rate: req.primary.packet_rate,
            packet_life_time: 16,
        },
        ack_timeout: 17,
        remote_response_timeout: 20,
        local_response_timeout: 20,
        max_cm_retries: 15,
        private_data: req.private_data.bytes(),
        ece: Ece::default(),
    }
}

#[test]
fn our_req_is_the_kernels() {
    for file in ["cm_rping.pcap", "cm_ops.pcap", "cm_reject.pcap", "cm_ucmatose.pcap"] {
        let theirs = mads(file)[0];
        let (_, Message::Req(req)) = Message::parse(&theirs).unwrap() else { panic!("{file}") };
        let mut cm = Cm::new(7);
        cm.add_port(PORT, 0, req.local_ca_guid);
        cm.send_req(NOW, &params_of(&req)).unwrap();
        let ours = cm.poll_transmit().unwrap().mad;
        assert_equal_but(&ours, &theirs, |at| is_transaction_id(at) || is_own_id(at));
    }
}

/// A kernel's client, as captured, and our server: the kernel's messages are understood, and ours are the kernel's.
#[test]
fn our_server_answers_a_captured_client() {
    for file in ["cm_rping.pcap", "cm_ops.pcap"] {
        let theirs = mads(file);
        let (tid, Message::Req(req)) = Message::parse(&theirs[0]).unwrap() else { panic!("{file}") };
        let (_, Message::Rep(rep)) = Message::parse(&theirs[1]).unwrap() else { panic!("{file}") };
        let mut cm = Cm::new(7);
        cm.add_port(PORT, 0, rep.local_ca_guid);
        cm.listen(req.service_id, 0, None).unwrap();
        let hear = |cm: &mut Cm, mad: &[u8]| {
            cm.handle_mad(NOW, Arrival { port: PORT, from: CLIENT, to: SERVER, mad })
        };
        hear(&mut cm, &theirs[0]);
        let Some((conn, Event::Req { req: told, .. })) = cm.poll_event() else { panic!("{file}") };
        assert_eq!(told, req);
        cm.send_rep(NOW, conn, &rep_params(&rep)).unwrap();
        let ours = cm.poll_transmit().unwrap().mad;
        assert_equal_but(&ours, &theirs[1], is_own_id);
        // The rest of the capture, with our id instead of the captured server's.
        let (_, Message::Rtu(rtu)) = Message::parse(&theirs[2]).unwrap() else { panic!("{file}") };
        hear(&mut cm, &Rtu { remote_comm_id: conn.0, ..rtu }.build(tid));
        assert_eq!(cm.poll_event(), Some((conn, Event::Rtu)));
        let (dreq_tid, Message::Dreq(dreq)) = Message::parse(&theirs[3]).unwrap() else { panic!("{file}") };
        hear(&mut cm, &Dreq { remote_comm_id: conn.0, ..dreq }.build(dreq_tid));
        assert_eq!(cm.poll_event(), Some((conn, Event::Dreq)));
        cm.send_drep(NOW, conn, &[]).unwrap();
        let ours = cm.poll_transmit().unwrap().mad;
        assert_equal_but(&ours, &theirs[4], is_own_id);
    }
}

/// What the kernel says when nobody listens is what we say.
#[test]
fn our_refusal_is_the_kernels() {
    let theirs = mads("cm_reject.pcap");
    assert_eq!(userdma_mgmt::cm::answer_unknown(&theirs[0]), Some(theirs[1]));
}

fn rep_params(rep: &Rep) -> RepParams<'_> {
    RepParams {
        qpn: rep.local_qpn,
        starting_psn: rep.starting_psn,
        responder_resources: rep.responder_resources,
        initiator_depth: rep.initiator_depth,
        flow_control: rep.end_to_end_flow_control,
        rnr_retry_count: rep.rnr_retry_count,
        srq: rep.srq,
        target_ack_delay: rep.target_ack_delay,
        private_data: rep.private_data.bytes(),
        ece: Ece::default(),
    }
}
