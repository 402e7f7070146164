//! What the harness itself must do, so that a run without findings says something.

use super::super::program::{Answer, Post, Recv};
use super::*;

const SETUP: Setup = Setup { bits: 0x07, limits: 0xfc, before_wrap: 1 };

fn scene(role: Role, steps: &[Step]) -> Scene {
    let mut scene = Scene::new(role, QpType::Rc, &SETUP);
    for step in steps {
        scene.step(step);
        scene.check();
    }
    scene
}

/// A packet of a program comes through: it does not stop at its ICRC.
#[test]
fn a_request_is_executed() {
    let send = Request { opcode: 4, flags: Request::ACK_REQ, payload: 20, ..Request::default() };
    let scene = scene(Role::Responder, &[Step::Recv(Recv { kind: 0, len: 100 }), Step::Request(send)]);
    assert_eq!((scene.recvs.next_id(), scene.recvs.owed()), (1, 0), "the receive has completed");
    assert_eq!(scene.attr().rq_psn, Psn::new(0), "and the PSN has wrapped");
}

#[test]
fn a_message_of_an_unreliable_connection_is_executed() {
    let send = Request { opcode: 4, payload: 20, ..Request::default() };
    let mut scene = Scene::new(Role::Responder, QpType::Uc, &SETUP);
    scene.step(&Step::Recv(Recv { kind: 0, len: 100 }));
    scene.step(&Step::Request(send));
    scene.check();
    assert_eq!((scene.recvs.next_id(), scene.recvs.owed()), (1, 0), "the receive has completed");
}

#[test]
fn a_datagram_is_taken_and_one_is_sent_with_receives_of_its_own_and_shared_ones() {
    let send = Request { opcode: 4, payload: 20, ..Request::default() };
    let wrong = Request { flags: Request::FAR, ..send };
    for limits in [0, 1] {
        let mut scene = Scene::new(Role::Responder, QpType::Ud, &Setup { limits, ..SETUP });
        scene.step(&Step::Recv(Recv { kind: 0, len: 100 }));
        scene.step(&Step::Request(wrong));
        assert_eq!(scene.under_test.recv_cq.len(), 0, "a wrong key");
        scene.step(&Step::Request(send));
        assert_eq!(scene.under_test.recv_cq.len(), 1);
        scene.check();
        scene.step(&Step::Post(Post { kind: 0, flags: 1, len: 100 }));
        scene.check();
        assert_eq!((scene.sends.next_id(), scene.sends.owed()), (1, 0), "the datagram has left");
        scene.finish();
    }
}

#[test]
fn an_answer_fits_what_was_asked() {
    let answer = Step::Answer(Answer { kind: 0, psn: 0, syndrome: 0, more: 0 });
    let read = Step::Post(Post { kind: 2, flags: 1, len: 600 });
    let scene = scene(Role::Requester, &[read, answer.clone(), answer.clone(), answer]);
    assert_eq!((scene.sends.next_id(), scene.sends.owed()), (2, 0), "three packets were a whole READ");
    assert_eq!(scene.attr().qp_state, QpState::Rts);
}

/// What the borders are worth: a WRITE where it is allowed passes, one behind the region's end must be refused.
#[test]
fn a_write_changes_its_region_and_nothing_else() {
    let write = Request { opcode: 10, len: 16, payload: 16, ..Request::default() };
    let fine = scene(Role::Responder, &[Step::Request(write)]);
    assert_eq!(fine.attr().qp_state, QpState::Rts);
    let outside = Request { offset: 0x801 - 15, ..write };
    let refused = scene(Role::Responder, &[Step::Request(outside)]);
    assert_eq!(refused.attr().qp_state, QpState::Err, "one byte too far");
}

#[test]
#[should_panic(expected = "of the arena changed")]
fn a_byte_between_the_regions_is_missed() {
    let mut scene = scene(Role::Responder, &[]);
    scene.arena.spoil(0x1409);
    scene.check();
}
