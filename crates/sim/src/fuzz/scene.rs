//! One device, a queue pair whose peer is the program, and a healthy connection beside it.

mod work;

use std::sync::Arc;
use std::time::Duration;

use userdma_mem::{Frame, FrameMeta, LinkId};
use userdma_objects::{Srq, UdAddr};
use userdma_verbs::{
    AccessFlags, AsyncEvent, Mtu, Psn, QpAttr, QpAttrMask, QpState, QpType, Qpn, SendFlags, SendOp, Time,
    WcStatus,
};

use super::arena::Arena;
use super::ledger::Ledger;
use super::peer::Peer;
use super::program::{Request, Role, Setup, Step};
use crate::{ConnectOptions, Memory, Pair, PairOptions, QKEY, QpEnd};

/// Host 1 is the device under test; host 0 has the other end of the healthy connection and, under the same address, the
/// program as the peer of the queue pair under test.
pub(super) struct Scene {
    pair: Pair,
    options: ConnectOptions,
    under_test: QpEnd,
    /// Where its receives are, if not in a queue of its own.
    srq: Option<Arc<Srq>>,
    /// Whom its datagrams are for: the program. Connections have none.
    to: Option<UdAddr>,
    healthy: [QpEnd; 2],
    memories: [Memory; 2],
    arena: Arena,
    peer: Peer,
    sends: Ledger,
    recvs: Ledger,
    is_rtr_only: bool,
    /// Completions are taken by [`Step::Poll`] only.
    is_tiny: bool,
    has_rejoined: bool,
    packets: u64,
    /// Packets whose ICRC was made wrong.
    bad_icrcs: u64,
    /// How often the healthy connection was used.
    rounds: u64,
}

impl Scene {
    /// Everything made and connected, the window bound, nothing sent.
    pub(super) fn new(role: Role, service: QpType, setup: &Setup) -> Self {
        let mut pair = Pair::new(&PairOptions { ipv6: setup.bits & 0x80 != 0, ..PairOptions::default() });
        let healthy = pair.connect(&ConnectOptions::default());
        let memories =
            [0, 1].map(|side: usize| pair.hosts[side].memory(2 * HEALTHY, AccessFlags::LOCAL_WRITE));
        let arena = Arena::new(&mut pair.hosts[1]);
        let options = ConnectOptions { service, ..options(setup) };
        let is_datagram = service == QpType::Ud;
        let srq = (is_datagram && setup.limits & 1 != 0).then(|| pair.hosts[1].create_srq(SHARED));
        let under_test = pair.hosts[1].create_on(&options, srq.as_deref());
        let to = is_datagram.then(|| UdAddr { remote_qpn: PEER, ..pair.addr_of(0, &under_test) });
        let peer = Peer::new(meta(&pair), under_test.qp.qpn(), options.mtu.bytes() as usize, options.psn[1]);
        pair.net.set_filter(peer.watch(PEER));
        let mut scene = Self {
            pair,
            options,
            under_test,
            to,
            healthy,
            memories,
            arena,
            peer,
            sends: Ledger::default(),
            recvs: if srq.is_some() { Ledger::shared() } else { Ledger::default() },
            srq,
            is_rtr_only: role == Role::Responder && setup.bits & 0x08 != 0,
            is_tiny: setup.bits & 0x20 != 0,
            has_rejoined: false,
            packets: 0,
            bad_icrcs: 0,
            rounds: 0,
        };
        scene.join();
        if !scene.is_rtr_only && !is_datagram {
            let bind = SendOp::BindMw(scene.arena.bind());
            scene.post_with(bind, SendFlags::empty(), 0, false);
            scene.pair.progress();
        }
        scene
    }

