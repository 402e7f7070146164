use std::collections::VecDeque;

use proptest::prelude::*;
use userdma_verbs::{LKey, RKey, RemoteAddr};

use super::*;

fn sge(addr: u64) -> Sge {
    Sge { addr, length: 4, lkey: LKey::new(7) }
}

fn send<'a>(wr_id: u64, sgl: &'a [Sge], inline: &'a [u8]) -> SendWr<'a> {
    let flags = if inline.is_empty() { SendFlags::empty() } else { SendFlags::INLINE };
    SendWr { wr_id, op: SendOp::Send, flags, sgl, inline }
}

fn push(ring: &mut WqeRing, wr: &SendWr<'_>) -> bool {
    let len = if wr.inline.is_empty() { crate::sgl_len(wr.sgl) } else { wr.inline.len() as u64 };
    ring.push(wr, wr.flags, u32::try_from(len).expect("short"))
}

#[test]
fn an_element_keeps_its_number_list_and_inline_data() {
    let mut ring = WqeRing::new(4, 2, 8);
    let op = SendOp::Write(RemoteAddr { addr: 0x1000, rkey: RKey::new(9) });
    let list = [sge(1), sge(2)];
    let write = SendWr { op, ..send(1, &list, &[]) };
    assert!(ring.push(&write, SendFlags::SIGNALED, 8));
    assert!(push(&mut ring, &send(2, &[sge(9)], b"inline")));
    assert!(push(&mut ring, &send(3, &[], &[])));

    let first = ring.get(0).expect("there");
    assert_eq!((first.wqe.wr_id, first.wqe.op, first.wqe.flags), (1, op, SendFlags::SIGNALED));
    assert_eq!((first.wqe.len, first.wqe.num_sge), (8, 2));
    assert_eq!((first.sgl, first.inline), (&[sge(1), sge(2)][..], &b""[..]));
    let second = ring.get(1).expect("there");
    assert_eq!(
        (second.wqe.wr_id, second.wqe.len, second.wqe.num_sge),
        (2, 6, 0),
        "its list is not looked at"
    );
    assert_eq!((second.sgl, second.inline), (&[][..], &b"inline"[..]));
    assert_eq!(ring.pop().map(|wqe| wqe.wr_id), Some(1));
    assert!(ring.get(0).is_none());
    assert_eq!(ring.get(1).map(|wqe| wqe.inline), Some(&b"inline"[..]));
    assert_eq!(ring.get(2).map(|wqe| (wqe.sgl.len(), wqe.inline.len())), Some((0, 0)));
    assert!(ring.get(3).is_none() && ring.get(u64::MAX).is_none());
}

#[test]
fn an_inline_send_of_no_bytes_is_one() {
    let mut ring = WqeRing::new(1, 0, 0);
    let list = [sge(1)];
    let wr = SendWr { flags: SendFlags::INLINE, ..send(1, &list, &[]) };
    assert!(ring.push(&wr, wr.flags, 0));
    assert_eq!(ring.get(0).map(|wqe| (wqe.sgl.len(), wqe.inline.len())), Some((0, 0)));
}

#[test]
fn a_ring_of_no_entries_is_full_and_empty() {
    let mut ring = WqeRing::new(0, 1, 0);
    assert!(!push(&mut ring, &send(1, &[], &[])));
    assert!(ring.is_empty() && ring.pop().is_none());
    ring.clear();
    assert_eq!((ring.head(), ring.tail()), (0, 0));
}

#[test]
fn numbers_go_on_when_everything_is_forgotten() {
    let mut ring = WqeRing::new(2, 1, 0);
    push(&mut ring, &send(1, &[], &[]));
    push(&mut ring, &send(2, &[], &[]));
    ring.clear();
    assert_eq!((ring.len(), ring.head(), ring.tail()), (0, 2, 2));
    assert!(ring.get(0).is_none() && ring.get(1).is_none());
    push(&mut ring, &send(3, &[sge(5)], &[]));
    assert_eq!(ring.get(2).map(|wqe| (wqe.wqe.wr_id, wqe.sgl)), Some((3, &[sge(5)][..])));
}

