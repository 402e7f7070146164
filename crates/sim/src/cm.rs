//! Two machines that connect and disconnect over a bad network: the connections are [`userdma_mgmt::cm::Cm`]'s, the
//! programs that use them are made up from a seed, and the clock is a number.
//!
//! What the programs do and are told is written down; [`World::disagreements`] compares both sides.

mod net;
pub(crate) mod params;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_mgmt::cm::{Arrival, Cm, ConnId, Event, NumberChange, PortId, ReqParams};
use userdma_verbs::{Qpn, Time};

pub use net::{MadFaults, MadNetwork};
pub use program::{Diary, Habits, Stage};

use program::{Act, Programs};

/// A service that both machines listen to.
pub const SERVICE: u64 = 0x0106_1c06;

/// The only port of each machine.
pub const PORT: PortId = PortId(1);

/// Two machines and their network.
pub struct World {
    /// The machines' connections.
    pub cms: [Cm; 2],
    /// The network.
    pub net: MadNetwork,
    /// The clock.
    pub now: Time,
    /// What the programs wrote down, by the number of the connection.
    pub diaries: BTreeMap<u32, Diary>,
    programs: Programs,
    rng: SmallRng,
    conns: [BTreeMap<ConnId, u32>; 2],
    /// Numbers of queue pairs that each machine must not give again.
    guarded: [BTreeSet<Qpn>; 2],
    plan: BTreeMap<(Time, u64), Act>,
    planned: u64,
    next: u32,
}

