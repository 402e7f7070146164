use super::*;
use crate::names;

const PORT: u16 = 4791;
const USER: u32 = 1000;

fn empty() -> Desk {
    Desk::new(Locks::Names, LAST_SLOT)
}

fn service_desk(per_user: u16) -> Desk {
    Desk::new(Locks::Lines(HashMap::new()), per_user)
}

fn place(hosts: &[u8]) -> Place {
    Place { port: PORT, addresses: hosts.iter().map(|host| IpAddr::from([127, 0, 13, *host])).collect() }
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn slots_are_given_from_one_on_and_numbers_go_on() {
    let mut desk = empty();
    let here = place(&[2]);
    let first = desk.claim(&here, USER, at(0)).unwrap();
    let second = desk.claim(&here, USER, at(0)).unwrap();
    assert_eq!((first.slot, first.first_index, second.slot), (1, 2, 2));
    drop(first);
    desk.release(&here, 1, End::InOrder(40), at(1));
    let again = desk.claim(&here, USER, at(1)).unwrap();
    assert_eq!((again.slot, again.first_index), (1, 40));
}

#[test]
fn the_slot_of_a_process_that_died_rests_and_its_numbers_leap() {
    let mut desk = empty();
    let here = place(&[3]);
    let (first, _other) = (desk.claim(&here, USER, at(0)).unwrap(), desk.claim(&here, USER, at(0)).unwrap());
    drop(first);
    desk.release(&here, 1, End::Dead, at(1));
    assert_eq!(desk.claim(&here, USER, at(30)).unwrap().slot, 3);
    let again = desk.claim(&here, USER, at(31)).unwrap();
    assert_eq!((again.slot, again.first_index), (1, 2 + 8192));
}

#[test]
fn the_slot_of_a_process_whose_connections_are_not_over_rests_and_its_numbers_go_on() {
    let mut desk = empty();
    let here = place(&[19]);
    let (first, _other) = (desk.claim(&here, USER, at(0)).unwrap(), desk.claim(&here, USER, at(0)).unwrap());
    drop(first);
    desk.release(&here, 1, End::Resting(40), at(1));
    assert_eq!(desk.claim(&here, USER, at(30)).unwrap().slot, 3);
    let again = desk.claim(&here, USER, at(31)).unwrap();
    assert_eq!((again.slot, again.first_index), (1, 40));
}

#[test]
fn numbers_leap_round_within_their_range() {
    let mut desk = empty();
    let here = place(&[4]);
    for index in [16_383, 8192, 8193, 9000] {
        let grant = desk.claim(&here, USER, at(0)).unwrap();
        drop(grant);
        desk.release(&here, 1, End::InOrder(index), at(0));
        let grant = desk.claim(&here, USER, at(0)).unwrap();
        assert_eq!(grant.first_index, index);
        drop(grant);
        desk.release(&here, 1, End::Dead, at(0));
        let grant = desk.claim(&here, USER, at(60)).unwrap();
        assert!((2..16_384).contains(&grant.first_index) && grant.first_index.abs_diff(index) >= 8190);
        drop(grant);
        desk.release(&here, 1, End::InOrder(2), at(0));
    }
}

#[test]
fn a_slot_is_the_same_on_all_addresses() {
    let mut desk = empty();
    let _a = desk.claim(&place(&[5]), USER, at(0)).unwrap();
    let _b = desk.claim(&place(&[6]), USER, at(0)).unwrap();
    let _c = desk.claim(&place(&[6]), USER, at(0)).unwrap();
    let both = desk.claim(&place(&[5, 6, 7]), USER, at(0)).unwrap();
    assert_eq!((both.slot, both.sockets.len(), both.locks.len()), (3, 3, 3));
    assert_eq!(desk.claim(&place(&[5]), USER, at(0)).unwrap().slot, 2);
}

#[test]
fn a_slot_whose_lock_somebody_has_is_not_given() {
    let mut desk = empty();
    let here = place(&[8]);
    let _stranger = names::lock_slot(here.addresses[0], PORT, 1).unwrap().unwrap();
    assert_eq!(desk.claim(&here, USER, at(0)).unwrap().slot, 2);
}

#[test]
fn the_port_is_free_when_no_slot_is_used() {
    let mut desk = empty();
    let here = place(&[9]);
    let grant = desk.claim(&here, USER, at(0)).unwrap();
    shared::check_port_free(here.addresses[0], PORT).unwrap_err();
    drop(grant);
    desk.release(&here, 1, End::InOrder(2), at(0));
    shared::check_port_free(here.addresses[0], PORT).unwrap();
}

#[test]
fn one_address_that_cannot_be_had_leaves_none() {
    let mut desk = empty();
    let _taken = std::net::UdpSocket::bind(("127.0.13.11", PORT)).unwrap();
    let refusal = desk.claim(&place(&[10, 11]), USER, at(0)).unwrap_err();
    assert_eq!(refusal, Refusal::Taken(place(&[11]).addresses[0]));
    shared::check_port_free(place(&[10]).addresses[0], PORT).unwrap();
    let nowhere = Place { port: PORT, addresses: vec!["192.0.2.3".parse().unwrap()] };
    assert_eq!(desk.claim(&nowhere, USER, at(0)).unwrap_err(), Refusal::NotLocal(nowhere.addresses[0]));
}

/// The books are lost, as when the agent dies; two processes still have slots, and one of them a longer group.
#[test]
fn new_books_wait_for_those_who_have_slots() {
    let here = place(&[12]);
    let ip = here.addresses[0];
    let mut desk = empty();
    let grants: Vec<_> = (0..5).map(|_| desk.claim(&here, USER, at(0)).unwrap()).collect();
    assert_eq!(desk.group(ip, PORT).unwrap().len(), 16);
    let copy = |count: usize| {
        let all = desk.group(ip, PORT).unwrap().parks()[0].sockets().unwrap();
        let park = crate::park::Park::new(&all[..count]).unwrap();
        Group::from_ends(ip, PORT, vec![park.end().try_clone_to_owned().unwrap()]).unwrap()
    };
    let (short, long) = (copy(4), copy(16));
    drop(desk);

    let mut desk = empty();
    assert_eq!(desk.claim(&here, USER, at(0)).unwrap_err(), Refusal::Early, "nobody has registered");
    assert_eq!(desk.register(&here, 1, USER, vec![short]), Some(vec![ip]));
    assert_eq!(desk.group(ip, PORT).unwrap().len(), 4);
    assert_eq!(
        desk.claim(&here, USER, at(0)).unwrap_err(),
        Refusal::Early,
        "a longer group may be known to others"
    );
    assert_eq!(desk.register(&here, 5, USER, vec![long]), Some(vec![ip]));
    let grant = desk.claim(&here, USER, at(0)).unwrap();
    assert_eq!(grant.slot, 6, "2 to 4 have owners, who have not registered");
    assert_eq!(desk.register(&here, 5, USER, Vec::new()), None, "the slot has an owner");
    assert_eq!(desk.register(&here, 0, USER, Vec::new()), None);
    // All have registered or gone: the group may grow.
    drop(grants);
    let more: Vec<_> = (0..15).map(|_| desk.claim(&here, USER, at(0)).unwrap().slot).collect();
    assert_eq!(more, [2, 3, 4].into_iter().chain(7..19).collect::<Vec<_>>());
}

#[test]
fn when_every_slot_rests_one_is_given_all_the_same() {
    let mut desk = empty();
    let here = place(&[14]);
    let grants: Vec<_> = (1..=LAST_SLOT).map(|_| desk.claim(&here, USER, at(0)).unwrap()).collect();
    assert_eq!(desk.claim(&here, USER, at(0)).unwrap_err(), Refusal::NoSlot(here.addresses[0]));
    assert_eq!(grants.last().map(|grant| grant.slot), Some(LAST_SLOT));
    drop(grants);
    desk.release(&here, 700, End::Dead, at(0));
    desk.release(&here, 300, End::Dead, at(1));
    let slots = [2, 2].map(|now| desk.claim(&here, USER, at(now)).unwrap().slot);
    assert_eq!(slots, [700, 300], "the one that has rested longest first");
}

/// The numbers that its processes have had are lost with an agent.
#[test]
fn where_nothing_is_known_the_clock_says_where_numbers_begin() {
    let here = place(&[20]);
    let grant = |now| empty().claim(&here, USER, now).unwrap().first_index;
    assert_eq!([grant(at(0)), grant(at(1)), grant(at(16))], [2, 1002, 16_002]);
    let mut desk = empty();
    let (first, second) = (desk.claim(&here, USER, at(3)).unwrap(), desk.claim(&here, USER, at(4)).unwrap());
    assert_eq!((first.slot, first.first_index, second.slot, second.first_index), (1, 3002, 2, 4002));
    drop(first);
    desk.release(&here, 1, End::InOrder(3040), at(5));
    assert_eq!(desk.claim(&here, USER, at(5)).unwrap().first_index, 3040, "what is known counts");
}

#[test]
fn a_slot_that_one_user_had_goes_to_no_other_while_the_group_lives() {
    let mut desk = service_desk(LAST_SLOT);
    let here = place(&[15]);
    let (first, second) = (desk.claim(&here, 1, at(0)).unwrap(), desk.claim(&here, 2, at(0)).unwrap());
    assert_eq!((first.slot, second.slot), (1, 2));
    drop(first);
    desk.release(&here, 1, End::InOrder(40), at(0));
    assert_eq!(desk.claim(&here, 2, at(0)).unwrap().slot, 3);
    desk.release(&here, 3, End::InOrder(2), at(0));
    let again = desk.claim(&here, 1, at(0)).unwrap();
    assert_eq!((again.slot, again.first_index), (1, 40));
    // The last slot closes the group, and with it every socket.
    desk.release(&here, 1, End::InOrder(50), at(0));
    desk.release(&here, 2, End::InOrder(2), at(0));
    drop((second, again));
    let anybody = desk.claim(&here, 2, at(0)).unwrap();
    assert_eq!((anybody.slot, anybody.first_index), (1, 50));
}

#[test]
fn a_user_gets_no_more_slots_of_an_address_than_he_may_have() {
    let mut desk = service_desk(3);
    let (here, there) = (place(&[16]), place(&[17]));
    let mut grants: Vec<_> = (0..3).map(|_| desk.claim(&here, 1, at(0)).unwrap()).collect();
    let refused = desk.claim(&here, 1, at(0)).unwrap_err();
    let why = "127.0.13.16: user 1 has 3 devices already, as many as the service gives to one user";
    assert_eq!(refused, Refusal::Other(why.to_owned()));
    assert_eq!(desk.claim(&place(&[16, 17]), 1, at(0)).unwrap_err(), refused, "nor with another address");
    assert_eq!(desk.claim(&there, 1, at(0)).unwrap().slot, 1, "another address alone");
    assert_eq!(desk.claim(&here, 2, at(0)).unwrap().slot, 4, "another user");
    // One that rests is his, too: dying gets him no more.
    drop(grants.pop());
    desk.release(&here, 3, End::Dead, at(0));
    assert_eq!(desk.claim(&here, 1, at(0)).unwrap().slot, 3);
}

#[test]
fn a_line_that_is_open_keeps_its_slot() {
    let mut desk = service_desk(LAST_SLOT);
    let here = place(&[18]);
    let (grant, _other) = (desk.claim(&here, 1, at(0)).unwrap(), desk.claim(&here, 1, at(0)).unwrap());
    desk.release(&here, 1, End::InOrder(2), at(0));
    let next = desk.claim(&here, 1, at(0)).unwrap();
    assert_eq!(next.slot, 3, "the owner has not let go");
    drop(grant);
    assert_eq!(desk.claim(&here, 1, at(0)).unwrap().slot, 1);
}
