//! A program's objects.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use userdma_mem::{Buffer, Region};
use userdma_objects::{MrKeys, PdId};
use userdma_verbs::{AccessFlags, QpInitAttr, QpType, Time};

use super::case::{Case, RequestId};
use super::plan::{CqPlan, PDS, Plan};
use super::report::Report;
use super::shadow::Shadow;
use super::shared::SrqState;
use super::world::{
    ARENA, Arena, BEHIND, CqState, Domain, Flow, GAP, LOCAL, Openings, Room, Target, WIDE, Window,
    WindowMode, World,
};
use crate::{Host, Pair, QpEnd};

impl World {
    pub(super) fn new(case: &Case, trace: bool) -> Self {
        let plan = Plan::draw(&mut SmallRng::seed_from_u64(case.seed), case.seed);
        let mut pair = Pair::new(&plan.pair);
        pair.net.coalesced = plan.coalesced;
        if let Some(faults) = &case.faults {
            pair.net.keep_faults(faults.clone());
        }
        if trace {
            pair.net.start_trace();
        }
        let rooms = [0, 1].map(|host| Room::new(&mut pair.hosts[host], &plan, host));
        let cqs = plan.cqs.iter().map(|cq| CqState::new(&mut pair, cq)).collect();
        let srqs = [0, 1].map(|host: usize| {
            plan.srqs[host].map(|srq| SrqState::new(&mut pair.hosts[host], &rooms[host], srq))
        });
        let conns = plan.conns.len();
        let mut world = Self {
            case: case.clone(),
            rng: SmallRng::seed_from_u64(case.seed ^ 0x7363_6865_6475_6c65),
            dice: SmallRng::seed_from_u64(0),
            plan,
            pair,
            flows: Vec::new(),
            cqs,
            rooms,
            srqs,
            report: Report::default(),
            phase: 0,
            drawn: RequestId { phase: 0, flow: 0, number: 0 },
            ever_failed: vec![false; conns],
            overflowed: vec![false; conns],
            hoarded: vec![false; conns],
            owners: Vec::new(),
            dead_cqs: Vec::new(),
            last_wqes: Vec::new(),
            next_stall: Time::ZERO,
        };
        let plan = format!("{:?}", world.plan);
        world.note(|| plan);
        for conn in 0..conns {
            world.connect(conn);
        }
        world
    }

    /// Makes a connection and its two flows.
    fn connect(&mut self, conn: usize) {
        let ends = [self.create_end(conn, 0), self.create_end(conn, 1)];
        let plan = &self.plan.conns[conn];
        self.pair.join_between(plan.hosts, &ends, &plan.options);
        for end in [0, 1] {
            let base = self.flows.iter().filter(|flow| flow.peer_host == plan.hosts[1 - end]).count();
            let len = self.plan.data + BEHIND;
            let place = (base * len, len);
            let (host, peer_host) = (plan.hosts[end], plan.hosts[1 - end]);
            let (pd, peer_pd) = (plan.pds[end], plan.pds[1 - end]);
            let own = (!plan.shares_region).then_some(self.flows.len());
            let target =
                Target::new(&mut self.pair.hosts[peer_host], &self.rooms[peer_host], peer_pd, place, own);
            self.flows.push(Flow {
                host,
                peer_host,
                pd,
                peer_pd,
                end: ends[end].clone(),
                peer: ends[1 - end].clone(),
                send_cq: plan.send_cqs[end],
                recv_cq: plan.recv_cqs[1 - end],
                target,
                sends: Vec::new(),
                recvs: Vec::new(),
                posted_sends: 0,
                posted_recvs: 0,
                seen_sends: 0,
                seen_recvs: 0,
                judged_sends: 0,
                judged_recvs: 0,
            });
        }
    }

    /// The queue pair of one end.
    pub(super) fn create_end(&mut self, conn: usize, end: usize) -> QpEnd {
        let plan = &self.plan.conns[conn];
        let host = plan.hosts[end];
        let init =
            QpInitAttr { qp_type: QpType::Rc, cap: plan.options.cap, sq_sig_all: plan.options.sq_sig_all };
        let (send_cq, recv_cq) = (&self.cqs[plan.send_cqs[end]].cq, &self.cqs[plan.recv_cqs[end]].cq);
        let pd = self.rooms[host].pds[plan.pds[end]].pd;
        let shard = &mut self.pair.hosts[host].shard;
        let srq = self.srqs[host].as_ref().filter(|_| plan.shares_srq[end]).map(|srq| srq.srq.srqn());
        let made = shard.create_qp_on(pd, &init, send_cq.number(), recv_cq.number(), srq);
        let qp = made.expect("a queue pair");
        self.owners.push((qp.qpn(), conn));
        QpEnd { qp, send_cq: Arc::clone(send_cq), recv_cq: Arc::clone(recv_cq) }
    }
}

