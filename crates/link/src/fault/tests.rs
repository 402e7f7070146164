use std::net::Ipv4Addr;

use userdma_mem::LinkId;

use super::*;

const START: Time = Time::from_nanos(1_000);

fn meta(segment: u16) -> FrameMeta {
    FrameMeta {
        link: LinkId(0),
        remote: Ipv4Addr::LOCALHOST.into(),
        remote_port: 0xc000,
        local: Ipv4Addr::LOCALHOST.into(),
        local_port: 4791,
        traffic_class: 0,
        segment,
    }
}

fn packet(number: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// Numbers of the packets that come out when `count` go in at one moment.
fn run(injector: &mut FaultInjector, count: u32) -> Vec<u32> {
    let mut out = Vec::new();
    for n in 0..count {
        injector.apply(START, &packet(n), meta(0), &mut |bytes, _| out.push(number(bytes)));
    }
    out
}

fn injector(faults: &str) -> FaultInjector {
    FaultInjector::new(&faults.parse().unwrap(), START)
}

#[test]
fn without_faults_everything_comes_out_as_it_went_in() {
    let mut injector = injector("seed=3");
    assert_eq!(run(&mut injector, 100), (0..100).collect::<Vec<_>>());
    assert_eq!(injector.next_deadline(), None);
}

#[test]
fn loss_is_as_frequent_as_asked() {
    let mut injector = injector("loss=0.01,seed=1");
    let out = run(&mut injector, 100_000);
    // Mean 1,000, standard deviation 31.5: five of them on either side.
    assert!((842..=1158).contains(&injector.stats().lost), "{:?}", injector.stats());
    assert_eq!(out.len() as u64 + injector.stats().lost, 100_000);
    assert!(out.is_sorted(), "loss alone keeps the order");
}

#[test]
fn duplicates_come_twice_in_a_row() {
    let mut injector = injector("dup=0.05,seed=2");
    let out = run(&mut injector, 10_000);
    let pairs = out.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!(pairs, injector.stats().duplicated);
    assert!((400..=600).contains(&pairs), "{pairs}");
    assert_eq!(out.len() as u64, 10_000 + pairs);
}

#[test]
fn a_reordered_packet_is_overtaken_by_one_to_eight() {
    let mut injector = injector("reorder=0.02,seed=9");
    let mut out = run(&mut injector, 20_000);
    injector.poll(START + FaultInjector::MAX_HOLD, &mut |bytes, _| out.push(number(bytes)));
    assert_eq!(out.len(), 20_000, "reordering loses nothing");
    let mut moved = 0;
    for (at, &n) in out.iter().enumerate() {
        let overtakers = out[..at].iter().rev().take(40).filter(|&&earlier| earlier > n).count();
        assert!(overtakers <= 20, "packet {n} was overtaken by {overtakers}");
        moved += u64::from(overtakers > 0);
    }
    let stats = injector.stats();
    assert!((300..=500).contains(&stats.reordered), "{stats:?}");
    // A neighbour that was held as well may leave with it, in order.
    assert!(moved >= stats.reordered * 9 / 10, "{moved} of {stats:?}");
}

#[test]
fn a_held_packet_leaves_after_a_while_even_if_none_overtake() {
    let mut injector = injector("reorder=1");
    assert_eq!(run(&mut injector, 1), []);
    let deadline = injector.next_deadline().unwrap();
    assert_eq!(deadline, START + FaultInjector::MAX_HOLD);
    let mut out = Vec::new();
    injector.poll(Time::from_nanos(deadline.nanos() - 1), &mut |bytes, _| out.push(number(bytes)));
    assert_eq!(out, []);
    injector.poll(deadline, &mut |bytes, _| out.push(number(bytes)));
    assert_eq!(out, [0]);
    assert_eq!(injector.next_deadline(), None);
}

#[test]
fn a_delayed_packet_comes_at_its_time_in_order() {
    let mut injector = injector("delay=1ms");
    assert_eq!(run(&mut injector, 3), []);
    let due = START + Duration::from_millis(1);
    assert_eq!(injector.next_deadline(), Some(due));
    let mut out = Vec::new();
    injector.poll(Time::from_nanos(due.nanos() - 1), &mut |bytes, _| out.push(number(bytes)));
    assert_eq!(out, []);
    injector.apply(due, &packet(3), meta(0), &mut |bytes, _| out.push(number(bytes)));
    assert_eq!(out, [0, 1, 2], "an arrival lets out what is due");
    assert_eq!(injector.next_deadline(), Some(due + Duration::from_millis(1)));
}

#[test]
fn corruption_turns_exactly_one_bit() {
    let mut injector = injector("corrupt=1,seed=4");
    let mut bits_seen = [false; 256];
    for n in 0..2_000 {
        let before = packet(n);
        injector.apply(START, &before, meta(0), &mut |after, _| {
            let turned: Vec<usize> =
                (0..256).filter(|&bit| (before[bit / 8] ^ after[bit / 8]) >> (bit % 8) & 1 == 1).collect();
            assert_eq!((turned.len(), after.len()), (1, before.len()));
            bits_seen[turned[0]] = true;
        });
    }
    assert!(bits_seen.iter().filter(|&&seen| seen).count() > 250, "all bits are hit sooner or later");
    assert_eq!(injector.stats().corrupted, 2_000);
}

#[test]
fn an_empty_packet_cannot_be_corrupted() {
    let mut injector = injector("corrupt=1");
    let mut out = 0;
    injector.apply(START, &[], meta(0), &mut |bytes, _| out += 1 + bytes.len());
    assert_eq!(out, 1);
}

#[test]
fn a_packet_keeps_its_metadata() {
    let mut injector = injector("dup=1,delay=1us");
    injector.apply(START, &packet(0), meta(17), &mut |_, _| panic!("too early"));
    let mut out = Vec::new();
    injector.poll(Time::NEVER, &mut |_, meta| out.push(meta));
    assert_eq!(out, [meta(17), meta(17)]);
}

#[test]
fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
    let faults = "loss=0.1,dup=0.1,reorder=0.1,corrupt=0.1,seed=";
    let with = |seed: u32| run(&mut injector(&format!("{faults}{seed}")), 1_000);
    assert_eq!(with(5), with(5));
    assert_ne!(with(5), with(6));
}

#[test]
fn what_is_lost_does_not_depend_on_other_faults() {
    let lost = |faults: &str| {
        let mut injector = injector(faults);
        let out = run(&mut injector, 2_000);
        (0..2_000).filter(|n| !out.contains(n)).collect::<Vec<_>>()
    };
    assert_eq!(lost("loss=0.05,seed=8"), lost("loss=0.05,dup=0.3,seed=8"));
}

#[test]
fn nothing_passes_a_link_that_is_down() {
    let at = |us: u32| START + Duration::from_micros(us.into());
    let mut injector = injector("down=10us..20us,delay=5us");
    let mut out = Vec::new();
    for us in 0..30 {
        injector.apply(at(us), &packet(us), meta(0), &mut |bytes, _| out.push(number(bytes)));
    }
    injector.poll(at(40), &mut |bytes, _| out.push(number(bytes)));
    // What was on its way when the link went down is lost with it.
    assert_eq!(out, [(0..5).collect::<Vec<_>>(), (20..30).collect()].concat());
    assert_eq!(injector.stats().lost, 15);
}
