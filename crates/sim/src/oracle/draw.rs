//! What a phase posts.

use rand::{Rng, RngExt};
use userdma_verbs::{
    AccessFlags, AtomicOp, BindMw, LKey, RKey, RemoteAddr, SendFlags, SendOp, Sge, WrOpcode,
};

use super::plan::pick;
use super::world::{Arena, CELLS, DATA, Flow, GAP, Mistake, Piece, Recv, Send, TARGET, WindowMode, World};

impl World {
    /// Draws the next phase of every flow.
    pub(super) fn draw_phase(&mut self) {
        for flow in 0..self.flows.len() {
            self.draw_window_mode(flow);
        }
        for conn in 0..self.plan.conns {
            let mistaken = self
                .rng
                .random_bool(self.plan.mistake)
                .then(|| 2 * conn + usize::from(self.rng.random_bool(0.5)));
            for flow in [2 * conn, 2 * conn + 1] {
                let count = self.rng.random_range(0..=self.plan.max_ops);
                let wrong = (mistaken == Some(flow)).then(|| self.rng.random_range(0..=count));
                for number in 0..=count {
                    if wrong == Some(number) {
                        self.draw_mistake(flow);
                    } else if number < count {
                        self.draw_send(flow);
                    }
                }
            }
        }
    }

    fn draw_window_mode(&mut self, flow: usize) {
        let window = &self.flows[flow].target.window;
        let mode = match window.bound {
            None if self.rng.random_bool(0.5) => {
                let len = self.rng.random_range(1..DATA - 2 * GAP);
                let at = self.rng.random_range(GAP..DATA - GAP - len);
                // The low byte is the owner's to choose, and another one each time.
                let low = window.rkey.get().to_le_bytes()[0].wrapping_add(1);
                WindowMode::Bind { rkey: window.rkey.with_variant(low), at, len }
            }
            Some(_) if self.rng.random_bool(0.2) => WindowMode::Invalidate,
            Some(_) => WindowMode::Use,
            None => WindowMode::Idle,
        };
        self.flows[flow].target.window.mode = mode;
        // The owner is the other side of the connection; its request goes wherever in its order.
        match mode {
            WindowMode::Bind { rkey, at, len } => {
                let target = &self.flows[flow].target;
                let bind = BindMw {
                    mw: target.window.rkey,
                    rkey,
                    mr: target.memory.keys.lkey,
                    addr: target.memory.iova + at as u64,
                    length: len as u64,
                    access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
                };
                self.draw_local(flow ^ 1, SendOp::BindMw(bind));
            }
            WindowMode::Invalidate => {
                let rkey = self.flows[flow].target.window.rkey;
                self.draw_local(flow ^ 1, SendOp::LocalInv(rkey));
            }
            WindowMode::Idle | WindowMode::Use | WindowMode::Used => {}
        }
    }

    fn draw_local(&mut self, flow: usize, op: SendOp) {
        let flags = self.draw_flags();
        self.flows[flow].sends.push(Send::bare(op, flags));
    }

