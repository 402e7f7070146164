//! The end of a program: everything is flushed, judged, counted and destroyed.

use rand::RngExt;
use userdma_verbs::AsyncEvent;

use super::case::RequestId;
use super::plan::draw_psns;
use super::world::{CqState, World};
use crate::ConnectOptions;

impl World {
    /// Judges a phase that is at rest. Connections that have failed are flushed first and connected anew afterwards.
    pub(super) fn end_phase(&mut self) -> Result<(), String> {
        let mut failed: Vec<bool> = self.conns().map(|conn| self.conn_has_failed(conn)).collect();
        self.check_sound_connections(&failed)?;
        // Flushing may fill a completion queue that other connections use too.
        loop {
            for conn in self.conns().filter(|&conn| failed[conn]) {
                self.flush(conn);
            }
            self.pair.drive();
            self.poll_all()?;
            let now: Vec<bool> = self.conns().map(|conn| self.conn_has_failed(conn)).collect();
            if now == failed {
                break;
            }
            failed = now;
        }
        self.check_overflows()?;
        self.count_phase(&failed);
        self.judge(&failed)?;
        for conn in self.conns().filter(|&conn| failed[conn]) {
            self.ever_failed[conn] = true;
            self.connect_anew(conn)?;
        }
        self.replace_dead_queues()?;
        self.overflowed.fill(false);
        self.hoarded.fill(false);
        Ok(())
    }

    /// Flushes everything, and destroys every object.
    pub(super) fn close(&mut self) -> Result<(), String> {
        self.conns().for_each(|conn| self.flush(conn));
        self.pair.drive();
        self.poll_all()?;
        self.conns().for_each(|conn| self.expect_last_wqes(conn));
        self.check_last_wqes()?;
        self.count_program();
        self.check_nothing_left()?;
        self.destroy()
    }

    /// Takes both sides of a connection to ERR.
    fn flush(&mut self, conn: usize) {
        for index in [2 * conn, 2 * conn + 1] {
            let (host, qpn) = (self.flows[index].host, self.flows[index].end.qp.qpn());
            self.pair.fail(host, qpn);
        }
    }

    /// Takes both sides of a connection through RESET to RTS, or replaces their queue pairs; with other PSNs. If a
    /// completion queue of it is dead, it is replaced later.
    fn connect_anew(&mut self, conn: usize) -> Result<(), String> {
        self.take_dice(RequestId { phase: self.phase, flow: 2 * conn, number: RequestId::WINDOW - 1 });
        self.note(|| format!("connection {conn} is made anew"));
        self.expect_last_wqes(conn);
        let hosts = self.plan.conns[conn].hosts;
        let is_new = self.overflowed[conn] || self.dice.random_bool(0.3);
        for end in [0, 1] {
            let flow = &mut self.flows[2 * conn + end];
            let qpn = flow.end.qp.qpn();
            // Windows belong to their queue pair, which has forgotten them.
            flow.target.window.bound = None;
            if is_new {
                let now = self.pair.now();
                self.pair.hosts[hosts[end]].shard.destroy_qp(now, qpn).map_err(|error| error.to_string())?;
            } else {
                self.pair.reset(hosts[end], qpn);
            }
        }
        if self.overflowed[conn] {
            return Ok(());
        }
        self.rejoin(conn, is_new);
        Ok(())
    }

    fn rejoin(&mut self, conn: usize, is_new: bool) {
        let index = 2 * conn;
        let ends = if is_new {
            [self.create_end(conn, 0), self.create_end(conn, 1)]
        } else {
            [self.flows[index].end.clone(), self.flows[index + 1].end.clone()]
        };
        for end in [0, 1] {
            self.flows[index + end].end = ends[end].clone();
            self.flows[index + end].peer = ends[1 - end].clone();
        }
        let plan = &self.plan.conns[conn];
        let options = ConnectOptions { psn: draw_psns(&mut self.dice), ..plan.options };
        self.pair.join_between(plan.hosts, &ends, &options);
    }

    /// Completion queues that have overflowed are destroyed, and made again large enough, with the connections that
    /// used them.
    fn replace_dead_queues(&mut self) -> Result<(), String> {
        for index in 0..self.cqs.len() {
            if self.cqs[index].is_dead {
                let CqState { host, cq, .. } = &self.cqs[index];
                let shard = &mut self.pair.hosts[*host].shard;
                shard.destroy_cq(cq.number()).map_err(|error| error.to_string())?;
                let plan = &mut self.plan.cqs[index];
                (plan.is_tight, plan.cqe) = (false, plan.queues * 16);
                self.cqs[index] = CqState::new(&mut self.pair, plan);
            }
        }
        let conns: Vec<usize> = self.conns().filter(|&conn| self.overflowed[conn]).collect();
        for conn in conns {
            self.take_dice(RequestId { phase: self.phase, flow: 2 * conn, number: RequestId::WINDOW - 2 });
            self.replace_windows(conn)?;
            self.rejoin(conn, true);
        }
        Ok(())
    }

