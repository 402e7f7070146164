//! The owner's work requests: what a program's steps post to the queue pair under test.

use userdma_verbs::{AtomicOp, LKey, RKey, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr};

use super::super::arena::MAX_LOCAL;
use super::super::program::{Post, Recv};
use super::Scene;

impl Scene {
    /// Posts a receive, right or wrong.
    pub(super) fn recv(&mut self, recv: &Recv) {
        let len = u32::from(recv.len) % (MAX_LOCAL + 1);
        let half = len / 2;
        let (mut first, mut second) = (self.arena.landing(len), self.arena.landing(half));
        let count = match recv.kind & 3 {
            0 => 1,
            1 => {
                first.length = half;
                second.addr += u64::from(half);
                2
            }
            2 => {
                first.lkey = WRONG_LKEY;
                1
            }
            _ => 0,
        };
        let wr = RecvWr { wr_id: self.recvs.next_id(), sgl: &[first, second][..count] };
        let posted = match &self.srq {
            Some(srq) => srq.post_recv(&wr),
            None => self.pair.hosts[1].post_recv(&self.under_test, &wr),
        };
        if posted.is_ok() {
            self.recvs.posted(true);
        }
    }

    /// Posts a send, right or wrong.
    pub(super) fn post(&mut self, post: &Post) {
        let remote = RemoteAddr { addr: 0x1000, rkey: RKey::new(0x1234) };
        let add = u64::from(post.len);
        let op = match post.kind % 10 {
            0 => SendOp::Send,
            1 => SendOp::Write(remote),
            2 => SendOp::Read(remote),
            3 => SendOp::Atomic(remote, AtomicOp::FetchAdd { add }),
            4 => SendOp::Atomic(remote, AtomicOp::CompareSwap { compare: add, swap: 1 }),
            5 => SendOp::SendWithImm(0x0102_0304),
            6 => SendOp::SendWithInv(remote.rkey),
            7 => SendOp::WriteWithImm(remote, 7),
            8 => SendOp::LocalInv(self.arena.rkey(WINDOW_NAME)),
            _ => SendOp::BindMw(self.arena.bind()),
        };
        let flags = SendFlags::from_bits_truncate(post.flags.into());
        self.post_with(op, flags, u32::from(post.len) % (MAX_LOCAL + 1), post.flags & 0x10 != 0);
        self.pair.progress();
    }

    /// Posts a send of `len` bytes and enters it, if the queue takes it.
    pub(super) fn post_with(&mut self, op: SendOp, flags: SendFlags, len: u32, has_wrong_key: bool) {
        let opcode = op.opcode();
        let mut sge = if opcode.writes_locally() { self.arena.landing(len) } else { self.arena.source(len) };
        if matches!(op, SendOp::Atomic(..)) {
            sge.length = 8;
        }
        if has_wrong_key {
            sge.lkey = WRONG_LKEY;
        }
        let has_data = !matches!(op, SendOp::LocalInv(_) | SendOp::BindMw(_)) && sge.length > 0;
        let inline = [0x69; 256];
        let inline =
            if flags.contains(SendFlags::INLINE) { &inline[..inline.len().min(len as usize)] } else { &[] };
        let wr =
            SendWr { wr_id: self.sends.next_id(), op, flags, sgl: &[sge][..usize::from(has_data)], inline };
        let (host, end) = (&self.pair.hosts[1], &self.under_test);
        let posted = match &self.to {
            Some(to) => end.qp.post_datagram(&wr, to).map(|()| host.ring(end.qp.qpn())),
            None => host.post_send(end, &wr),
        };
        if posted.is_ok() {
            self.sends.posted(flags.contains(SendFlags::SIGNALED) || self.options.sq_sig_all);
        }
    }
}

/// A key that names nothing.
const WRONG_LKEY: LKey = LKey::new(0x0bad_0b00);

/// What programs call the window.
const WINDOW_NAME: u8 = 7;