    fn draw_flags(&mut self) -> SendFlags {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, self.rng.random_bool(self.plan.signaled));
        flags.set(SendFlags::FENCE, self.rng.random_bool(self.plan.fence));
        flags.set(SendFlags::SOLICITED, self.rng.random_bool(0.2));
        flags
    }

    fn draw_send(&mut self, flow: usize) {
        match self.rng.random_range(0..16) {
            0..=2 => self.draw_message(flow, SendOp::Send),
            3 => {
                let imm = self.rng.random();
                self.draw_message(flow, SendOp::SendWithImm(imm));
            }
            4 if self.flows[flow].target.window.mode == WindowMode::Use => {
                let rkey = self.flows[flow].target.window.rkey;
                self.draw_message(flow, SendOp::SendWithInv(rkey));
                self.flows[flow].target.window.mode = WindowMode::Used;
            }
            4..=7 => self.draw_access(flow, Access::Write),
            8 | 9 => self.draw_access(flow, Access::WriteWithImm),
            10..=13 => self.draw_access(flow, Access::Read),
            _ => self.draw_atomic(flow),
        }
    }

    fn draw_len(&mut self, most: usize) -> usize {
        let mtu = self.plan.connect.mtu.bytes() as usize;
        let len = match self.rng.random_range(0..10) {
            0 => 0,
            1 => pick(&mut self.rng, &[1, 2, 3, 8]),
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            5 => mtu * self.rng.random_range(1..=5),
            // Longer than a small window.
            6 if self.rng.random_bool(0.1) => self.rng.random_range(0..=mtu * 40),
            6 | 7 => self.rng.random_range(0..=mtu * 5),
            _ => self.rng.random_range(0..=256),
        };
        len.min(most)
    }

    /// A SEND with the receive that it will meet.
    fn draw_message(&mut self, flow: usize, op: SendOp) {
        let len = self.draw_len(DATA);
        let mut send = self.draw_source(flow, op, len);
        if op.opcode() == WrOpcode::SendWithInv {
            // READs before it that use the key must be complete: without a fence they may be executed after it.
            send.flags |= SendFlags::FENCE;
        }
        self.push_with_recv(flow, send, len);
    }

    /// A WRITE or READ on the target's data, through the region's key or the window's.
    fn draw_access(&mut self, flow: usize, access: Access) {
        let window = &self.flows[flow].target.window;
        let usable = window.bound.filter(|_| window.mode == WindowMode::Use && self.rng.random_bool(0.5));
        let range = usable.map(|(at, len)| (at, len, window.rkey));
        let region = self.flows[flow].target.memory.keys.rkey;
        let (start, room, rkey) = range.unwrap_or((GAP, DATA - 2 * GAP, region));
        let len = self.draw_len(room);
        // A few places are used again and again, so that accesses overlap.
        let slack = room - len;
        let at = start
            + if self.rng.random_bool(0.5) {
                slack.min(512 * self.rng.random_range(0..4))
            } else {
                self.rng.random_range(0..=slack)
            };
        let remote = self.remote(flow, at, rkey);
        let imm = self.rng.random();
        match access {
            Access::Read => self.push_read(flow, remote, at, len),
            Access::WriteWithImm => {
                let send = self.draw_source(flow, SendOp::WriteWithImm(remote, imm), len);
                let room = self.draw_len(256);
                self.push_with_recv(flow, Send { at, ..send }, room);
            }
            Access::Write => {
                let send = self.draw_source(flow, SendOp::Write(remote), len);
                self.flows[flow].sends.push(Send { at, ..send });
            }
        }
    }

    fn remote(&self, flow: usize, at: usize, rkey: RKey) -> RemoteAddr {
        RemoteAddr { addr: self.flows[flow].target.memory.iova + at as u64, rkey }
    }

    fn push_read(&mut self, flow: usize, remote: RemoteAddr, at: usize, len: usize) {
        let flags = self.draw_flags();
        let (sgl, landing) = self.draw_pieces(self.flows[flow].side, len, self.plan.connect.cap.max_send_sge);
        let send = Send { sgl, landing, len, at, ..Send::bare(SendOp::Read(remote), flags) };
        self.flows[flow].sends.push(send);
    }

    fn draw_atomic(&mut self, flow: usize) {
        let at = DATA + 8 * self.rng.random_range(0..CELLS);
        let remote = self.remote(flow, at, self.flows[flow].target.memory.keys.rkey);
        let op = if self.rng.random_bool(0.5) {
            AtomicOp::FetchAdd { add: pick(&mut self.rng, &[1, u64::MAX, 0x0123_4567_89ab_cdef]) }
        } else {
            // Zero is what every cell begins with, and what it comes back to by chance now and then.
            AtomicOp::CompareSwap {
                compare: pick(&mut self.rng, &[0, 0, 1, 2]),
                swap: self.rng.random_range(0..3),
            }
        };
        let flags = self.draw_flags();
        let piece = self.take_piece(self.flows[flow].side, 8);
        let sgl = vec![self.sge(self.flows[flow].side, piece)];
        let send =
            Send { sgl, landing: vec![piece], len: 8, at, ..Send::bare(SendOp::Atomic(remote, op), flags) };
        self.flows[flow].sends.push(send);
    }

    /// A request that carries `len` random bytes, inline or from pieces of the arena.
    fn draw_source(&mut self, flow: usize, op: SendOp, len: usize) -> Send {
        let mut flags = self.draw_flags();
        let mut payload = vec![0; len];
        self.rng.fill_bytes(&mut payload);
        let side = self.flows[flow].side;
        let mut sgl = Vec::new();
        if len <= self.plan.connect.cap.max_inline_data as usize && self.rng.random_bool(0.4) {
            flags |= SendFlags::INLINE;
        } else {
            let (list, pieces) = self.draw_pieces(side, len, self.plan.connect.cap.max_send_sge);
            self.arenas[side].fill(&pieces, &payload);
            sgl = list;
        }
        Send { sgl, payload, len, ..Send::bare(op, flags) }
    }

    /// Pieces of an arena for `len` bytes, at most `max`.
    fn draw_pieces(&mut self, side: usize, len: usize, max: u32) -> (Vec<Sge>, Vec<Piece>) {
        let count = self.rng.random_range(1..=max as usize);
        let mut cuts: Vec<usize> = (1..count).map(|_| self.rng.random_range(0..=len)).collect();
        cuts.push(len);
        cuts.sort_unstable();
        let mut start = 0;
        let (mut sgl, mut pieces) = (Vec::new(), Vec::new());
        for end in cuts {
            let piece = self.take_piece(side, end - start);
            sgl.push(self.sge(side, piece));
            pieces.push(piece);
            start = end;
        }
        (sgl, pieces)
    }

    fn take_piece(&mut self, side: usize, len: usize) -> Piece {
        let gap = self.rng.random_range(0..24);
        self.arenas[side].take(len, gap)
    }

    /// The element for a piece. One of no bytes may have any key.
    fn sge(&mut self, side: usize, piece: Piece) -> Sge {
        let memory = &self.arenas[side].memories[self.rng.random_range(0..2)];
        let length = u32::try_from(piece.len).unwrap_or(u32::MAX);
        let sge = memory.sge(piece.at as u64, length);
        if length == 0 { Sge { lkey: LKey::new(self.rng.random()), ..sge } } else { sge }
    }

    /// Posts a message and the receive that it will meet, with room for `room` bytes or more.
    fn push_with_recv(&mut self, flow: usize, send: Send, room: usize) {
        let more = if self.rng.random_bool(0.5) { self.rng.random_range(0..64) } else { 0 };
        self.push_message(flow, send, room + more);
    }

    fn push_message(&mut self, flow: usize, mut send: Send, room: usize) {
        let side = 1 - self.flows[flow].side;
        let (sgl, pieces) = self.draw_pieces(side, room, self.plan.connect.cap.max_recv_sge);
        let flow = &mut self.flows[flow];
        send.recv = Some(flow.recvs.len());
        flow.recvs.push(Recv { sgl, pieces, message: flow.sends.len(), wc: None });
        flow.sends.push(send);
    }

    fn draw_mistake(&mut self, flow: usize) {
        use Mistake::{
            InvalidateRegion, LocalKey, NoKey, OutOfBounds, ReadOnly, RecvKey, StaleWindow, TooLong,
        };
        let all = [NoKey, StaleWindow, OutOfBounds, ReadOnly, InvalidateRegion, TooLong, LocalKey, RecvKey];
        let mut mistake = pick(&mut self.rng, &all);
        let window = &self.flows[flow].target.window;
        let is_stale = match window.mode {
            WindowMode::Used => true,
            WindowMode::Idle => window.bound.is_none(),
            WindowMode::Bind { .. } | WindowMode::Invalidate | WindowMode::Use => false,
        };
        if mistake == StaleWindow && !is_stale {
            mistake = NoKey;
        }
        match mistake {
            NoKey | StaleWindow | OutOfBounds | ReadOnly => self.draw_bad_access(flow, mistake),
            InvalidateRegion | TooLong | RecvKey => self.draw_bad_message(flow, mistake),
            LocalKey => self.draw_bad_source(flow),
        }
        if let Some(send) = self.flows[flow].sends.last_mut() {
            send.mistake = Some(mistake);
        }
    }

    fn draw_bad_access(&mut self, flow: usize, mistake: Mistake) {
        let len = self.draw_len(DATA - 2 * GAP).max(1);
        let target = &self.flows[flow].target;
        let (at, rkey) = match mistake {
            Mistake::StaleWindow => (GAP, target.window.rkey),
            Mistake::OutOfBounds => (TARGET - len + self.rng.random_range(1..=len), target.memory.keys.rkey),
            Mistake::ReadOnly => (GAP, target.read_only.keys.rkey),
            // A neighbour of a key that exists.
            Mistake::NoKey
            | Mistake::InvalidateRegion
            | Mistake::TooLong
            | Mistake::LocalKey
            | Mistake::RecvKey => {
                (GAP, RKey::new(target.memory.keys.rkey.get() ^ 1 << self.rng.random_range(0..32)))
            }
        };
        let remote = self.remote(flow, at, rkey);
        if mistake != Mistake::ReadOnly && self.rng.random_bool(0.3) {
            return self.push_read(flow, remote, at, len);
        }
        let send = self.draw_source(flow, SendOp::Write(remote), len);
        self.flows[flow].sends.push(send);
    }

    fn draw_bad_message(&mut self, flow: usize, mistake: Mistake) {
        let len = self.draw_len(DATA).max(1);
        let rkey = self.flows[flow].target.memory.keys.rkey;
        let op = if mistake == Mistake::InvalidateRegion { SendOp::SendWithInv(rkey) } else { SendOp::Send };
        let send = self.draw_source(flow, op, len);
        let room = if mistake == Mistake::TooLong { self.rng.random_range(0..len) } else { len };
        self.push_message(flow, send, room);
        if mistake == Mistake::RecvKey
            && let Some(recv) = self.flows[flow].recvs.last_mut()
        {
            for sge in &mut recv.sgl {
                sge.lkey = LKey::new(sge.lkey.get() ^ 0x100);
            }
        }
    }

    fn draw_bad_source(&mut self, flow: usize) {
        let len = self.draw_len(DATA - 2 * GAP).max(1);
        let remote = self.remote(flow, GAP, self.flows[flow].target.memory.keys.rkey);
        if self.rng.random_bool(0.5) {
            self.push_read(flow, remote, GAP, len);
        } else {
            let mut send = self.draw_source(flow, SendOp::Write(remote), len);
            if send.flags.contains(SendFlags::INLINE) {
                send.flags -= SendFlags::INLINE;
                let side = self.flows[flow].side;
                let (sgl, pieces) = self.draw_pieces(side, len, self.plan.connect.cap.max_send_sge);
                self.arenas[side].fill(&pieces, &send.payload);
                send.sgl = sgl;
            }
            self.flows[flow].sends.push(Send { at: GAP, ..send });
        }
        let Some(send) = self.flows[flow].sends.last_mut() else { return };
        // The last element that has bytes, so that some of them may have left before.
        if let Some(sge) = send.sgl.iter_mut().rev().find(|sge| sge.length > 0) {
            sge.lkey = LKey::new(sge.lkey.get() ^ 0x100);
        }
    }
}

/// What is done to a target's data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Access {
    Read,
    Write,
    WriteWithImm,
}

impl Arena {
    /// Puts bytes into pieces.
    fn fill(&mut self, pieces: &[Piece], mut bytes: &[u8]) {
        for piece in pieces {
            let (now, rest) = bytes.split_at(piece.len.min(bytes.len()));
            self.memories[0].put(piece.at as u64, now);
            self.shadow.put(piece.at, now);
            bytes = rest;
        }
    }
}

impl Send {
    fn bare(op: SendOp, flags: SendFlags) -> Self {
        Self {
            op,
            flags,
            sgl: Vec::new(),
            payload: Vec::new(),
            landing: Vec::new(),
            len: 0,
            at: 0,
            recv: None,
            mistake: None,
            wc: None,
        }
    }
}

impl Flow {
    /// The number of this phase's deliberate mistake.
    pub(super) fn mistaken(&self) -> Option<usize> {
        (self.judged_sends..self.sends.len()).find(|&number| self.sends[number].mistake.is_some())
    }
}