    /// Runs a program to its end, and then looks at everything.
    pub(super) fn run(mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
            self.check();
            if self.packets >= 8 * (self.rounds + 1) {
                self.use_healthy();
            }
        }
        self.finish();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Request(request) => {
                let expected = self.attr().rq_psn;
                self.bad_icrcs += u64::from(request.flags & Request::BAD_ICRC != 0);
                let request = request.of_service(self.options.service);
                let packet = self.peer.request(&request, expected, &self.arena);
                self.deliver(&packet);
            }
            Step::Answer(answer) => {
                let packet = self.peer.answer(answer);
                self.deliver(&packet);
            }
            Step::Raw(bytes) => {
                let packet = self.peer.raw(bytes);
                self.deliver(&packet);
            }
            Step::Recv(recv) => self.recv(recv),
            Step::Post(post) => self.post(post),
            Step::Wait(exponent) => {
                let until = self.pair.now().plus_nanos(1 << (exponent & 31));
                self.advance(until);
            }
            Step::Deregister(which) => self.arena.deregister(&mut self.pair.hosts[1], *which),
            Step::Poll => self.poll(),
            Step::Modify(how) => self.modify(*how),
            Step::Release => {
                self.pair.release_acks(1);
                self.pair.progress();
            }
        }
    }

    fn deliver(&mut self, (bytes, meta): &(Vec<u8>, FrameMeta)) {
        self.packets += 1;
        let now = self.pair.now();
        let host = &mut self.pair.hosts[1];
        host.shard.handle_frame(now, Frame { bytes, meta: *meta });
        host.collect();
    }

    fn modify(&mut self, how: u8) {
        let qpn = self.under_test.qp.qpn();
        let to = match how & 3 {
            0 => QpState::Sqd,
            1 => QpState::Rts,
            2 => QpState::Err,
            _ => return self.rejoin(),
        };
        let attr = QpAttr { qp_state: to, en_sqd_async_notify: true, ..QpAttr::default() };
        let mut mask = QpAttrMask::STATE;
        mask.set(QpAttrMask::EN_SQD_ASYNC_NOTIFY, to == QpState::Sqd);
        let was_failed = self.attr().qp_state == QpState::Sqe;
        // Refused where the states do not allow it.
        let modified = self.pair.hosts[1].shard.modify_qp(self.pair.now(), qpn, &attr, mask);
        if was_failed && to == QpState::Rts && modified.is_ok() {
            self.poll();
            self.sends.recover();
        }
        self.pair.progress();
    }

    /// Through RESET and up again, with the PSNs of the beginning.
    fn rejoin(&mut self) {
        self.poll();
        self.pair.reset(1, self.under_test.qp.qpn());
        self.poll();
        self.sends.forget();
        self.recvs.forget();
        self.join();
        self.has_rejoined = true;
        self.peer.start(self.options.psn[1]);
    }

    fn join(&mut self) {
        let up = if self.is_rtr_only { &crate::pair::UP[..2] } else { &crate::pair::UP[..] };
        let qpn = self.under_test.qp.qpn();
        for &(state, mask) in up {
            let attr = QpAttr { qkey: QKEY, ..self.pair.attr(1, PEER, &self.options, state) };
            self.pair.modify(1, qpn, &attr, crate::pair::mask_of(self.options.service, mask));
        }
    }

    fn attr(&self) -> QpAttr {
        self.pair.hosts[1].shard.query_qp(self.under_test.qp.qpn()).expect("the queue pair is there")
    }

    /// Lets everything happen up to `until`; timers must not run without end.
    fn advance(&mut self, until: Time) {
        self.pair.progress();
        for _ in 0..MAX_STEPS {
            if self.pair.next().is_none_or(|next| next > until) {
                // Nothing is left to happen; only the time moves.
                return self.pair.drive_until(until);
            }
            self.pair.step();
            self.pair.progress();
        }
        panic!("no rest after {MAX_STEPS} steps; next at {:?}, now {:?}", self.pair.next(), self.pair.now());
    }

    /// What must be true after each step.
    fn check(&mut self) {
        self.arena.check();
        if !self.is_tiny {
            self.poll();
        }
        let stats = *self.pair.hosts[1].shard.stats();
        assert!(stats.drop_icrc <= self.bad_icrcs, "a good ICRC was not believed: {stats:?}");
        for cq in [&self.under_test.send_cq, &self.under_test.recv_cq] {
            if cq.has_overflowed() {
                let told = AsyncEvent::CqError { cq: cq.number() };
                assert!(self.pair.hosts[1].events.contains(&told), "a queue overflowed and nobody was told");
                let state = self.attr().qp_state;
                // One that was reset and connected again goes to ERR with its next completion.
                let is_over = self.has_rejoined || matches!(state, QpState::Err | QpState::Reset);
                assert!(is_over, "{state:?} after an overflow");
            }
        }
    }

    fn poll(&mut self) {
        let (sent, received) = (self.under_test.poll_send(), self.under_test.poll_recv());
        self.sends.completed("send queue", &sent);
        self.recvs.completed("receive queue", &received);
    }

    /// A SEND each way over the healthy connection: the device serves others as if nothing were.
    fn use_healthy(&mut self) {
        self.rounds += 1;
        let fill = self.rounds.to_le_bytes()[0];
        for from in [0, 1] {
            let to = 1 - from;
            let data = [fill ^ 0x5a; HEALTHY];
            self.memories[from].put(0, &data);
            let (into, of) = (self.memories[to].sge(HEALTHY as u64, LEN), self.memories[from].sge(0, LEN));
            self.pair.hosts[to].recv(&self.healthy[to], self.rounds, into);
            self.pair.hosts[from].send(&self.healthy[from], self.rounds, SendOp::Send, of);
            self.advance(self.pair.now() + Duration::from_micros(200));
            for wcs in [self.healthy[from].poll_send(), self.healthy[to].poll_recv()] {
                let ends: Vec<_> = wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect();
                assert_eq!(ends, [(self.rounds, WcStatus::Success)], "the healthy connection");
            }
            assert_eq!(
                self.memories[to].bytes(HEALTHY as u64, HEALTHY),
                data,
                "the healthy connection's bytes"
            );
        }
        self.arena.check();
    }

    /// Comes to rest, and ends every object.
    fn finish(&mut self) {
        for _ in 0..MAX_STEPS {
            if !self.pair.step() {
                break;
            }
        }
        assert_eq!(self.pair.next(), None, "something goes on for ever");
        self.check();
        self.poll();
        self.check_books();
        self.use_healthy();
        let now = self.pair.now();
        let host = &mut self.pair.hosts[1];
        host.shard.destroy_qp(now, self.under_test.qp.qpn()).expect("a queue pair that is there");
        if let Some(srq) = &self.srq {
            host.shard.destroy_srq(srq.srqn()).expect("a queue that nobody uses");
        }
        self.arena.close(host);
        let qpn = self.under_test.qp.qpn();
        self.deliver_to_nobody(qpn);
    }

    /// Who completed at rest: in ERR everything, in RTS everything that was to be sent.
    fn check_books(&self) {
        let has_overflowed =
            self.under_test.send_cq.has_overflowed() || self.under_test.recv_cq.has_overflowed();
        let state = self.attr().qp_state;
        match state {
            _ if has_overflowed => {}
            QpState::Err => {
                // Unsignaled sends that succeeded said nothing.
                let open = (self.sends.owed(), self.recvs.owed());
                assert_eq!(open, (0, 0), "work requests that were not flushed");
            }
            QpState::Rts | QpState::Sqe => assert_eq!(self.sends.owed(), 0, "sends that never complete"),
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqd => {}
        }
    }

    /// The queue pair is gone: nothing answers any more.
    fn deliver_to_nobody(&mut self, qpn: Qpn) {
        let before = self.pair.hosts[1].shard.stats().sent_pkts;
        let request = Request { opcode: 4, flags: Request::ACK_REQ, ..Request::default() };
        let packet = self.peer.request(&request, Psn::new(0), &self.arena);
        self.deliver(&packet);
        self.pair.progress();
        assert_eq!(self.pair.hosts[1].shard.stats().sent_pkts, before, "an answer of {qpn}, which is gone");
    }
}