    /// Makes the windows of a connection anew. Nobody knows whether a bind was executed that has no completion for lack
    /// of room, so a window has its new key or the one before.
    fn replace_windows(&mut self, conn: usize) -> Result<(), String> {
        for flow in &mut self.flows[2 * conn..2 * conn + 2] {
            let shard = &mut self.pair.hosts[flow.peer_host].shard;
            let rkey = flow.target.window.rkey;
            let before = rkey.with_variant(rkey.get().to_le_bytes()[0].wrapping_sub(1));
            let ended = shard.dealloc_mw(rkey).or_else(|_| shard.dealloc_mw(before));
            ended.map_err(|error| error.to_string())?;
            let pd = self.rooms[flow.peer_host].pds[flow.peer_pd].pd;
            flow.target.window.rkey = shard.alloc_mw(pd).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Each completion queue that has overflowed has said so, once, and no other one has.
    fn check_overflows(&self) -> Result<(), String> {
        for (side, host) in self.pair.hosts.iter().enumerate() {
            let mut told: Vec<u32> = host
                .events
                .iter()
                .filter_map(|event| if let AsyncEvent::CqError { cq } = event { Some(*cq) } else { None })
                .collect();
            let mut dead: Vec<u32> =
                self.dead_cqs.iter().filter(|(host, _)| *host == side).map(|(_, number)| *number).collect();
            told.sort_unstable();
            dead.sort_unstable();
            if told != dead {
                return Err(format!(
                    "host {side} tells of overflows of {told:?}, but {dead:?} have overflowed"
                ));
            }
        }
        Ok(())
    }

    /// A connection without a failure has no event, and nothing outstanding.
    fn check_sound_connections(&self, failed: &[bool]) -> Result<(), String> {
        for (index, flow) in self.flows.iter().enumerate().filter(|(index, _)| !failed[index / 2]) {
            let (sends, recvs) = (flow.end.qp.outstanding_sends(), flow.peer.qp.recv_count());
            if sends + recvs > 0 {
                return Err(format!(
                    "flow {index} is at rest with {sends} sends and {recvs} receives outstanding"
                ));
            }
        }
        let is_foreign = |event: &AsyncEvent| match event {
            // Those are counted.
            AsyncEvent::SqDrained { .. }
            | AsyncEvent::CqError { .. }
            | AsyncEvent::SrqLimitReached { .. } => false,
            AsyncEvent::QpFatal { qpn }
            | AsyncEvent::QpRequestError { qpn }
            | AsyncEvent::QpAccessError { qpn }
            | AsyncEvent::QpLastWqeReached { qpn }
            | AsyncEvent::CommunicationEstablished { qpn } => {
                let owner = self.owners.iter().find(|(owned, _)| owned == qpn);
                owner.is_none_or(|&(_, conn)| !failed[conn] && !self.ever_failed[conn])
            }
            AsyncEvent::PortActive
            | AsyncEvent::PortError
            | AsyncEvent::GidChange
            | AsyncEvent::DeviceFatal
            | _ => true,
        };
        match self.pair.hosts.iter().flat_map(|host| &host.events).find(|event| is_foreign(event)) {
            Some(event) => Err(format!("{event:?}, which no failed connection explains")),
            None => Ok(()),
        }
    }

    fn count_phase(&mut self, failed: &[bool]) {
        for (conn, &failed) in failed.iter().enumerate() {
            let flows = &self.flows[2 * conn..2 * conn + 2];
            let mistake = flows.iter().find_map(|flow| flow.mistaken().and_then(|at| flow.sends[at].mistake));
            match mistake {
                Some(mistake) if failed => self.report.count_failure(mistake.name()),
                Some(_) | None => self.report.sound_phases += u64::from(!failed),
            }
        }
    }

    fn count_program(&mut self) {
        self.report.programs = 1;
        self.report.count_shape(&self.plan);
        self.report.count_faults(&self.pair.net.stats());
        for host in &self.pair.hosts {
            self.report.count_stats(host.shard.stats());
        }
    }

    fn check_nothing_left(&self) -> Result<(), String> {
        if let Some(next) = self.pair.next() {
            return Err(format!("something is still to happen at {next:?}"));
        }
        for (index, flow) in self.flows.iter().enumerate() {
            let (sends, recvs) = (flow.end.qp.outstanding_sends(), flow.end.qp.recv_count());
            if sends + recvs > 0 {
                return Err(format!(
                    "flow {index}: {sends} sends and {recvs} receives are left in a flushed queue pair"
                ));
            }
        }
        Ok(())
    }

    /// Objects can be destroyed: none is held by one that is gone.
    fn destroy(&mut self) -> Result<(), String> {
        let now = self.pair.now();
        let text = |error: userdma_verbs::ObjectError| error.to_string();
        for flow in &self.flows {
            let shard = &mut self.pair.hosts[flow.host].shard;
            shard.destroy_qp(now, flow.end.qp.qpn()).map_err(text)?;
        }
        for (host, srq) in self.pair.hosts.iter_mut().zip(&self.srqs) {
            srq.as_ref().map_or(Ok(()), |srq| srq.destroy(host))?;
        }
        for CqState { host, cq, .. } in &self.cqs {
            self.pair.hosts[*host].shard.destroy_cq(cq.number()).map_err(text)?;
        }
        for flow in &self.flows {
            let host = &mut self.pair.hosts[flow.peer_host];
            // The region before the window: what the queue pair had bound went with it.
            if flow.target.is_own {
                flow.target.keys.destroy(host)?;
            }
            host.shard.dealloc_mw(flow.target.window.rkey).map_err(text)?;
        }
        for (host, room) in self.pair.hosts.iter_mut().zip(&self.rooms) {
            for domain in &room.pds {
                domain.destroy(host)?;
            }
            host.shard.dealloc_pd(host.pd).map_err(text)?;
        }
        Ok(())
    }
}