impl CqState {
    pub(super) fn new(pair: &mut Pair, plan: &CqPlan) -> Self {
        let entries = plan.cqe.max(1) + plan.shared;
        let cq = pair.hosts[plan.host].shard.create_cq(entries, None).expect("a completion queue");
        // A queue that is too small is posted to as if it were not.
        let quota = if plan.is_tight { usize::MAX } else { (plan.cqe / plan.queues.max(1)) as usize };
        Self { host: plan.host, cq, quota, is_tight: plan.is_tight, is_dead: false }
    }
}

impl Room {
    fn new(host: &mut Host, plan: &Plan, number: usize) -> Self {
        let ends = plan.conns.iter().flat_map(|conn| conn.hosts).filter(|&host| host == number).count();
        let targets = Arc::new(Buffer::new(ends.max(1) * (plan.data + BEHIND)).expect("memory"));
        let local = Arc::new(Buffer::new(ARENA).expect("memory"));
        let ended = host.register(Arc::clone(&targets), WIDE, EVERY);
        host.shard.dereg_mr(ended.keys.lkey).expect("a region that nobody uses");
        let pds = (0..PDS).map(|_| Domain::new(host, &local, &targets)).collect();
        let arena = Arena { buffer: local, shadow: Shadow::new(ARENA), top: GAP };
        Self { pds, arena, targets, stale: ended.keys.rkey }
    }
}

impl Domain {
    fn new(host: &mut Host, local: &Arc<Buffer>, targets: &Arc<Buffer>) -> Self {
        let pd = host.shard.alloc_pd().expect("a protection domain");
        Self {
            pd,
            local: LOCAL.map(|iova| register(host, pd, local, iova, AccessFlags::LOCAL_WRITE)),
            local_read_only: register(host, pd, local, LOCAL[0], AccessFlags::empty()),
            targets: Openings::new(host, pd, targets, WIDE),
        }
    }

    /// Ends everything that the domain has, and then itself.
    pub(super) fn destroy(&self, host: &mut Host) -> Result<(), String> {
        let [first, second] = self.local;
        for keys in [first, second, self.local_read_only] {
            host.shard.dereg_mr(keys.lkey).map_err(|error| error.to_string())?;
        }
        self.targets.destroy(host)?;
        host.shard.dealloc_pd(self.pd).map_err(|error| error.to_string())
    }
}

impl Openings {
    fn new(host: &mut Host, pd: PdId, memory: &Arc<Buffer>, iova: u64) -> Self {
        let write_only = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        Self {
            all: register(host, pd, memory, iova, EVERY),
            read_only: register(host, pd, memory, iova, AccessFlags::REMOTE_READ),
            write_only: register(host, pd, memory, iova, write_only),
        }
    }

    pub(super) fn destroy(&self, host: &mut Host) -> Result<(), String> {
        for keys in [self.all, self.read_only, self.write_only] {
            host.shard.dereg_mr(keys.lkey).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl Target {
    /// Memory of its own for flow `own`, or the part of the host's targets that begins at `base`.
    fn new(host: &mut Host, room: &Room, pd: usize, (base, len): (usize, usize), own: Option<usize>) -> Self {
        let domain = &room.pds[pd];
        let rkey = host.shard.alloc_mw(domain.pd).expect("a window");
        let window = Window { rkey, bound: None, mode: WindowMode::Idle };
        let mut shadow = Shadow::new(len);
        shadow.cover(len);
        match own {
            Some(flow) => {
                let memory = Arc::new(Buffer::new(len).expect("memory"));
                let addr = 0x20_0000_0000 + 0x1_0000_0000 * flow as u64;
                let keys = Openings::new(host, domain.pd, &memory, addr);
                Self { memory, base: 0, keys, addr, is_own: true, shadow, window }
            }
            None => {
                let (memory, keys) = (Arc::clone(&room.targets), domain.targets);
                Self { memory, base, keys, addr: WIDE + base as u64, is_own: false, shadow, window }
            }
        }
    }

    /// Bytes from its first one to the end of its region.
    pub(super) fn room(&self) -> usize {
        self.memory.len() - self.base
    }
}

fn register(host: &mut Host, pd: PdId, memory: &Arc<Buffer>, iova: u64, access: AccessFlags) -> MrKeys {
    host.shard.reg_mr(pd, Region::from_buffer(memory), iova, access).expect("a region")
}

/// What a region may grant.
const EVERY: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::MW_BIND);