#[test]
fn what_does_not_fit_stays_in_the_other_ring() {
    let (mut from, mut into) = (WqeRing::new(4, 1, 4), WqeRing::new(3, 1, 4));
    push(&mut into, &send(0, &[], &[]));
    for wr_id in 1..5 {
        push(&mut from, &send(wr_id, &[], &[b'a'; 3]));
    }
    assert_eq!(into.take_from(&mut from), 2);
    assert_eq!((into.len(), from.len()), (3, 2));
    into.pop();
    assert_eq!(into.take_from(&mut from), 1);
    let ids: Vec<_> = std::iter::from_fn(|| into.pop()).map(|wqe| wqe.wr_id).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(into.take_from(&mut from), 1);
    assert_eq!(into.take_from(&mut from), 0);
}

#[test]
fn memory_is_set_aside_when_the_ring_is_made() {
    let mut ring = WqeRing::new(5, 3, 10);
    let before = ring.memory_bytes();
    // Eight slots.
    assert!(before >= 8 * (size_of::<Wqe>() + 3 * size_of::<Sge>() + 10));
    for wr_id in 0..50 {
        assert!(push(&mut ring, &send(wr_id, &[sge(1), sge(2), sge(3)], &[])));
        ring.pop();
    }
    assert_eq!(ring.memory_bytes(), before);
}

#[derive(Clone, Debug)]
enum Op {
    Push { sges: usize, inline: usize },
    Pop,
    Take,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4usize, 0..9usize).prop_map(|(sges, inline)| Op::Push { sges, inline }),
        3 => Just(Op::Pop),
        3 => Just(Op::Take),
        1 => Just(Op::Clear),
    ]
}

/// An element as a naive queue keeps it.
type Naive = (u64, Vec<Sge>, Vec<u8>);

fn check(ring: &WqeRing, naive: &VecDeque<Naive>) -> Result<(), TestCaseError> {
    prop_assert_eq!(ring.len() as usize, naive.len());
    prop_assert_eq!(ring.tail() - ring.head(), naive.len() as u64);
    for (number, (wr_id, sgl, inline)) in (ring.head()..).zip(naive) {
        let Some(wqe) = ring.get(number) else { return Err(TestCaseError::fail("gone")) };
        prop_assert_eq!(wqe.wqe.wr_id, *wr_id);
        prop_assert_eq!(wqe.sgl, &sgl[..]);
        prop_assert_eq!(wqe.inline, &inline[..]);
    }
    prop_assert!(ring.get(ring.tail()).is_none());
    prop_assert!(ring.head() == 0 || ring.get(ring.head() - 1).is_none());
    Ok(())
}

proptest! {
    #[test]
    fn two_rings_do_what_two_naive_queues_do(
        (posted, taken) in (1..9u32, 1..9u32),
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let (mut from, mut into) = (WqeRing::new(posted, 3, 8), WqeRing::new(taken, 3, 8));
        let (mut naive_from, mut naive_into) = (VecDeque::<Naive>::new(), VecDeque::<Naive>::new());
        for (wr_id, op) in (0..).zip(ops) {
            match op {
                Op::Push { sges, inline } => {
                    let sgl: Vec<_> = (0..sges as u64).map(|n| sge(wr_id + n)).collect();
                    let inline: Vec<_> = (0u8..).take(inline).collect();
                    let is_pushed = push(&mut from, &send(wr_id, &sgl, &inline));
                    prop_assert_eq!(is_pushed, naive_from.len() < posted as usize);
                    if is_pushed {
                        let sgl = if inline.is_empty() { sgl } else { Vec::new() };
                        naive_from.push_back((wr_id, sgl, inline));
                    }
                }
                Op::Pop => {
                    let popped = into.pop().map(|wqe| wqe.wr_id);
                    prop_assert_eq!(popped, naive_into.pop_front().map(|(wr_id, ..)| wr_id));
                }
                Op::Take => {
                    let moved = into.take_from(&mut from) as usize;
                    prop_assert_eq!(moved, naive_from.len().min(taken as usize - naive_into.len()));
                    naive_into.extend(naive_from.drain(..moved));
                }
                Op::Clear => {
                    into.clear();
                    naive_into.clear();
                }
            }
            check(&from, &naive_from)?;
            check(&into, &naive_into)?;
        }
    }
}
