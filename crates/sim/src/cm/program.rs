//! What programs do with their connections, and what they write down.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use userdma_mgmt::cm::{Cm, ConnId, Event, RepParams, ReqParams};
use userdma_verbs::{Psn, Qpn, Time};
use userdma_wire::mad::cm::{AprStatus, Lap, RejectReason};

use super::{address, params};

/// How the programs are. Probabilities.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// That a server refuses.
    pub refuse: f64,
    /// That a server forgets a request, as when it has no memory.
    pub forget: f64,
    /// That somebody gives up at any point, without a word to anybody.
    pub leave: f64,
    /// That a server gets data before the RTU.
    pub early_data: f64,
    /// That a connection is ended by either side, some time later.
    pub disconnect: f64,
    /// That an alternate path is proposed.
    pub propose: f64,
    /// How long somebody thinks at most.
    pub thought: Duration,
}

impl Habits {
    /// Programs that connect, and stay connected.
    pub const PLAIN: Self = Self {
        refuse: 0.0,
        forget: 0.0,
        leave: 0.0,
        early_data: 0.0,
        disconnect: 0.0,
        propose: 0.0,
        thought: Duration::from_millis(20),
    };

    /// Programs that do everything that programs do.
    pub const WILD: Self = Self {
        refuse: 0.15,
        forget: 0.05,
        leave: 0.1,
        early_data: 0.1,
        disconnect: 0.4,
        propose: 0.1,
        thought: Duration::from_secs(3),
    };
}

/// How far a side has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// It has not heard of the connection.
    None,
    /// It is on the way.
    Begun,
    /// It thinks that both are connected.
    Established,
    /// It is over, for whatever reason.
    Over,
}

/// What both programs of a connection wrote down.
#[derive(Clone, Copy, Debug)]
pub struct Diary {
    /// Who asked.
    pub client_place: usize,
    /// The client's side.
    pub client: Stage,
    /// The server's.
    pub server: Stage,
    /// Requests that the server was told of.
    pub requests: u32,
    /// Whether the server has sent a REP.
    pub replied: bool,
    /// Whether the client has sent the RTU.
    pub ready: bool,
    /// Whether the server was told of the RTU.
    pub heard_ready: bool,
    /// Whether somebody was told that an answer did not come.
    pub timeouts: u32,
}

impl Diary {
    pub(super) const fn new(client_place: usize) -> Self {
        Self {
            client_place,
            client: Stage::Begun,
            server: Stage::None,
            requests: 0,
            replied: false,
            ready: false,
            heard_ready: false,
            timeouts: 0,
        }
    }

    pub(super) const fn stage_of(&self, place: usize) -> Stage {
        if place == self.client_place { self.client } else { self.server }
    }

    fn stage(&mut self, place: usize) -> &mut Stage {
        if place == self.client_place { &mut self.client } else { &mut self.server }
    }
}

/// What a program does at some time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Connect { client: usize, number: u32 },
    Prepare { place: usize, id: ConnId },
    Accept { place: usize, id: ConnId },
    Refuse { place: usize, id: ConnId },
    Forget { place: usize, id: ConnId },
    Ready { place: usize, id: ConnId },
    Data { place: usize, id: ConnId },
    Propose { place: usize, id: ConnId },
    Disconnect { place: usize, id: ConnId },
    Answer { place: usize, id: ConnId },
    Destroy { place: usize, id: ConnId },
}

impl Act {
    pub(super) const fn of(&self) -> (usize, ConnId) {
        match *self {
            Self::Connect { client, .. } => (client, ConnId(0)),
            Self::Prepare { place, id }
            | Self::Accept { place, id }
            | Self::Refuse { place, id }
            | Self::Forget { place, id }
            | Self::Ready { place, id }
            | Self::Data { place, id }
            | Self::Propose { place, id }
            | Self::Disconnect { place, id }
            | Self::Answer { place, id }
            | Self::Destroy { place, id } => (place, id),
        }
    }

    /// Whether the program has nothing of the connection afterwards.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Forget { .. } | Self::Destroy { .. })
    }
}

type Plan = Vec<(Duration, Act)>;

