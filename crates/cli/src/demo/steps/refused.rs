//! What must not work: the target refuses, the memory stays as it is, the queue pair ends in the error state.

use userdma::{RKey, RemoteMr, SendFlags, WcStatus};

use super::{Demo, Screen, show_completion};
use crate::failure::Failure;
use crate::pair::pattern::Part;
use crate::pair::protocol::{Completion, Request};
use crate::pair::side;

pub(super) fn wrong_key(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    let good = demo.remote();
    // Another value of the key's low byte, which its owner chooses: the key of nothing.
    let rkey = RKey::new(good.rkey.get() ^ 0x5a);
    screen.line(&format!(
        "A  post_send  wr_id 14  RDMA WRITE of 64 bytes with rkey {rkey}; B's is {}",
        good.rkey
    ));
    refused(demo, "wrong-key", 14, RemoteMr { rkey, len: 64, ..good }, screen)
}

pub(super) fn out_of_bounds(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    screen.line("new queue pairs: the old ones are in the error state");
    demo.connect(None)?;
    let good = demo.remote();
    screen.line("A  post_send  wr_id 15  RDMA WRITE of 64 bytes, the last 4 beyond the end of B's MR");
    refused(demo, "out-of-bounds", 15, good.slice(good.len - 60, 64), screen)
}

fn refused(
    demo: &mut Demo,
    name: &str,
    wr_id: u64,
    remote: RemoteMr,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let memory = Part { offset: 100, len: 64, seed: 0xbad, skip: 0 };
    demo.a.fill(&[Part { offset: 0, ..memory }])?;
    demo.b.order(&Request::Fill(vec![memory]))?;
    demo.recorder.start(&demo.a.device)?;
    demo.a.qp()?.post_write(wr_id, &demo.a.mr.slice(..64), remote, SendFlags::SIGNALED)?;
    let wcs = demo.a.completions(1)?;
    let recording = demo.recorder.stop(&demo.a.device)?;
    demo.show_packets(&recording, screen);
    let wc = wcs.first().ok_or_else(|| Failure::new("no completion"))?;
    show_completion("A", &Completion::from(wc), screen);
    if wc.status == WcStatus::RemAccessErr {
        screen.verified("refused, and with the right status: remote access error");
    } else {
        screen.wrong(&format!("the status is \"{}\", not \"remote access error\"", wc.status.as_str()));
    }
    if !recording.lines.iter().any(|line| line.contains("NAK remote access error")) {
        screen.wrong("no NAK for a remote access error was captured");
    }
    let state = side::state_name(demo.a.qp()?.state());
    if state == "ERR" {
        screen.verified("A's queue pair is in the error state (ERR), as the standard wants");
    } else {
        screen.wrong(&format!("A's queue pair is in {state}, not in ERR"));
    }
    demo.judge_b(name, &[memory], "B's memory is as it was", screen)
}
