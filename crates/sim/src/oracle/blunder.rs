//! Requests with a deliberate mistake.

use rand::{Rng, RngExt};
use userdma_verbs::{AccessFlags, AtomicOp, LKey, RKey, RemoteAddr, SendFlags, SendOp, Sge};

use super::mistake::Mistake;
use super::plan::{PDS, pick};
use super::shared::ROOM;
use super::world::{Flow, GAP, LOCAL, Send, WindowMode, World};

impl World {
    /// Draws a request with a mistake that is possible here.
    pub(super) fn draw_mistake(&mut self, flow: usize) {
        let drawn = pick(&mut self.dice, &Mistake::ALL);
        let mistake = if self.is_possible(flow, drawn) { drawn } else { Mistake::NoKey };
        let granted = self.plan.conns[flow / 2].options.access;
        // A one-sided request that the queue pair refuses gets no further.
        let needs = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let mistake =
            if granted.contains(needs) || !mistake.is_one_sided() { mistake } else { Mistake::TooLong };
        match mistake {
            Mistake::NoKey
            | Mistake::StaleRegion
            | Mistake::StaleWindow
            | Mistake::ForeignWindow
            | Mistake::ForeignPd
            | Mistake::OutOfBounds
            | Mistake::ReadOnly
            | Mistake::WriteOnly => self.draw_bad_access(flow, mistake),
            Mistake::QpRight => self.draw_ungranted(flow),
            Mistake::InvalidateRegion
            | Mistake::TooLong
            | Mistake::NoReceive
            | Mistake::RecvKey
            | Mistake::RecvReadOnly => self.draw_bad_message(flow, mistake),
            Mistake::LocalKey | Mistake::LocalPd => self.draw_bad_source(flow, mistake),
            Mistake::LocalReadOnly => self.draw_bad_landing(flow),
            Mistake::BadBind | Mistake::BadInvalidate => self.draw_bad_local(flow, mistake),
        }
        if let Some(send) = self.flows[flow].sends.last_mut() {
            send.mistake = Some(mistake);
        }
    }

    fn is_possible(&self, flow: usize, mistake: Mistake) -> bool {
        let options = &self.plan.conns[flow / 2].options;
        let every = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        let window = &self.flows[flow].target.window;
        match mistake {
            Mistake::StaleWindow => match window.mode {
                WindowMode::Used => true,
                WindowMode::Idle => window.bound.is_none(),
                WindowMode::Bind { .. } | WindowMode::Invalidate | WindowMode::Use => false,
            },
            Mistake::ForeignWindow => self.foreign_window(flow).is_some(),
            Mistake::QpRight => options.access != every,
            // In a shared queue the receive is anybody's.
            Mistake::NoReceive => options.rnr_retry < 7 && !self.is_shared(flow),
            Mistake::RecvKey | Mistake::RecvReadOnly => !self.is_shared(flow),
            // The owner's window must not be bound already, or be about to be: then the bind is refused all the same.
            Mistake::BadBind => true,
            Mistake::NoKey
            | Mistake::StaleRegion
            | Mistake::ForeignPd
            | Mistake::OutOfBounds
            | Mistake::ReadOnly
            | Mistake::WriteOnly
            | Mistake::InvalidateRegion
            | Mistake::TooLong
            | Mistake::LocalKey
            | Mistake::LocalPd
            | Mistake::LocalReadOnly
            | Mistake::BadInvalidate => true,
        }
    }

    /// A window on the responder's host that another connection uses: its key, first address and length. One that would
    /// open its range in the same domain is the better one.
    fn foreign_window(&self, flow: usize) -> Option<(RKey, u64, usize)> {
        let Flow { peer_host, peer_pd, .. } = self.flows[flow];
        let others = self.flows.iter().enumerate().filter(|&(other, _)| other / 2 != flow / 2);
        let best = others
            .map(|(_, other)| other)
            .filter(|other| other.peer_host == peer_host && other.target.window.bound.is_some())
            .max_by_key(|other| (other.peer_pd == peer_pd, other.target.window.mode == WindowMode::Use))?;
        let (at, len) = best.target.window.bound?;
        Some((best.target.window.rkey, best.target.addr + at as u64, len))
    }

