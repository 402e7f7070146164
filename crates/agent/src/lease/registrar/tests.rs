//! What is told, to whom, and how often.

use std::convert::Infallible;
use std::sync::Arc;

use super::*;
use crate::gsi::PortSpace;

fn port() -> PortRequest {
    PortRequest {
        space: PortSpace::Tcp,
        port: 0,
        address: [10, 0, 0, 1].into(),
        reuse_address: false,
        af_only: true,
    }
}

fn service(id: u64) -> Services {
    Services { id, mask: u64::MAX }
}

fn will(byte: u8) -> Will {
    Will { from: [10, 0, 0, 1].into(), to: [10, 0, 0, 2].into(), mad: [byte; 256] }
}

/// What the agent is told if it has room for `room` messages.
fn told(registrar: &Registrar, room: usize) -> Vec<GsiRequest> {
    let mut told = Vec::new();
    let sent: Result<(), Infallible> = registrar.tell(|request| {
        let has_room = told.len() < room;
        if has_room {
            told.push(request);
        }
        Ok(has_room)
    });
    sent.unwrap();
    told
}

/// Asks while an agent answers `result` at once.
fn ask(
    registrar: &Arc<Registrar>,
    request: impl FnOnce(u32) -> GsiRequest,
    result: Result<u16, PortError>,
) -> Option<Result<u16, PortError>> {
    let agent = || {
        for request in told(registrar, usize::MAX) {
            if let GsiRequest::Reserve { seq, .. } | GsiRequest::Listen { seq, .. } = request {
                registrar.answer(seq, result);
            }
        }
    };
    registrar.ask(request, agent, Duration::from_secs(10))
}

#[test]
fn a_new_agent_is_told_what_was_granted_and_not_given_back() {
    let registrar = Arc::new(Registrar::default());
    for id in [1, 2] {
        let reserve = |seq| GsiRequest::Reserve { seq, id, port: port() };
        assert_eq!(ask(&registrar, reserve, Ok(40_000)), Some(Ok(40_000)));
    }
    let refused = |seq| GsiRequest::Reserve { seq, id: 3, port: port() };
    assert_eq!(ask(&registrar, refused, Err(PortError::InUse)), Some(Err(PortError::InUse)));
    ask(&registrar, |seq| GsiRequest::Listen { seq, service: service(7), on: None }, Ok(0));
    registrar.set_will(9, Some(&will(1)));
    registrar.release(2);
    registrar.release(77);
    let both = [GsiRequest::SetWill { comm_id: 9, will: will(1) }, GsiRequest::Release { id: 2 }];
    assert_eq!(told(&registrar, usize::MAX), both);
    assert!(!registrar.has_news());
    registrar.begin_again();
    let all = [
        GsiRequest::SetWill { comm_id: 9, will: will(1) },
        GsiRequest::Restore { id: 1, listens: false, port: PortRequest { port: 40_000, ..port() } },
        GsiRequest::Relisten { service: service(7), on: None },
    ];
    assert_eq!(told(&registrar, usize::MAX), all);
}

#[test]
fn a_new_agent_is_told_as_often_as_somebody_still_listens() {
    let registrar = Arc::new(Registrar::default());
    for id in [8, 7, 7, 7] {
        ask(&registrar, |seq| GsiRequest::Listen { seq, service: service(id), on: None }, Ok(0));
    }
    for id in [7, 8, 8] {
        registrar.unlisten(service(id), None);
    }
    let unlisten = |id| GsiRequest::Unlisten { service: service(id), on: None };
    assert_eq!(told(&registrar, usize::MAX), [unlisten(7), unlisten(8)]);
    registrar.begin_again();
    let relisten = GsiRequest::Relisten { service: service(7), on: None };
    assert_eq!(told(&registrar, usize::MAX), [relisten.clone(), relisten]);
}

#[test]
fn of_a_will_only_the_last_state_is_told() {
    let registrar = Registrar::default();
    registrar.set_will(1, Some(&will(1)));
    registrar.set_will(1, None);
    registrar.set_will(2, Some(&will(1)));
    registrar.set_will(2, Some(&will(2)));
    assert_eq!(told(&registrar, usize::MAX), [GsiRequest::SetWill { comm_id: 2, will: will(2) }]);
    registrar.set_will(2, None);
    registrar.set_will(2, Some(&will(3)));
    registrar.set_will(2, None);
    assert_eq!(told(&registrar, usize::MAX), [GsiRequest::ClearWill { comm_id: 2 }]);
    assert_eq!(told(&registrar, usize::MAX), []);
}