/// The programs of both machines.
pub(super) struct Programs {
    habits: Habits,
}

impl Programs {
    pub(super) const fn new(habits: Habits) -> Self {
        Self { habits }
    }

    /// A client has asked.
    pub(super) fn begun(&self, rng: &mut SmallRng, place: usize, id: ConnId) -> Plan {
        let mut plan = Plan::new();
        self.maybe_leave(rng, &mut plan, place, id);
        plan
    }

    /// What a program thinks of doing after an event.
    pub(super) fn hear(
        &self,
        rng: &mut SmallRng,
        diary: &mut Diary,
        place: usize,
        id: ConnId,
        event: &Event,
    ) -> Plan {
        let mut plan = Plan::new();
        let thought = self.thought(rng);
        match event {
            Event::Req { .. } => {
                diary.requests += 1;
                diary.server = Stage::Begun;
                self.answer_req(rng, &mut plan, thought, place, id);
            }
            Event::Rep { rep, .. } => {
                assert!(diary.replied, "a REP that nobody has sent");
                assert_eq!(number_of(rep.private_data.bytes()), rep_number(rep.local_qpn), "mixed up");
                let act = if rng.random_bool(self.habits.refuse) {
                    Act::Refuse { place, id }
                } else {
                    Act::Ready { place, id }
                };
                plan.push((thought, act));
            }
            Event::Rtu => {
                assert!(diary.ready, "an RTU that nobody has sent");
                diary.heard_ready = true;
                self.established(rng, diary, &mut plan, place, id);
            }
            Event::Established => self.established(rng, diary, &mut plan, place, id),
            Event::Rej { .. } | Event::TimewaitExit | Event::Drep => {
                *diary.stage(place) = Stage::Over;
                plan.push((thought, Act::Destroy { place, id }));
            }
            Event::ReqError | Event::RepError | Event::DreqError => {
                diary.timeouts += 1;
                *diary.stage(place) = Stage::Over;
                plan.push((thought, Act::Destroy { place, id }));
            }
            Event::Dreq => {
                *diary.stage(place) = Stage::Over;
                plan.push((thought, Act::Answer { place, id }));
            }
            Event::Lap { .. } => plan.push((thought, Act::Answer { place, id })),
            Event::Mra | Event::Apr { .. } | Event::LapError => {}
            Event::SidrReq { .. } | Event::SidrRep { .. } | Event::SidrError => {
                panic!("nobody asks for datagrams")
            }
        }
        plan
    }

    fn answer_req(&self, rng: &mut SmallRng, plan: &mut Plan, thought: Duration, place: usize, id: ConnId) {
        if rng.random_bool(0.5) {
            plan.push((Duration::ZERO, Act::Prepare { place, id }));
        }
        if rng.random_bool(self.habits.forget) {
            return plan.push((thought, Act::Forget { place, id }));
        }
        let act = if rng.random_bool(self.habits.refuse) {
            Act::Refuse { place, id }
        } else {
            Act::Accept { place, id }
        };
        plan.push((thought, act));
        self.maybe_leave(rng, plan, place, id);
    }

    fn established(&self, rng: &mut SmallRng, diary: &mut Diary, plan: &mut Plan, place: usize, id: ConnId) {
        *diary.stage(place) = Stage::Established;
        if rng.random_bool(self.habits.disconnect) {
            plan.push((self.thought(rng), Act::Disconnect { place, id }));
        }
        if rng.random_bool(self.habits.propose) {
            plan.push((self.thought(rng), Act::Propose { place, id }));
        }
        self.maybe_leave(rng, plan, place, id);
    }

    fn maybe_leave(&self, rng: &mut SmallRng, plan: &mut Plan, place: usize, id: ConnId) {
        if rng.random_bool(self.habits.leave) {
            let when = 2 * self.thought(rng);
            plan.push((when, Act::Destroy { place, id }));
        }
    }

    /// Does it, if the connection still lets it: programs are always late. What comes of it later.
    pub(super) fn act(
        &self,
        cm: &mut Cm,
        now: Time,
        diary: &mut Diary,
        number: u32,
        act: &Act,
        rng: &mut SmallRng,
    ) -> Plan {
        let mut plan = Plan::new();
        if carry_out(cm, now, diary.ready, number, act) {
            self.note(rng, diary, &mut plan, act);
        }
        plan
    }

