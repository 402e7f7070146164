//! Atomics: 8 bytes of B's memory are read and changed as one.

use userdma::{MrSlice, SendFlags};

use super::{Demo, Screen};
use crate::failure::Failure;
use crate::pair::protocol::Request;

pub(super) fn compare_swap(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    demo.b.order(&Request::Store(WORD, FREE))?;
    screen.line(&format!("B's word is {FREE:#x} (free); A wants it to be {MINE:#x}, if it is still free"));
    for (wr_id, was) in [(7, FREE), (8, MINE)] {
        screen.line(&format!("A  post_send  wr_id {wr_id:<3} COMPARE_SWAP: if {FREE:#x} then {MINE:#x}"));
        let original = demo.atomic(screen, |demo, result| {
            let remote = demo.remote().slice(WORD as u64, 8);
            Ok(demo.a.qp()?.post_compare_swap(wr_id, result, remote, FREE, MINE, SendFlags::SIGNALED)?)
        })?;
        let is: u64 = demo.b.ask(&Request::Load(WORD))?;
        let outcome = if was == FREE { "taken" } else { "refused: taken before" };
        judge(original, was, is, MINE, outcome, screen);
    }
    Ok(())
}

pub(super) fn fetch_add(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    demo.b.order(&Request::Store(WORD, 1000))?;
    screen.line("B's word is 1000");
    for (wr_id, was) in [(9, 1000), (10, 1005)] {
        screen.line(&format!("A  post_send  wr_id {wr_id:<3} FETCH_ADD of 5"));
        let original = demo.atomic(screen, |demo, result| {
            let remote = demo.remote().slice(WORD as u64, 8);
            Ok(demo.a.qp()?.post_fetch_add(wr_id, result, remote, 5, SendFlags::SIGNALED)?)
        })?;
        let is: u64 = demo.b.ask(&Request::Load(WORD))?;
        judge(original, was, is, was + 5, "counted", screen);
    }
    Ok(())
}

impl Demo {
    /// Runs an atomic; the value that the word had before.
    fn atomic(
        &mut self,
        screen: &mut Screen,
        post: impl FnOnce(&Self, &MrSlice) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let result = self.a.mr.slice(..8);
        self.a.mr.store(0, u64::MAX)?;
        self.operate(screen, |demo| post(demo, &result))?;
        Ok(self.a.mr.load(0)?)
    }
}

fn judge(original: u64, was: u64, is: u64, should_be: u64, outcome: &str, screen: &mut Screen) {
    if (original, is) == (was, should_be) {
        screen.verified(&format!("{outcome}: A got {original:#x} back, B's word is {is:#x}"));
    } else {
        screen
            .wrong(&format!("A got {original:#x} (not {was:#x}), B's word is {is:#x} (not {should_be:#x})"));
    }
}

/// Where B's word lies.
const WORD: usize = 64;
const FREE: u64 = 0;
const MINE: u64 = 0xa11ce;
