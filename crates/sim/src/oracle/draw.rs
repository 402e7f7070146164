//! What a phase posts.

use rand::{Rng, RngExt};
use userdma_verbs::{
    AccessFlags, AtomicOp, BindMw, LKey, RKey, RemoteAddr, SendFlags, SendOp, Sge, WrOpcode,
};

use super::case::RequestId;
use super::plan::pick;
use super::world::{CELLS, GAP, LOCAL, Piece, Recv, Send, WindowMode, World};

impl World {
    /// Draws the next phase of every flow, and leaves out what the case does not keep.
    pub(super) fn draw_phase(&mut self) {
        for room in &mut self.rooms {
            room.arena.top = GAP;
        }
        if !self.case.has_phase(self.phase) {
            return;
        }
        for flow in 0..self.flows.len() {
            self.draw_window_mode(flow);
        }
        for conn in self.conns() {
            self.take_dice(RequestId { phase: self.phase, flow: 2 * conn, number: COUNTS });
            let mistaken = self
                .dice
                .random_bool(self.plan.mistake)
                .then(|| 2 * conn + usize::from(self.dice.random_bool(0.5)));
            for flow in [2 * conn, 2 * conn + 1] {
                self.take_dice(RequestId { phase: self.phase, flow, number: COUNTS + 1 });
                let count = self.dice.random_range(0..=self.plan.max_ops);
                let wrong = (mistaken == Some(flow)).then(|| self.dice.random_range(0..=count));
                for number in 0..=count {
                    let id = RequestId { phase: self.phase, flow, number };
                    if !self.case.has_request(id) {
                        continue;
                    }
                    self.take_dice(id);
                    self.drawn = id;
                    if wrong == Some(number) {
                        self.draw_mistake(flow);
                        if self.flows[flow].lacks_receive() {
                            // It would take the receive of a message behind it.
                            break;
                        }
                    } else if number < count {
                        self.draw_send(flow);
                    }
                }
            }
        }
    }

    fn draw_window_mode(&mut self, flow: usize) {
        let id = RequestId { phase: self.phase, flow, number: RequestId::WINDOW };
        self.take_dice(id);
        self.drawn = id;
        let is_kept = self.case.has_request(id);
        let data = self.plan.data;
        let window = &self.flows[flow].target.window;
        let mode = match window.bound {
            None if is_kept && self.dice.random_bool(0.5) => {
                let len = self.dice.random_range(1..data - 2 * GAP);
                let at = self.dice.random_range(GAP..data - GAP - len);
                // The low byte is the owner's to choose, and another one each time.
                let low = window.rkey.get().to_le_bytes()[0].wrapping_add(1);
                WindowMode::Bind { rkey: window.rkey.with_variant(low), at, len }
            }
            Some(_) if is_kept && self.dice.random_bool(0.2) => WindowMode::Invalidate,
            Some(_) => WindowMode::Use,
            None => WindowMode::Idle,
        };
        self.flows[flow].target.window.mode = mode;
        // The owner is the other side of the connection; its request goes wherever in its order.
        match mode {
            WindowMode::Bind { rkey, at, len } => {
                let bind = self.bind(flow, rkey, at as u64, len as u64);
                self.draw_local(flow ^ 1, SendOp::BindMw(bind));
            }
            WindowMode::Invalidate => {
                let rkey = self.flows[flow].target.window.rkey;
                self.draw_local(flow ^ 1, SendOp::LocalInv(rkey));
            }
            WindowMode::Idle | WindowMode::Use | WindowMode::Used => {}
        }
    }

    pub(super) fn bind(&self, flow: usize, rkey: RKey, at: u64, length: u64) -> BindMw {
        let target = &self.flows[flow].target;
        BindMw {
            mw: target.window.rkey,
            rkey,
            mr: target.keys.all.lkey,
            addr: target.addr.wrapping_add(at),
            length,
            access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
        }
    }

    pub(super) fn draw_local(&mut self, flow: usize, op: SendOp) {
        let flags = self.draw_flags();
        self.flows[flow].sends.push(Send::bare(self.drawn, op, flags));
    }