    /// Writes down what has been done, and thinks of what to do next.
    fn note(&self, rng: &mut SmallRng, diary: &mut Diary, plan: &mut Plan, act: &Act) {
        let (place, id) = act.of();
        match act {
            Act::Connect { .. } | Act::Prepare { .. } | Act::Data { .. } | Act::Propose { .. } => {}
            Act::Accept { .. } => {
                diary.replied = true;
                if rng.random_bool(self.habits.early_data) {
                    plan.push((self.thought(rng), Act::Data { place, id }));
                }
                self.maybe_leave(rng, plan, place, id);
            }
            Act::Refuse { .. } => {
                *diary.stage(place) = Stage::Over;
                plan.push((self.thought(rng), Act::Destroy { place, id }));
            }
            Act::Forget { .. } => diary.server = Stage::None,
            Act::Ready { .. } => {
                diary.ready = true;
                self.established(rng, diary, plan, place, id);
            }
            Act::Answer { .. } => {
                if rng.random_bool(0.5) {
                    plan.push((self.thought(rng), Act::Destroy { place, id }));
                }
            }
            Act::Disconnect { .. } | Act::Destroy { .. } => *diary.stage(place) = Stage::Over,
        }
    }

    /// How long somebody thinks this time.
    fn thought(&self, rng: &mut SmallRng) -> Duration {
        self.habits.thought.mul_f64(rng.random())
    }
}

/// Makes the call of an act; whether there is something to write down about it. Data comes from a client that `is_ready` only.
fn carry_out(cm: &mut Cm, now: Time, is_ready: bool, number: u32, act: &Act) -> bool {
    let (_, id) = act.of();
    let data = number.to_be_bytes();
    match act {
        Act::Connect { .. } => false,
        Act::Prepare { .. } => cm.prepare_mra(id, 20).is_ok(),
        Act::Accept { .. } => {
            cm.send_rep(now, id, &RepParams { private_data: &data, ..rep_params(number) }).is_ok()
        }
        Act::Refuse { .. } => cm.send_rej(now, id, RejectReason::ConsumerReject, &[], &data).is_ok(),
        Act::Forget { .. } => {
            cm.forget(id);
            true
        }
        Act::Ready { .. } => cm.send_rtu(id, &data).is_ok(),
        Act::Data { .. } => is_ready && cm.establish(id).is_ok(),
        Act::Propose { .. } => cm.send_lap(now, id, &Lap::default()).is_ok(),
        Act::Disconnect { .. } => cm.send_dreq(now, id, &[]).is_ok(),
        Act::Answer { .. } => {
            // A LAP or a DREQ; with the former answered the connection goes on.
            let is_lap = cm.send_apr(id, AprStatus::Unsupported, &[], &[]).is_ok();
            let _ = cm.send_drep(now, id, &[]);
            !is_lap
        }
        Act::Destroy { .. } => {
            cm.destroy(now, id);
            true
        }
    }
}

/// What a client asks for; the private data are the world's.
pub(super) fn req_params(client: usize, number: u32) -> ReqParams<'static> {
    let between = (address(client), address(1 - client));
    params::req(between, qpn(false, number), Psn::new(number), 16)
}

fn rep_params(number: u32) -> RepParams<'static> {
    params::rep(qpn(true, number), Psn::new(number))
}

/// The queue pair of a connection's side.
pub(super) const fn qpn(is_server: bool, number: u32) -> Qpn {
    Qpn::new(if is_server { 0x20_0000 } else { 0x10_0000 } + number)
}

/// The number of a connection, which its messages begin with.
pub(super) fn number_of(private_data: &[u8]) -> u32 {
    u32::from_be_bytes(*private_data.first_chunk().expect("private data are longer"))
}

/// The number of the connection that a server's queue pair is of.
fn rep_number(qpn: Qpn) -> u32 {
    qpn.get() - self::qpn(true, 0).get()
}
