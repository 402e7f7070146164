//! One requester, one responder, one kind of message; and the phases of its life.

use std::hint::black_box;

use userdma_mem::{Frame, LinkCaps, TxBatch};
use userdma_nic::Shard;
use userdma_sim::{ConnectOptions, Memory, Pair, PairOptions, QpEnd, arrival};
use userdma_verbs::{
    AccessFlags, Mtu, Qpn, RecvWr, SendFlags, SendOp, SendWr, Sge, Time, Wc, WcOpcode, WcStatus,
};

/// What is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Message {
    /// WRITE of 8 bytes, inline.
    Write8,
    /// SEND of 8 bytes from a region into a receive of one element.
    Send8,
    /// WRITE of 64 KiB: 16 packets of 4 KiB.
    Write64K,
    /// READ of 64 KiB: 16 responses of 4 KiB.
    Read64K,
    /// FETCH_ADD.
    FetchAdd,
}

/// A part of a message's life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// The send is posted.
    Post,
    /// The requester makes packets of it.
    Send,
    /// The responder takes them in.
    Receive,
    /// The responder makes its answers.
    Answer,
    /// The requester takes the answers in.
    Complete,
    /// The completion is polled.
    Poll,
}

impl Message {
    pub(crate) const ALL: [Self; 5] =
        [Self::Write8, Self::Send8, Self::Write64K, Self::Read64K, Self::FetchAdd];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Write8 => "write-8",
            Self::Send8 => "send-8",
            Self::Write64K => "write-64k",
            Self::Read64K => "read-64k",
            Self::FetchAdd => "fetch-add",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|message| message.name() == name)
    }

    fn is_received(self) -> bool {
        self == Self::Send8
    }
}

impl Phase {
    pub(crate) const ALL: [Self; 6] =
        [Self::Post, Self::Send, Self::Receive, Self::Answer, Self::Complete, Self::Poll];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Answer => "answer",
            Self::Complete => "complete",
            Self::Poll => "poll",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

/// The one function that is watched.
#[inline(never)]
fn measured<R>(run: impl FnOnce() -> R) -> R {
    black_box(run())
}

/// Runs a phase, watched if it is the one.
fn phase<R>(watched: Option<Phase>, this: Phase, run: impl FnOnce() -> R) -> R {
    if watched == Some(this) { measured(run) } else { run() }
}

/// Two connected devices.
pub(crate) struct Conversation {
    message: Message,
    pair: Pair,
    ends: [QpEnd; 2],
    memory: [Memory; 2],
    /// As many batches as a message or its answer fills.
    batches: Vec<TxBatch>,
    now: Time,
    completions: u64,
}

impl Conversation {
    pub(crate) fn new(message: Message) -> Self {
        let mut pair = Pair::new(&PairOptions::default());
        let options = ConnectOptions { mtu: Mtu::Mtu4096, ..ConnectOptions::default() };
        let ends = pair.connect(&options);
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let memory = [pair.hosts[0].memory(LEN as usize, access), pair.hosts[1].memory(LEN as usize, access)];
        let caps = LinkCaps { max_batch_bytes: 65_507, max_batch_packets: 64, mtu: 65_536 };
        let batches = (0..BATCHES).map(|_| TxBatch::new(&caps)).collect();
        Self { message, now: pair.now(), pair, ends, memory, batches, completions: 0 }
    }

    /// Sends completed.
    pub(crate) fn completions(&self) -> u64 {
        self.completions
    }

    /// The life of one message.
    pub(crate) fn round(&mut self, watched: Option<Phase>) {
        self.now = self.now.plus_nanos(20_000);
        if self.message.is_received() {
            let sge = self.memory[1].sge(0, 64);
            let posted = self.ends[1].qp.post_recv(&RecvWr { wr_id: 1, sgl: &[sge] });
            assert_eq!(posted, Ok(()));
        }
        self.post(watched);
        self.pass(watched, 0, Phase::Send, Phase::Receive);
        self.pair.hosts[1].shard.release_acks();
        self.pass(watched, 1, Phase::Answer, Phase::Complete);
        self.poll(watched);
    }

    fn post(&mut self, watched: Option<Phase>) {
        let inline = [7; 8];
        let sge = match self.message {
            Message::Write8 | Message::Send8 | Message::FetchAdd => self.memory[0].sge(0, 8),
            Message::Write64K | Message::Read64K => self.memory[0].sge(0, LEN),
        };
        let remote = self.memory[1].remote(0);
        let (op, flags, sgl, inline): (_, _, &[Sge], &[u8]) = match self.message {
            Message::Write8 => (SendOp::Write(remote), SendFlags::INLINE, &[], &inline),
            Message::Send8 => (SendOp::Send, SendFlags::empty(), &[sge], &[]),
            Message::Write64K => (SendOp::Write(remote), SendFlags::empty(), &[sge], &[]),
            Message::Read64K => (SendOp::Read(remote), SendFlags::empty(), &[sge], &[]),
            Message::FetchAdd => {
                let add = userdma_verbs::AtomicOp::FetchAdd { add: 1 };
                (SendOp::Atomic(remote, add), SendFlags::empty(), &[sge], &[])
            }
        };
        let wr = SendWr { wr_id: 2, op, flags: flags | SendFlags::SIGNALED, sgl, inline };
        let (qp, shard) = (&self.ends[0].qp, &mut self.pair.hosts[0].shard);
        let posted = phase(watched, Phase::Post, || {
            let posted = qp.post_send(&wr);
            shard.handle_post(qp.qpn());
            posted
        });
        assert_eq!(posted, Ok(()));
    }

    /// Everything that host `from` has to send goes to the other.
    fn pass(&mut self, watched: Option<Phase>, from: usize, sends: Phase, receives: Phase) {
        let [a, b] = &mut self.pair.hosts;
        let (sender, receiver) =
            if from == 0 { (&mut a.shard, &mut b.shard) } else { (&mut b.shard, &mut a.shard) };
        let (batches, now) = (&mut self.batches, self.now);
        let count = phase(watched, sends, || fill(sender, now, batches));
        phase(watched, receives, || batches[..count].iter().for_each(|batch| deliver(receiver, now, batch)));
        batches[..count].iter_mut().for_each(TxBatch::clear);
    }

    fn poll(&mut self, watched: Option<Phase>) {
        let mut wcs = [Wc::new(0, WcStatus::GeneralErr, WcOpcode::Send, Qpn::new(0)); 4];
        let cq = &self.ends[0].send_cq;
        let count = phase(watched, Phase::Poll, || cq.poll(&mut wcs));
        assert!(wcs[..count].iter().all(|wc| wc.status == WcStatus::Success), "{wcs:?}");
        self.completions += count as u64;
        if self.message.is_received() {
            assert_eq!(self.ends[1].recv_cq.poll(&mut wcs), 1);
        }
    }
}

/// Fills batches until there is nothing more to send; how many.
fn fill(shard: &mut Shard, now: Time, batches: &mut [TxBatch]) -> usize {
    let mut count = 0;
    while count < batches.len() && shard.poll_transmit(now, &mut batches[count]).is_some() {
        count += 1;
    }
    count
}

fn deliver(shard: &mut Shard, now: Time, batch: &TxBatch) {
    let Some(route) = batch.route() else { return };
    for (segment, bytes) in (0..).zip(batch.packets()) {
        shard.handle_frame(now, Frame { bytes, meta: arrival(route, segment) });
    }
}

/// Bytes of a large message.
const LEN: u32 = 64 << 10;
/// Batches that a large message or its answer fills at most.
const BATCHES: usize = 4;