    pub(super) fn draw_flags(&mut self) -> SendFlags {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, self.dice.random_bool(self.plan.signaled));
        flags.set(SendFlags::FENCE, self.dice.random_bool(self.plan.fence));
        flags.set(SendFlags::SOLICITED, self.dice.random_bool(0.2));
        flags
    }

    fn draw_send(&mut self, flow: usize) {
        // What the peer's queue pair does not grant becomes a SEND.
        let granted = self.plan.conns[flow / 2].options.access;
        let kind = match self.dice.random_range(0..16) {
            4..=9 if !granted.contains(AccessFlags::REMOTE_WRITE) => 0,
            10..=13 if !granted.contains(AccessFlags::REMOTE_READ) => 0,
            14.. if !granted.contains(AccessFlags::REMOTE_ATOMIC) => 0,
            kind => kind,
        };
        match kind {
            0..=2 => self.draw_message(flow, SendOp::Send),
            3 => {
                let imm = self.dice.random();
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

    pub(super) fn draw_len(&mut self, flow: usize, most: usize) -> usize {
        let mtu = self.plan.conns[flow / 2].options.mtu.bytes() as usize;
        let len = match self.dice.random_range(0..10) {
            0 => 0,
            1 => pick(&mut self.dice, &[1, 2, 3, 8]),
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            5 => mtu * self.dice.random_range(1..=5),
            // Longer than a small window.
            6 if self.dice.random_bool(0.1) => self.dice.random_range(0..=mtu * 40),
            6 | 7 => self.dice.random_range(0..=mtu * 5),
            _ => self.dice.random_range(0..=256),
        };
        let is_full = self.rooms.iter().any(|room| room.arena.is_nearly_full());
        len.min(most).min(if is_full { 256 } else { most }).min(self.case.len.unwrap_or(most))
    }

    /// A SEND with the receive that it will meet.
    fn draw_message(&mut self, flow: usize, op: SendOp) {
        let len = self.draw_len(flow, self.longest(flow));
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
        let usable = window.bound.filter(|_| window.mode == WindowMode::Use && self.dice.random_bool(0.5));
        let range = usable.map(|(at, len)| (at, len, window.rkey));
        let region = self.flows[flow].target.keys.all.rkey;
        let (start, room, rkey) = range.unwrap_or((GAP, self.plan.data - 2 * GAP, region));
        let len = self.draw_len(flow, room);
        // A few places are used again and again, so that accesses overlap.
        let slack = room - len;
        let at = start
            + if self.dice.random_bool(0.5) {
                slack.min(512 * self.dice.random_range(0..4))
            } else {
                self.dice.random_range(0..=slack)
            };
        // Without bytes any key will do.
        let any = len == 0 && self.dice.random_bool(0.5);
        let rkey = if any { RKey::new(self.dice.random()) } else { rkey };
        let remote = self.remote(flow, at, rkey);
        let imm = self.dice.random();
        match access {
            Access::Read => self.push_read(flow, remote, at, len),
            Access::WriteWithImm => {
                let send = self.draw_source(flow, SendOp::WriteWithImm(remote, imm), len);
                let room = self.draw_len(flow, 256);
                self.push_with_recv(flow, Send { at, ..send }, room);
            }
            Access::Write => {
                let send = self.draw_source(flow, SendOp::Write(remote), len);
                self.flows[flow].sends.push(Send { at, ..send });
            }
        }
    }

    pub(super) fn remote(&self, flow: usize, at: usize, rkey: RKey) -> RemoteAddr {
        RemoteAddr { addr: self.flows[flow].target.addr.wrapping_add(at as u64), rkey }
    }

    pub(super) fn push_read(&mut self, flow: usize, remote: RemoteAddr, at: usize, len: usize) {
        let flags = self.draw_flags();
        let (sgl, landing) = self.draw_pieces(self.source(flow), len);
        let send = Send { sgl, landing, len, at, ..Send::bare(self.drawn, SendOp::Read(remote), flags) };
        self.flows[flow].sends.push(send);
    }

    fn draw_atomic(&mut self, flow: usize) {
        let at = self.plan.data + 8 * self.dice.random_range(0..CELLS);
        let remote = self.remote(flow, at, self.flows[flow].target.keys.all.rkey);
        let op = if self.dice.random_bool(0.5) {
            AtomicOp::FetchAdd { add: pick(&mut self.dice, &[1, u64::MAX, 0x0123_4567_89ab_cdef]) }
        } else {
            // Zero is what every cell begins with, and what it comes back to by chance now and then.
            AtomicOp::CompareSwap {
                compare: pick(&mut self.dice, &[0, 0, 1, 2]),
                swap: self.dice.random_range(0..3),
            }
        };
        let flags = self.draw_flags();
        let (sgl, landing) = self.draw_atomic_landing(flow);
        let send =
            Send { sgl, landing, len: 8, at, ..Send::bare(self.drawn, SendOp::Atomic(remote, op), flags) };
        self.flows[flow].sends.push(send);
    }

    /// Eight bytes for the answer to an atomic.
    pub(super) fn draw_atomic_landing(&mut self, flow: usize) -> (Vec<Sge>, Vec<Piece>) {
        let place = self.source(flow);
        let piece = self.take_piece(place, 8);
        (vec![self.sge(place, piece)], vec![piece])
    }

    /// A request that carries `len` random bytes, inline or from pieces of the arena.
    pub(super) fn draw_source(&mut self, flow: usize, op: SendOp, len: usize) -> Send {
        let mut flags = self.draw_flags();
        let mut payload = vec![0; len];
        self.dice.fill_bytes(&mut payload);
        let host = self.flows[flow].host;
        let mut sgl = Vec::new();
        if len <= self.plan.conns[flow / 2].options.cap.max_inline_data as usize && self.dice.random_bool(0.4)
        {
            flags |= SendFlags::INLINE;
        } else {
            let (list, pieces) = self.draw_pieces(self.source(flow), len);
            self.rooms[host].arena.fill(&pieces, &payload);
            sgl = list;
        }
        Send { sgl, payload, len, ..Send::bare(self.drawn, op, flags) }
    }

    /// Where a flow's sends have their memory.
    pub(super) fn source(&self, flow: usize) -> Place {
        let max = self.plan.conns[flow / 2].options.cap.max_send_sge;
        Place { host: self.flows[flow].host, pd: self.flows[flow].pd, max }
    }

    /// Where they land.
    fn sink(&self, flow: usize) -> Place {
        let max = self.plan.conns[flow / 2].options.cap.max_recv_sge;
        Place { host: self.flows[flow].peer_host, pd: self.flows[flow].peer_pd, max }
    }

    /// Pieces of an arena for `len` bytes.
    pub(super) fn draw_pieces(&mut self, place: Place, len: usize) -> (Vec<Sge>, Vec<Piece>) {
        let count = self.dice.random_range(1..=place.max as usize);
        let mut cuts: Vec<usize> = (1..count).map(|_| self.dice.random_range(0..=len)).collect();
        cuts.push(len);
        cuts.sort_unstable();
        let mut start = 0;
        let (mut sgl, mut pieces) = (Vec::new(), Vec::new());
        for end in cuts {
            let piece = self.take_piece(place, end - start);
            sgl.push(self.sge(place, piece));
            pieces.push(piece);
            start = end;
        }
        (sgl, pieces)
    }

    fn take_piece(&mut self, place: Place, len: usize) -> Piece {
        let gap = self.dice.random_range(0..24);
        self.rooms[place.host].arena.take(len, gap)
    }

    /// The element for a piece. One of no bytes may have any key.
    fn sge(&mut self, place: Place, piece: Piece) -> Sge {
        let which = self.dice.random_range(0..2);
        let keys = &self.rooms[place.host].pds[place.pd].local[which];
        let length = u32::try_from(piece.len).unwrap_or(u32::MAX);
        let lkey = if length == 0 { LKey::new(self.dice.random()) } else { keys.lkey };
        Sge { addr: LOCAL[which] + piece.at as u64, length, lkey }
    }

    /// Posts a message and the receive that it will meet, with room for `room` bytes or more.
    fn push_with_recv(&mut self, flow: usize, send: Send, room: usize) {
        let more = if self.dice.random_bool(0.5) { self.dice.random_range(0..64) } else { 0 };
        self.push_message(flow, send, room + more);
    }

    pub(super) fn push_message(&mut self, flow: usize, mut send: Send, room: usize) {
        let is_shared = self.is_shared(flow);
        // Which receive of a shared queue it will be, the completion says.
        let (sgl, pieces) =
            if is_shared { Default::default() } else { self.draw_pieces(self.sink(flow), room) };
        let flow = &mut self.flows[flow];
        flow.posted_recvs += usize::from(is_shared);
        send.recv = Some(flow.recvs.len());
        flow.recvs.push(Recv { sgl, pieces, message: flow.sends.len(), wc: None });
        flow.sends.push(send);
    }
}

/// What is done to a target's data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Access {
    Read,
    Write,
    WriteWithImm,
}

/// Where local memory is taken from: the arena of a host through the keys of a domain, in so many elements at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    host: usize,
    pd: usize,
    max: u32,
}

/// The number that stands for how many requests there are.
const COUNTS: usize = 1 << 20;
