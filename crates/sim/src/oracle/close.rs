//! The end of a program: everything is flushed, judged, counted and destroyed.

use super::world::World;

impl World {
    /// Takes every queue pair to ERR, judges what is left, and destroys every object.
    pub(super) fn close(&mut self) -> Result<(), String> {
        let failed: Vec<bool> = (0..self.plan.conns).map(|conn| self.conn_has_failed(conn)).collect();
        self.check_sound_connections(&failed)?;
        for index in 0..self.flows.len() {
            let (side, qpn) = (self.flows[index].side, self.flows[index].end.qp.qpn());
            self.pair.fail(side, qpn);
        }
        self.pair.drive();
        self.poll()?;
        self.judge(&failed)?;
        self.count_program(&failed);
        self.check_nothing_left()?;
        self.destroy()
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
        let is_foreign = |event: &userdma_verbs::AsyncEvent| {
            !self.flows.iter().enumerate().any(|(index, flow)| {
                failed[index / 2] && format!("{event:?}").contains(&format!("{:?}", flow.end.qp.qpn()))
            })
        };
        match self.pair.hosts.iter().flat_map(|host| &host.events).find(|event| is_foreign(event)) {
            Some(event) => Err(format!("{event:?}, which no failed connection explains")),
            None => Ok(()),
        }
    }

    fn count_program(&mut self, failed: &[bool]) {
        self.report.programs = 1;
        for (conn, &failed) in failed.iter().enumerate() {
            let flows = &self.flows[2 * conn..2 * conn + 2];
            let mistake = flows.iter().find_map(|flow| flow.mistaken().and_then(|at| flow.sends[at].mistake));
            match (failed, mistake) {
                (false, _) => self.report.sound_connections += 1,
                (true, Some(mistake)) => self.report.count_failure(mistake.name()),
                (true, None) => {}
            }
        }
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
