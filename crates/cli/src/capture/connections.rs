//! What a whole capture tells beyond its packets: which queue pairs belong together, what was sent again.

use std::collections::HashMap;
use std::net::IpAddr;

use userdma_verbs::{Psn, Qpn};
use userdma_wire::encap::Encap;
use userdma_wire::{Operation, Packet, Service, Syndrome};

/// Packets from one address to a queue pair of another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlowKey {
    /// From here.
    pub src: IpAddr,
    /// To here.
    pub dst: IpAddr,
    /// To this queue pair.
    pub qpn: Qpn,
}

/// What is known of a flow.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Its place in the order of appearance.
    pub index: usize,
    /// The sender's queue pair, once an answer or a datagram header has told it.
    pub src_qpn: Option<Qpn>,
    /// Packets.
    pub packets: u64,
    /// Payload bytes, those sent again included.
    pub payload_bytes: u64,
    /// Requests and READ responses that had been sent before.
    pub sent_again: u64,
    /// Packets that came after later ones, for the first time.
    pub late: u64,
    /// NAKs but RNR NAKs.
    pub naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    requests: Sequence,
    responses: Sequence,
}

/// What a packet's PSN says in the light of those before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Freshness {
    /// As expected, or not counted in PSNs.
    New,
    /// Sent before.
    Again,
    /// Overtaken by a later one, or lost before it was captured the first time.
    Late,
}

/// The flows of a capture.
#[derive(Debug, Default)]
pub struct Flows {
    flows: HashMap<FlowKey, Flow>,
}

/// The PSNs of one kind of packet in a flow.
#[derive(Clone, Debug, Default)]
struct Sequence {
    next: Option<Psn>,
    /// When, in packets of the sequence, each PSN was seen last.
    seen: HashMap<u32, u64>,
    count: u64,
}

impl Flows {
    /// Takes a packet into account. One whose ICRC is bad (`is_sound` is false) may have gone between others than it
    /// says: it begins no flow.
    pub fn observe(&mut self, encap: &Encap, packet: &Packet<'_>, is_sound: bool) -> Freshness {
        let key = FlowKey { src: encap.src, dst: encap.dst, qpn: packet.bth().qpn() };
        if !is_sound && !self.flows.contains_key(&key) {
            return Freshness::New;
        }
        let index = self.flows.len();
        let flow = self.flows.entry(key).or_insert_with(|| Flow { index, ..Flow::default() });
        let freshness = flow.observe(packet);
        if flow.src_qpn.is_none() {
            match packet.deth() {
                Some(deth) => flow.src_qpn = Some(deth.src_qp()),
                None => self.pair(key, packet),
            }
        }
        freshness
    }

    /// The flow of a packet.
    pub fn of(&self, encap: &Encap, packet: &Packet<'_>) -> Option<&Flow> {
        self.flows.get(&FlowKey { src: encap.src, dst: encap.dst, qpn: packet.bth().qpn() })
    }

    /// All flows in the order of their first packets.
    pub fn in_order(&self) -> Vec<(FlowKey, &Flow)> {
        let mut flows: Vec<_> = self.flows.iter().map(|(key, flow)| (*key, flow)).collect();
        flows.sort_by_key(|(_, flow)| flow.index);
        flows
    }

    /// An answer names the queue pair that asked: it goes with the request of the same PSN.
    fn pair(&mut self, answer: FlowKey, packet: &Packet<'_>) {
        if !packet.info().is_response() {
            return;
        }
        let psn = packet.bth().psn().get();
        let is_asked = |(key, flow): &(&FlowKey, &mut Flow)| {
            key.src == answer.dst
                && key.dst == answer.src
                && flow.src_qpn.is_none_or(|qpn| qpn == answer.qpn)
                && flow.requests.seen.contains_key(&psn)
        };
        let asked = self
            .flows
            .iter_mut()
            .filter(|f| is_asked(f))
            .max_by_key(|(_, flow)| flow.requests.seen.get(&psn).copied());
        let Some((asked, flow)) = asked else { return };
        flow.src_qpn = Some(answer.qpn);
        let asked = asked.qpn;
        if let Some(flow) = self.flows.get_mut(&answer) {
            flow.src_qpn = Some(asked);
        }
    }
}

impl Flow {
    fn observe(&mut self, packet: &Packet<'_>) -> Freshness {
        self.packets += 1;
        self.payload_bytes += packet.payload().len() as u64;
        match packet.aeth().map(|aeth| aeth.syndrome()) {
            Some(Syndrome::Nak(_)) => self.naks += 1,
            Some(Syndrome::Rnr { .. }) => self.rnr_naks += 1,
            Some(Syndrome::Ack { .. } | Syndrome::Reserved(_)) | None => {}
        }
        let info = packet.info();
        let psn = packet.bth().psn();
        let freshness = match (info.service, info.op) {
            (Service::Ud | Service::Cnp, _) | (_, Operation::Acknowledge | Operation::Cnp) => Freshness::New,
            (_, Operation::ReadResponse | Operation::AtomicAcknowledge) => self.responses.observe(psn),
            (
                _,
                Operation::Send
                | Operation::Write
                | Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::Flush
                | Operation::AtomicWrite,
            ) => self.requests.observe(psn),
        };
        match freshness {
            Freshness::New => {}
            Freshness::Again => self.sent_again += 1,
            Freshness::Late => self.late += 1,
        }
        freshness
    }
}

impl Sequence {
    fn observe(&mut self, psn: Psn) -> Freshness {
        self.count += 1;
        let before = self.seen.insert(psn.get(), self.count);
        // A number that was seen half the space ago is a new one.
        let is_known = before.is_some_and(|at| self.count - at < 1 << 23);
        match self.next {
            Some(next) if psn.is_before(next) && is_known => Freshness::Again,
            Some(next) if psn.is_before(next) => Freshness::Late,
            Some(_) | None => {
                self.next = Some(psn.add(1));
                Freshness::New
            }
        }
    }
}