#[test]
fn what_finds_no_room_is_told_later_in_order() {
    let registrar = Registrar::default();
    for comm_id in 1..=3 {
        registrar.set_will(comm_id, Some(&will(0)));
    }
    let mut all = told(&registrar, 1);
    all.extend(told(&registrar, 0));
    all.extend(told(&registrar, 5));
    let expected = [1, 2, 3].map(|comm_id| GsiRequest::SetWill { comm_id, will: will(0) });
    assert_eq!(all, expected);
}

#[test]
fn who_does_not_wait_any_more_has_asked_for_nothing() {
    let registrar = Registrar::default();
    let reserve = |seq| GsiRequest::Reserve { seq, id: 1, port: port() };
    assert_eq!(registrar.ask(reserve, || (), Duration::ZERO), None);
    assert_eq!(told(&registrar, usize::MAX), [], "the agent has not been told");
    let mut seq = 0;
    let agent = |registrar: &Registrar| match told(registrar, usize::MAX)[..] {
        [GsiRequest::Reserve { seq, .. }] => seq,
        ref other => panic!("{other:?}"),
    };
    let answer = registrar.ask(reserve, || (), Duration::ZERO);
    assert_eq!(answer, None);
    let told_but_late = registrar.ask(reserve, || seq = agent(&registrar), Duration::ZERO);
    assert_eq!(told_but_late, None);
    registrar.answer(seq, Ok(40_000));
    assert_eq!(told(&registrar, usize::MAX), [GsiRequest::Release { id: 1 }], "what comes late goes back");
    registrar.begin_again();
    assert_eq!(told(&registrar, usize::MAX), []);
}

#[test]
fn a_port_that_nobody_waits_for_any_more_is_not_listened_on() {
    let registrar = Registrar::default();
    let agent = || assert_eq!(told(&registrar, usize::MAX), [GsiRequest::BeginListening { seq: 1, id: 5 }]);
    let begin = |seq| GsiRequest::BeginListening { seq, id: 5 };
    assert_eq!(registrar.ask(begin, agent, Duration::ZERO), None);
    registrar.answer(1, Ok(0));
    assert_eq!(told(&registrar, usize::MAX), [GsiRequest::EndListening { id: 5 }]);
}

#[test]
fn a_will_that_is_opened_counts_no_longer() {
    let registrar = Registrar::default();
    registrar.set_will(1, Some(&will(1)));
    told(&registrar, usize::MAX);
    registrar.open_will(1, &will(2));
    let opened = [GsiRequest::OpenWill { comm_id: 1, will: will(2) }];
    assert_eq!(told(&registrar, usize::MAX), opened);
    registrar.begin_again();
    assert_eq!(told(&registrar, usize::MAX), opened, "the agent before may not have seen to it");
}

#[test]
fn whoever_has_a_will_waits_until_the_agent_has_it() {
    let registrar = Registrar::default();
    registrar.set_will(1, Some(&will(1)));
    assert!(!registrar.wait_until_told(1, LONG), "nobody listens yet: it does not wait");
    told(&registrar, usize::MAX);
    registrar.set_will(2, Some(&will(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| told(&registrar, usize::MAX));
        assert!(registrar.wait_until_told(2, LONG));
    });
    registrar.set_will(3, Some(&will(1)));
    assert!(!registrar.wait_until_told(3, Duration::ZERO));
    assert!(!registrar.wait_until_told(3, LONG), "one has waited in vain: others do not wait");
}

#[test]
fn a_question_that_the_last_agent_took_with_it_is_asked_again() {
    let registrar = Registrar::default();
    let reserve = |seq| GsiRequest::Reserve { seq, id: 1, port: port() };
    let agents = || {
        assert_eq!(told(&registrar, usize::MAX).len(), 1);
        registrar.begin_again();
        let [GsiRequest::Reserve { seq, .. }] = told(&registrar, usize::MAX)[..] else {
            panic!("asked again")
        };
        registrar.answer(seq, Ok(7));
    };
    assert_eq!(registrar.ask(reserve, agents, Duration::from_secs(10)), Some(Ok(7)));
}

#[test]
fn connections_that_come_and_go_while_the_agent_is_stopped_leave_nothing() {
    let registrar = Registrar::default();
    for comm_id in 0..100 {
        registrar.set_will(comm_id, Some(&will(1)));
        registrar.set_will(comm_id, None);
    }
    assert!(!registrar.has_news() && registrar.lock().changed.is_empty());
}

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);
