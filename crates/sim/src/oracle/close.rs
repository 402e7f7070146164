//! The end of a program: everything is flushed, judged, counted and destroyed.

use userdma_verbs::AsyncEvent;

use super::plan::draw_psns;
use super::world::World;
use crate::ConnectOptions;

impl World {
    /// Judges a phase that is at rest. Connections that have failed are flushed first and connected anew afterwards.
    pub(super) fn end_phase(&mut self) -> Result<(), String> {
        let failed: Vec<bool> = (0..self.plan.conns).map(|conn| self.conn_has_failed(conn)).collect();
        self.check_sound_connections(&failed)?;
        for conn in (0..self.plan.conns).filter(|&conn| failed[conn]) {
            self.flush(conn);
        }
        self.pair.drive();
        self.poll()?;
        self.count_phase(&failed);
        self.judge(&failed)?;
        for conn in (0..self.plan.conns).filter(|&conn| failed[conn]) {
            self.ever_failed[conn] = true;
            self.connect_anew(conn);
        }
        Ok(())
    }

    /// Flushes everything, and destroys every object.
    pub(super) fn close(&mut self) -> Result<(), String> {
        (0..self.plan.conns).for_each(|conn| self.flush(conn));
        self.pair.drive();
        self.poll()?;
        self.count_program();
        self.check_nothing_left()?;
        self.destroy()
    }

    /// Takes both sides of a connection to ERR.
    fn flush(&mut self, conn: usize) {
        for index in [2 * conn, 2 * conn + 1] {
            let (side, qpn) = (self.flows[index].side, self.flows[index].end.qp.qpn());
            self.pair.fail(side, qpn);
        }
    }

    /// Takes both sides of a connection through RESET to RTS, with other PSNs.
    fn connect_anew(&mut self, conn: usize) {
        let now = self.pair.now();
        self.pair.net.note(now, || format!("connection {conn} is made anew"));
        let ends = [2 * conn, 2 * conn + 1].map(|index| self.flows[index].end.clone());
        for side in [0, 1] {
            self.pair.reset(side, ends[side].qp.qpn());
            // Windows belong to their queue pair, which has forgotten them.
            self.flows[2 * conn + side].target.window.bound = None;
        }
        let options = ConnectOptions { psn: draw_psns(&mut self.rng), ..self.plan.connect };
        self.pair.join(&ends, &options);
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
            AsyncEvent::SqDrained { .. } => false,
            AsyncEvent::QpFatal { qpn }
            | AsyncEvent::QpRequestError { qpn }
            | AsyncEvent::QpAccessError { qpn }
            | AsyncEvent::CommunicationEstablished { qpn } => {
                let mine = self.flows.iter().position(|flow| flow.end.qp.qpn() == *qpn);
                mine.is_none_or(|index| !failed[index / 2] && !self.ever_failed[index / 2])
            }
            AsyncEvent::CqError { .. }
            | AsyncEvent::PortActive
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
            if flow.end.send_cq.has_overflowed() || flow.end.recv_cq.has_overflowed() {
                return Err(format!(
                    "flow {index}: a completion queue of {} overflowed",
                    flow.end.send_cq.capacity()
                ));
            }
        }
        Ok(())
    }

    /// Objects can be destroyed: none is held by one that is gone.
    fn destroy(&mut self) -> Result<(), String> {
        let now = self.pair.now();
        for flow in &self.flows {
            let shard = &mut self.pair.hosts[flow.side].shard;
            let result = shard.destroy_qp(now, flow.end.qp.qpn());
            let result = result.and_then(|()| shard.destroy_cq(flow.end.send_cq.number()));
            result
                .and_then(|()| shard.destroy_cq(flow.end.recv_cq.number()))
                .map_err(|error| error.to_string())?;
        }
        for flow in &self.flows {
            let shard = &mut self.pair.hosts[1 - flow.side].shard;
            // The region before the window: what the queue pair had bound went with it.
            let result = shard.dereg_mr(flow.target.memory.keys.lkey);
            let result = result.and_then(|_| shard.dereg_mr(flow.target.read_only.keys.lkey));
            result
                .and_then(|_| shard.dealloc_mw(flow.target.window.rkey))
                .map_err(|error| error.to_string())?;
        }
        for (host, arena) in self.pair.hosts.iter_mut().zip(&self.arenas) {
            for memory in &arena.memories {
                host.shard.dereg_mr(memory.keys.lkey).map_err(|error| error.to_string())?;
            }
            host.shard.dealloc_pd(host.pd).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
