//! The steps, in their order.

mod atomics;
mod connect;
mod one_sided;
mod refused;
mod send;
mod vectors;

use userdma::{Wc, WcStatus};

use super::Demo;
use super::recorder::Recording;
use super::screen::Screen;
use crate::failure::Failure;
use crate::pair::pattern::{Difference, Part};
use crate::pair::protocol::{Completion, Request};

/// A step of the demo.
pub(super) struct Step {
    /// How it is called in messages.
    pub(super) name: &'static str,
    /// What stands above it.
    pub(super) title: &'static str,
    /// What a newcomer should know.
    pub(super) about: &'static [&'static str],
    /// Whether it compares memory, so that a fault planted there is noticed.
    pub(super) has_check: bool,
    /// What it does.
    pub(super) run: fn(&mut Demo, &mut Screen) -> Result<(), Failure>,
}

/// All steps.
pub(super) const ALL: &[Step] = &[
    Step {
        name: "connect",
        title: "1  Memory is registered, queue pairs are connected",
        about: &[
            "RDMA reaches only memory that its owner has registered; a key (rkey) gives access to it.",
            "A queue pair (QP) is one end of a connection: work is posted to it, completions report it.",
        ],
        has_check: false,
        run: connect::run,
    },
    Step {
        name: "send",
        title: "2  SEND / RECV: both programs take part",
        about: &["B says where a message may land, A says what to send; the two devices do the rest."],
        has_check: true,
        run: send::run,
    },
    Step {
        name: "write",
        title: "3  RDMA WRITE: B's program takes no part",
        about: &["A puts bytes into B's memory, by address and key. B's program is not asked and not told."],
        has_check: true,
        run: one_sided::write,
    },
    Step {
        name: "write-imm",
        title: "4  RDMA WRITE with immediate: B is told",
        about: &["The same, but 32 bits of immediate data use up a receive of B's and so complete there."],
        has_check: true,
        run: one_sided::write_imm,
    },
    Step {
        name: "read",
        title: "5  RDMA READ: A fetches, B's program takes no part",
        about: &["A fetches bytes of B's memory. The data comes back in the answer."],
        has_check: true,
        run: one_sided::read,
    },
    Step {
        name: "compare-swap",
        title: "6  COMPARE_SWAP: a lock is taken, once",
        about: &["Eight bytes of B's memory are compared and replaced as one; what they were comes back."],
        has_check: false,
        run: atomics::compare_swap,
    },
    Step {
        name: "fetch-add",
        title: "7  FETCH_ADD: a counter is counted up",
        about: &["Eight bytes of B's memory are counted up as one; what they were comes back."],
        has_check: false,
        run: atomics::fetch_add,
    },
    Step {
        name: "scatter-gather",
        title: "8  Scatter/gather: lists on both sides",
        about: &["A message may be gathered from several places and scattered to several others."],
        has_check: true,
        run: vectors::scatter_gather,
    },
    Step {
        name: "1-mib",
        title: "9  1 MiB: one message, many packets",
        about: &["A message of up to 2 GiB is cut at the path MTU; a lost packet would be sent again."],
        has_check: true,
        run: vectors::large,
    },
    Step {
        name: "wrong-key",
        title: "10 Access refused: a WRITE with a wrong key",
        about: &["B's device refuses with a NAK. The connection is broken then, on purpose: A has a bug."],
        has_check: true,
        run: refused::wrong_key,
    },
    Step {
        name: "out-of-bounds",
        title: "11 Access refused: a WRITE beyond the memory's end",
        about: &["The key is right, but the last bytes lie outside: nothing of it is written."],
        has_check: true,
        run: refused::out_of_bounds,
    },
];

impl Demo {
    /// Shows the packets of a step, the middle of many left out, and judges them.
    fn show_packets(&self, recording: &Recording, screen: &mut Screen) {
        const HEAD: usize = 4;
        const TAIL: usize = 2;
        screen.part("packets on the wire");
        let lines = &recording.lines;
        if lines.len() <= HEAD + TAIL + 1 {
            lines.iter().for_each(|line| screen.packet(line));
        } else {
            lines[..HEAD].iter().for_each(|line| screen.packet(line));
            screen.packet(&format!("… {} more …", lines.len() - HEAD - TAIL));
            lines[lines.len() - TAIL..].iter().for_each(|line| screen.packet(line));
        }
        if lines.is_empty() {
            screen.wrong("no packet was captured");
        } else if !recording.is_sound {
            screen.wrong("a packet is malformed or has a wrong ICRC");
        }
    }

    /// Says whether what was compared is right.
    fn judge(&self, difference: Option<Difference>, right: &str, screen: &mut Screen) {
        match difference {
            None => screen.verified(right),
            Some(difference) => screen.wrong(&difference.to_string()),
        }
    }

    /// Has B's region compared with `parts`, zero elsewhere.
    fn judge_b(
        &mut self,
        name: &str,
        parts: &[Part],
        right: &str,
        screen: &mut Screen,
    ) -> Result<(), Failure> {
        let difference = self.b.check(parts, self.plants(name))?;
        self.judge(difference, right, screen);
        Ok(())
    }

    /// Compares A's region with `parts`, zero elsewhere.
    fn judge_a(&self, name: &str, parts: &[Part], right: &str, screen: &mut Screen) -> Result<(), Failure> {
        let difference = self.a.check(parts, self.plants(name))?;
        self.judge(difference, right, screen);
        Ok(())
    }

    /// Shows A's completion, and refuses it if it is none of success.
    fn accept_completion(&self, wc: Option<&Wc>, screen: &mut Screen) -> Result<(), Failure> {
        let wc = wc.ok_or_else(|| Failure::new("no completion"))?;
        show_completion("A", &Completion::from(wc), screen);
        if wc.status == WcStatus::Success {
            Ok(())
        } else {
            Err(Failure::new(format!("A's work request ended with: {}", wc.status.as_str())))
        }
    }

    /// Runs one operation of A's with its packets captured: they and the completion are shown.
    fn operate(
        &mut self,
        screen: &mut Screen,
        post: impl FnOnce(&Self) -> Result<(), Failure>,
    ) -> Result<Recording, Failure> {
        self.recorder.start(&self.a.device)?;
        post(self)?;
        let wcs = self.a.completions(1)?;
        let recording = self.recorder.stop(&self.a.device)?;
        self.show_packets(&recording, screen);
        self.accept_completion(wcs.first(), screen)?;
        Ok(recording)
    }

    /// Waits for B's next completion, shows it, and refuses it if it is none of success.
    fn completion_b(&mut self, screen: &mut Screen) -> Result<Completion, Failure> {
        let found = self
            .b
            .ask::<Vec<Completion>>(&Request::Completions(1))?
            .into_iter()
            .next()
            .ok_or_else(|| Failure::new("no completion"))?;
        show_completion("B", &found, screen);
        if found.is_success {
            Ok(found)
        } else {
            Err(Failure::new(format!("B's work request ended with: {}", found.status)))
        }
    }
}

fn show_completion(who: &str, completion: &Completion, screen: &mut Screen) {
    let mut line =
        format!("{who}  CQE  wr_id {:<3} {:<18} {}", completion.wr_id, completion.opcode, completion.status);
    if completion.is_success && completion.opcode.starts_with("RECV") {
        line += &format!("  {} bytes", completion.byte_len);
    }
    if let Some(imm) = completion.imm {
        line += &format!("  imm {imm:#010x}");
    }
    screen.line(&line);
}