    fn draw_bad_access(&mut self, flow: usize, mistake: Mistake) {
        let most = match self.foreign_window(flow) {
            Some((.., len)) if mistake == Mistake::ForeignWindow => len,
            Some(_) | None => self.plan.data - 2 * GAP,
        };
        let len = self.draw_len(flow, most).max(1);
        let (at, rkey) = self.draw_bad_key(flow, mistake, len);
        let remote = self.remote(flow, at, rkey);
        let reads =
            mistake == Mistake::WriteOnly || mistake != Mistake::ReadOnly && self.dice.random_bool(0.3);
        let granted = self.plan.conns[flow / 2].options.access;
        // Refused for what is wrong with it only on 8 bytes, and if all of them are out of bounds.
        let may_be_atomic = granted.contains(AccessFlags::REMOTE_ATOMIC)
            && !matches!(mistake, Mistake::OutOfBounds | Mistake::ForeignWindow);
        if may_be_atomic && self.dice.random_bool(0.2) {
            self.push_atomic(flow, remote);
        } else if reads {
            self.push_read(flow, remote, at, len);
        } else {
            let send = self.draw_source(flow, SendOp::Write(remote), len);
            self.flows[flow].sends.push(Send { at, ..send });
        }
    }

    /// The place and the key of an access that is to be refused.
    fn draw_bad_key(&mut self, flow: usize, mistake: Mistake, len: usize) -> (usize, RKey) {
        let target = &self.flows[flow].target;
        let keys = target.keys;
        let other_pd = (self.flows[flow].peer_pd + 1) % PDS;
        match mistake {
            Mistake::StaleRegion => (GAP, self.rooms[self.flows[flow].peer_host].stale),
            Mistake::StaleWindow => (GAP, target.window.rkey),
            Mistake::ForeignWindow => match self.foreign_window(flow) {
                // As an offset from this target, whichever comes first.
                Some((rkey, addr, _)) => (usize::try_from(addr.wrapping_sub(target.addr)).unwrap_or(0), rkey),
                None => (GAP, target.window.rkey),
            },
            Mistake::ForeignPd => {
                let domain = &self.rooms[self.flows[flow].peer_host].pds[other_pd];
                (GAP, domain.targets.all.rkey)
            }
            // What other flows have behind this target must not be reached either.
            Mistake::OutOfBounds if target.is_own => {
                (target.room() - len + self.dice.random_range(1..=len), keys.all.rkey)
            }
            Mistake::OutOfBounds => (target.room() + self.dice.random_range(0..64), keys.all.rkey),
            Mistake::ReadOnly => (GAP, keys.read_only.rkey),
            Mistake::WriteOnly => (GAP, keys.write_only.rkey),
            // A neighbour of a key that exists.
            Mistake::NoKey
            | Mistake::QpRight
            | Mistake::InvalidateRegion
            | Mistake::TooLong
            | Mistake::NoReceive
            | Mistake::LocalKey
            | Mistake::LocalPd
            | Mistake::LocalReadOnly
            | Mistake::RecvKey
            | Mistake::RecvReadOnly
            | Mistake::BadBind
            | Mistake::BadInvalidate => {
                let key = keys.all.rkey.get() ^ 1 << self.dice.random_range(0..32);
                (GAP, RKey::new(key))
            }
        }
    }

    fn push_atomic(&mut self, flow: usize, remote: RemoteAddr) {
        let (sgl, landing) = self.draw_atomic_landing(flow);
        let op = SendOp::Atomic(remote, AtomicOp::FetchAdd { add: 1 });
        let send = Send { sgl, landing, len: 8, at: GAP, ..Send::bare(self.drawn, op, SendFlags::empty()) };
        self.flows[flow].sends.push(send);
    }

    /// What the peer's queue pair does not grant, with everything else right.
    fn draw_ungranted(&mut self, flow: usize) {
        let granted = self.plan.conns[flow / 2].options.access;
        let remote = self.remote(flow, GAP, self.flows[flow].target.keys.all.rkey);
        let len = self.draw_len(flow, self.plan.data - 2 * GAP).max(1);
        if !granted.contains(AccessFlags::REMOTE_WRITE) {
            let send = self.draw_source(flow, SendOp::Write(remote), len);
            self.flows[flow].sends.push(Send { at: GAP, ..send });
        } else if !granted.contains(AccessFlags::REMOTE_READ) {
            self.push_read(flow, remote, GAP, len);
        } else {
            self.push_atomic(flow, remote);
        }
    }