impl World {
    /// Two machines that listen, and their programs' habits.
    pub fn new(seed: u64, faults: MadFaults, habits: Habits) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut cms = [Cm::new(rng.random()), Cm::new(rng.random())];
        for (place, cm) in cms.iter_mut().enumerate() {
            // Two machines: both numbers are small.
            let place = u16::try_from(place).expect("two machines");
            cm.add_port(PORT, place + 1, 0x0200_0000_0000_0001 + u64::from(place));
            cm.listen(SERVICE, u64::MAX, Some((PORT, address(place.into())))).expect("nobody listens yet");
        }
        Self {
            cms,
            net: MadNetwork::new(rng.random(), faults),
            now: Time::from_nanos(1),
            diaries: BTreeMap::new(),
            programs: Programs::new(habits),
            rng,
            conns: [BTreeMap::new(), BTreeMap::new()],
            guarded: [BTreeSet::new(), BTreeSet::new()],
            plan: BTreeMap::new(),
            planned: 0,
            next: 0,
        }
    }

    /// `count` connections, begun by either machine, within `span` from now.
    pub fn begin(&mut self, count: u32, span: Duration) {
        for _ in 0..count {
            let (number, at) = (self.next, self.now + span.mul_f64(self.rng.random()));
            self.next += 1;
            let client = usize::from(self.rng.random_bool(0.5));
            self.plan(at, Act::Connect { client, number });
        }
    }

    /// Goes on until nothing is under way, planned or waited for.
    ///
    /// # Panics
    /// If that takes longer than `limit` of the virtual clock, or other numbers of queue pairs are guarded then than those of the
    /// connections that are there.
    pub fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        self.settle();
        while let Some(at) = self.next_time() {
            assert!(at <= end, "still busy after {limit:?}: {:?}", self.cms.each_ref().map(Cm::counts));
            self.now = self.now.max(at);
            self.step();
        }
        for place in 0..2 {
            let there = self.diaries.iter().filter(|(_, diary)| diary.stage_of(place) == Stage::Established);
            let theirs = there.map(|(&number, diary)| program::qpn(place != diary.client_place, number));
            assert_eq!(self.guarded[place], theirs.collect(), "guarded at {place}");
        }
    }

    /// Every program gives up what it still has.
    pub fn shut_down(&mut self) {
        for place in 0..2 {
            let ids: Vec<ConnId> = self.conns[place].keys().copied().collect();
            for id in ids {
                self.act(Act::Destroy { place, id });
            }
        }
        self.settle();
    }

    /// Connections of which one side thinks that it is there and the other does not.
    pub fn disagreements(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (number, diary) in &self.diaries {
            let [client, server] = [diary.client, diary.server].map(|stage| stage == Stage::Established);
            if client != server {
                all.push(format!("connection {number}: {diary:?}"));
            }
        }
        all
    }

    fn next_time(&self) -> Option<Time> {
        let timers = self.cms.iter().filter_map(Cm::poll_timeout);
        let plan = self.plan.keys().next().map(|&(at, _)| at);
        timers.chain(plan).chain(self.net.next_arrival()).min()
    }

    fn step(&mut self) {
        for cm in &mut self.cms {
            cm.handle_timeout(self.now);
        }
        while let Some((place, from, mad)) = self.net.arrived(self.now) {
            let arrival = Arrival { port: PORT, from, to: address(place), mad: &mad };
            self.cms[place].handle_mad(self.now, arrival);
            self.settle();
        }
        while let Some(entry) = self.plan.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let act = entry.remove();
            self.act(act);
        }
        self.settle();
    }

    /// Takes what came out of the machines until nothing comes.
    fn settle(&mut self) {
        for place in 0..2 {
            while let Some((id, event)) = self.cms[place].poll_event() {
                self.hear(place, id, event);
            }
            while let Some(outgoing) = self.cms[place].poll_transmit() {
                assert_eq!((outgoing.port, outgoing.from), (PORT, address(place)));
                assert_eq!(outgoing.to, address(1 - place), "there is nobody else");
                self.net.send(self.now, 1 - place, outgoing.from, outgoing.mad);
            }
            while let Some(NumberChange { qpn, is_guarded, .. }) = self.cms[place].poll_number() {
                let guarded = &mut self.guarded[place];
                let is_news = if is_guarded { guarded.insert(qpn) } else { guarded.remove(&qpn) };
                assert!(is_news, "{qpn:?} is told twice");
            }
        }
    }

    fn plan(&mut self, at: Time, act: Act) {
        self.planned += 1;
        self.plan.insert((at, self.planned), act);
    }

    fn hear(&mut self, place: usize, id: ConnId, event: Event) {
        if let Event::Req { req, .. } = &event {
            self.conns[place].insert(id, program::number_of(req.private_data.bytes()));
        }
        let number = *self.conns[place].get(&id).expect("an event of a connection that somebody has");
        let diary = self.diaries.get_mut(&number).expect("a connection that was begun");
        for (delay, act) in self.programs.hear(&mut self.rng, diary, place, id, &event) {
            self.plan(self.now + delay, act);
        }
    }

    fn act(&mut self, act: Act) {
        let now = self.now;
        if let Act::Connect { client, number } = act {
            let private_data = &number.to_be_bytes();
            let params = ReqParams { private_data, ..program::req_params(client, number) };
            let id = self.cms[client].send_req(now, &params).expect("an id is free");
            self.conns[client].insert(id, number);
            self.diaries.insert(number, Diary::new(client));
            for (delay, act) in self.programs.begun(&mut self.rng, client, id) {
                self.plan(now + delay, act);
            }
            return self.settle();
        }
        let (place, id) = act.of();
        let Some(&number) = self.conns[place].get(&id) else { return };
        let diary = self.diaries.get_mut(&number).expect("a connection that was begun");
        let next = self.programs.act(&mut self.cms[place], now, diary, number, &act, &mut self.rng);
        if act.is_final() {
            self.conns[place].remove(&id);
        }
        for (delay, act) in next {
            self.plan(now + delay, act);
        }
        self.settle();
    }
}

/// The address of a machine.
pub fn address(place: usize) -> IpAddr {
    // Two machines: the number is small.
    let last = u8::try_from(place + 2).expect("two machines");
    Ipv4Addr::new(127, 41, 0, last).into()
}
