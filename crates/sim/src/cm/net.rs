//! A network that loses, repeats and delays datagrams.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_verbs::Time;
use userdma_wire::mad::{Header, MAD_LEN};

/// How bad it is. Probabilities are for each datagram.
#[derive(Clone, Copy, Debug)]
pub struct MadFaults {
    /// That it is lost.
    pub loss: f64,
    /// That it comes twice.
    pub duplicate: f64,
    /// That it is held back, for up to `hold`.
    pub reorder: f64,
    /// How long it is held back at most.
    pub hold: Duration,
    /// How often the same message is lost at most.
    pub max_losses: u32,
}

impl MadFaults {
    /// A perfect network.
    pub const NONE: Self =
        Self { loss: 0.0, duplicate: 0.0, reorder: 0.0, hold: Duration::ZERO, max_losses: u32::MAX };
}

/// The network between two machines.
pub struct MadNetwork {
    /// How bad it is; may be changed on the way.
    pub faults: MadFaults,
    /// Datagrams that were given to it.
    pub sent: u64,
    rng: SmallRng,
    transit: BTreeMap<(Time, u64), (usize, IpAddr, [u8; MAD_LEN])>,
    /// How often a message was lost: by the receiver, the kind and the transaction.
    losses: HashMap<(usize, u16, u64), u32>,
    count: u64,
}

impl MadNetwork {
    pub(super) fn new(seed: u64, faults: MadFaults) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self { faults, sent: 0, rng, transit: BTreeMap::new(), losses: HashMap::new(), count: 0 }
    }

    pub(super) fn send(&mut self, now: Time, to: usize, from: IpAddr, mad: [u8; MAD_LEN]) {
        self.sent += 1;
        let header = Header::parse(&mad).expect("a machine sends MADs");
        let losses = self.losses.entry((to, header.attribute_id, header.transaction_id)).or_default();
        if *losses < self.faults.max_losses && self.rng.random_bool(self.faults.loss) {
            *losses += 1;
            return;
        }
        let copies = 1 + u32::from(self.rng.random_bool(self.faults.duplicate));
        for _ in 0..copies {
            let is_held = self.rng.random_bool(self.faults.reorder);
            let held = if is_held { self.faults.hold.mul_f64(self.rng.random()) } else { Duration::ZERO };
            self.count += 1;
            self.transit.insert((now + LATENCY + held, self.count), (to, from, mad));
        }
    }

    pub(super) fn next_arrival(&self) -> Option<Time> {
        self.transit.keys().next().map(|&(at, _)| at)
    }

    pub(super) fn arrived(&mut self, now: Time) -> Option<(usize, IpAddr, [u8; MAD_LEN])> {
        let entry = self.transit.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}

const LATENCY: Duration = Duration::from_micros(50);