    fn draw_bad_message(&mut self, flow: usize, mistake: Mistake) {
        let mut len = self.draw_len(flow, self.longest(flow)).max(1);
        if mistake == Mistake::TooLong && self.is_shared(flow) {
            len = ROOM + self.dice.random_range(1..64);
        }
        let rkey = self.flows[flow].target.keys.all.rkey;
        let op = if mistake == Mistake::InvalidateRegion { SendOp::SendWithInv(rkey) } else { SendOp::Send };
        let send = self.draw_source(flow, op, len);
        if mistake == Mistake::NoReceive {
            return self.flows[flow].sends.push(send);
        }
        let room = if mistake == Mistake::TooLong { self.dice.random_range(0..len) } else { len };
        self.push_message(flow, send, room);
        let domain = &self.rooms[self.flows[flow].peer_host].pds[self.flows[flow].peer_pd];
        let read_only = domain.local_read_only.lkey;
        let Some(recv) = self.flows[flow].recvs.last_mut() else { return };
        for sge in &mut recv.sgl {
            if mistake == Mistake::RecvKey {
                sge.lkey = LKey::new(sge.lkey.get() ^ 0x100);
            } else if mistake == Mistake::RecvReadOnly {
                narrow(sge, read_only);
            }
        }
    }

    fn draw_bad_source(&mut self, flow: usize, mistake: Mistake) {
        let len = self.draw_len(flow, self.plan.data - 2 * GAP).max(1);
        let remote = self.remote(flow, GAP, self.flows[flow].target.keys.all.rkey);
        if self.dice.random_bool(0.5) {
            self.push_read(flow, remote, GAP, len);
        } else {
            let send = self.draw_listed(flow, SendOp::Write(remote), len);
            self.flows[flow].sends.push(Send { at: GAP, ..send });
        }
        let flow = &mut self.flows[flow];
        let other = &self.rooms[flow.host].pds[(flow.pd + 1) % PDS].local;
        let Some(send) = flow.sends.last_mut() else { return };
        // The last element that has bytes, so that some of them may have left before.
        if let Some(sge) = send.sgl.iter_mut().rev().find(|sge| sge.length > 0) {
            let foreign = other[usize::from(sge.addr >= LOCAL[1])].lkey;
            sge.lkey = if mistake == Mistake::LocalPd { foreign } else { LKey::new(sge.lkey.get() ^ 0x100) };
        }
    }

    fn draw_bad_landing(&mut self, flow: usize) {
        let len = self.draw_len(flow, self.plan.data - 2 * GAP).max(1);
        let remote = self.remote(flow, GAP, self.flows[flow].target.keys.all.rkey);
        self.push_read(flow, remote, GAP, len);
        let flow = &mut self.flows[flow];
        let read_only = self.rooms[flow.host].pds[flow.pd].local_read_only.lkey;
        if let Some(sge) =
            flow.sends.last_mut().and_then(|send| send.sgl.iter_mut().find(|sge| sge.length > 0))
        {
            narrow(sge, read_only);
        }
    }

    /// A bind of the peer's target from the wrong side, or an invalidation of what is no window.
    fn draw_bad_local(&mut self, flow: usize, mistake: Mistake) {
        let op = if mistake == Mistake::BadBind {
            let window = &self.flows[flow ^ 1].target.window;
            let low = window.rkey.get().to_le_bytes()[0].wrapping_add(7);
            let room = self.flows[flow ^ 1].target.room() as u64;
            SendOp::BindMw(self.bind(flow ^ 1, window.rkey.with_variant(low), room - 8, 9))
        } else {
            SendOp::LocalInv(self.flows[flow ^ 1].target.keys.all.rkey)
        };
        self.draw_local(flow, op);
    }

    /// A request that carries `len` random bytes of the arena, never inline.
    fn draw_listed(&mut self, flow: usize, op: SendOp, len: usize) -> Send {
        let flags = SendFlags::SIGNALED & self.draw_flags();
        let mut payload = vec![0; len];
        self.dice.fill_bytes(&mut payload);
        let (sgl, pieces) = self.draw_pieces(self.source(flow), len);
        let host = self.flows[flow].host;
        self.rooms[host].arena.fill(&pieces, &payload);
        Send { sgl, payload, len, ..Send::bare(self.drawn, op, flags) }
    }
}

/// The same memory through a key that allows only reading.
fn narrow(sge: &mut Sge, read_only: LKey) {
    if sge.length > 0 {
        sge.addr = if sge.addr >= LOCAL[1] { sge.addr - LOCAL[1] + LOCAL[0] } else { sge.addr };
        sge.lkey = read_only;
    }
}
