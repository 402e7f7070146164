//! SEND / RECV, as textbooks show it: a receive is posted, a send is posted, packets travel, both sides complete.

use userdma::SendFlags;

use super::{Demo, Screen};
use crate::failure::Failure;
use crate::pair::pattern::Part;
use crate::pair::protocol::Request;

pub(super) fn run(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    let part = Part { offset: 0, len: LEN, seed: SEED, skip: 0 };
    demo.a.fill(&[part])?;
    demo.b.order(&Request::Fill(Vec::new()))?;
    screen.part("work requests are posted");
    let landing = Part { offset: 256, ..part };
    demo.b.order(&Request::PostRecv { wr_id: 1, list: vec![(landing.offset, landing.len)] })?;
    screen.line(&format!("B  post_recv  wr_id 1   room for {LEN} bytes at offset {}", landing.offset));
    demo.recorder.start(&demo.a.device)?;
    demo.a.qp()?.post_send(2, &demo.a.mr.slice(..LEN), SendFlags::SIGNALED)?;
    screen.line(&format!("A  post_send  wr_id 2   SEND of {LEN} bytes from offset 0"));
    let wcs = demo.a.completions(1)?;
    let recording = demo.recorder.stop(&demo.a.device)?;
    demo.show_packets(&recording, screen);
    screen.part("completions (CQE) on both sides");
    demo.completion_b(screen)?;
    demo.accept_completion(wcs.first(), screen)?;
    demo.judge_b("send", &[landing], &format!("B has the {LEN} bytes, and nothing else was touched"), screen)
}

const LEN: usize = 64;
const SEED: u64 = 0x5e4d;