fn options(setup: &Setup) -> ConnectOptions {
    let bit = |bit: u8| setup.bits & 1 << bit != 0;
    let mut access = AccessFlags::empty();
    access.set(AccessFlags::REMOTE_WRITE, bit(0));
    access.set(AccessFlags::REMOTE_READ, bit(1));
    access.set(AccessFlags::REMOTE_ATOMIC, bit(2));
    let psn = Psn::new(0).sub(u32::from(setup.before_wrap));
    ConnectOptions {
        sq_sig_all: bit(6),
        cqe: if bit(5) { 2 } else { 256 },
        mtu: if bit(4) { Mtu::Mtu1024 } else { Mtu::Mtu256 },
        psn: [psn, psn],
        access,
        rd_atomic: setup.limits & 7,
        rnr_retry: setup.limits >> 3 & 7,
        retry_cnt: setup.limits >> 6,
        ..ConnectOptions::default()
    }
}

/// What the network says of packets from host 0 to host 1.
fn meta(pair: &Pair) -> FrameMeta {
    FrameMeta {
        link: LinkId(0),
        remote: pair.hosts[0].address,
        remote_port: 50_000,
        local: pair.hosts[1].address,
        local_port: userdma_wire::ROCE_V2_PORT,
        traffic_class: 0,
        segment: 0,
    }
}

/// The number of the program's queue pair: host 0 has none like it.
const PEER: Qpn = Qpn::new(0x7f00);

/// Receives that a shared queue holds.
const SHARED: u32 = 16;

/// Bytes of a message of the healthy connection.
const HEALTHY: usize = 64;
const LEN: u32 = 64;

/// Steps from event to event until everything must have come to rest.
const MAX_STEPS: usize = 20_000;

#[cfg(test)]
mod tests;
