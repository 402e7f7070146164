//! Connections between two machines over networks that lose, repeat and reorder.

#![allow(clippy::expect_used, reason = "also in functions that tests share")]

use std::time::Duration;

use userdma_mgmt::cm::Counts;
use userdma_sim::cm::{Habits, MadFaults, Stage, World};

const MINUTES: Duration = Duration::from_secs(60);

/// Only the listener of each machine is left.
fn assert_empty(world: &World, what: &str) {
    for cm in &world.cms {
        assert_eq!(cm.counts(), Counts { listeners: 1, ..Counts::default() }, "{what}");
    }
}

fn bad(loss: f64) -> MadFaults {
    MadFaults { loss, duplicate: 0.1, reorder: 0.2, hold: Duration::from_millis(300), max_losses: 5 }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = std::env::var("USERDMA_CM_SEED").ok().map(|seed| seed.parse().expect("a number"));
    first.map_or(0..count, |seed: u64| seed..seed + 1)
}

#[test]
fn on_a_good_network_everybody_is_connected() {
    let mut world = World::new(1, MadFaults::NONE, Habits::PLAIN);
    world.begin(500, Duration::from_secs(1));
    world.run(MINUTES);
    assert_eq!(world.diaries.len(), 500);
    for diary in world.diaries.values() {
        assert_eq!((diary.client, diary.server), (Stage::Established, Stage::Established), "{diary:?}");
        assert_eq!((diary.requests, diary.timeouts), (1, 0));
    }
    assert_eq!(world.net.sent, 1500, "REQ, REP, RTU: nothing was sent again");
    world.shut_down();
    world.run(MINUTES);
    assert_empty(&world, "good");
}

#[test]
fn loss_delays_and_nothing_else() {
    for seed in seeds(20) {
        let mut world = World::new(seed, bad(0.3), Habits::PLAIN);
        world.begin(60, Duration::from_secs(10));
        world.run(10 * MINUTES);
        for diary in world.diaries.values() {
            assert_eq!(
                (diary.client, diary.server),
                (Stage::Established, Stage::Established),
                "seed {seed}: {diary:?}"
            );
        }
        world.shut_down();
        world.run(10 * MINUTES);
        assert_empty(&world, &format!("seed {seed}"));
    }
}

/// Datagrams that come twice or late are recognized: a server hears of each connection once.
#[test]
fn what_comes_twice_happens_once() {
    for seed in seeds(20) {
        let faults =
            MadFaults { duplicate: 0.5, reorder: 0.5, hold: Duration::from_millis(250), ..MadFaults::NONE };
        let habits = Habits { forget: 0.0, ..Habits::WILD };
        let mut world = World::new(seed, faults, habits);
        world.begin(60, Duration::from_secs(10));
        world.run(10 * MINUTES);
        assert_eq!(world.disagreements(), [""; 0], "seed {seed}");
        assert!(world.diaries.values().all(|diary| diary.requests <= 1), "seed {seed}");
        world.shut_down();
        world.run(10 * MINUTES);
        assert_empty(&world, &format!("seed {seed}"));
    }
}

/// Whatever programs do, if messages get through at last both sides agree whether there is a connection.
#[test]
fn both_sides_agree_in_the_end() {
    let mut established = 0;
    for seed in seeds(60) {
        let mut world = World::new(seed, bad(0.25), Habits::WILD);
        world.begin(40, Duration::from_secs(20));
        world.run(20 * MINUTES);
        assert_eq!(world.disagreements(), [""; 0], "seed {seed}");
        established += world.diaries.values().filter(|diary| diary.client == Stage::Established).count();
        world.shut_down();
        world.run(20 * MINUTES);
        assert_empty(&world, &format!("seed {seed}"));
    }
    assert!(
        established > 200 || std::env::var("USERDMA_CM_SEED").is_ok(),
        "{established}: too few to say anything"
    );
}

/// On a network that lets hardly anything through everything ends in bounded time, and nothing is left.
#[test]
fn everything_ends_even_if_nothing_gets_through() {
    for (seed, loss) in seeds(12).zip([0.6, 0.8, 0.95, 1.0].into_iter().cycle()) {
        let faults = MadFaults { max_losses: u32::MAX, ..bad(loss) };
        let mut world = World::new(seed, faults, Habits::WILD);
        world.begin(60, Duration::from_secs(10));
        world.run(30 * MINUTES);
        world.shut_down();
        world.run(30 * MINUTES);
        assert_empty(&world, &format!("seed {seed}"));
    }
}

/// The network goes away in the middle of everything, and comes back.
#[test]
fn an_outage_ends_in_timeouts_and_agreement() {
    for seed in seeds(12) {
        let mut world = World::new(seed, bad(0.1), Habits::PLAIN);
        world.begin(60, Duration::from_secs(5));
        world.run(10 * MINUTES);
        world.net.faults = MadFaults { loss: 1.0, max_losses: u32::MAX, ..MadFaults::NONE };
        world.begin(20, Duration::from_secs(5));
        world.run(30 * MINUTES);
        let failed = world.diaries.values().filter(|diary| diary.timeouts > 0).count();
        assert_eq!(failed, 20, "seed {seed}: each of those who asked was told");
        world.net.faults = MadFaults::NONE;
        world.begin(20, Duration::from_secs(5));
        world.run(10 * MINUTES);
        assert_eq!(world.disagreements(), [""; 0], "seed {seed}");
        world.shut_down();
        world.run(30 * MINUTES);
        assert_empty(&world, &format!("seed {seed}"));
    }
}
