//! Messages of several pieces: of memory, and of packets.

use userdma::SendFlags;

use super::{Demo, Screen};
use crate::failure::Failure;
use crate::pair::pattern::Part;
use crate::pair::protocol::Request;

pub(super) fn scatter_gather(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    let gather = parts(&[(8000, 100), (0, 7), (1000, 5000)]);
    let scatter = parts(&[(20_000, 3000), (40_001, 1), (30_000, 2106)]);
    demo.a.fill(&gather)?;
    demo.b.order(&Request::Fill(Vec::new()))?;
    demo.b.order(&Request::PostRecv { wr_id: 11, list: places(&scatter) })?;
    screen.line(&format!("B  post_recv  wr_id 11  scatter into {}", list(&scatter)));
    screen.line(&format!("A  post_send  wr_id 12  SEND gathered from {}", list(&gather)));
    demo.operate(screen, |demo| {
        let slices: Vec<_> =
            gather.iter().map(|part| demo.a.mr.slice(part.offset..part.offset + part.len)).collect();
        Ok(demo.a.qp()?.post_send(12, &slices, SendFlags::SIGNALED)?)
    })?;
    demo.completion_b(screen)?;
    demo.judge_b(
        "scatter-gather",
        &scatter,
        "5107 bytes, each in its place, nothing between them touched",
        screen,
    )
}

pub(super) fn large(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    let whole = Part { offset: 0, len: LARGE, seed: 0x1a46e, skip: 0 };
    demo.a.fill(&[whole])?;
    demo.b.order(&Request::Fill(Vec::new()))?;
    screen.line("A  post_send  wr_id 13  RDMA WRITE of 1 MiB");
    let recording = demo.operate(screen, |demo| {
        let memory = demo.a.mr.slice(..LARGE);
        let remote = demo.remote().slice(0, LARGE as u64);
        Ok(demo.a.qp()?.post_write(13, &memory, remote, SendFlags::SIGNALED)?)
    })?;
    let path_mtu = demo.a.qp()?.query()?.path_mtu.bytes() as usize;
    let needed = LARGE / path_mtu;
    let again = recording.sent.saturating_sub(needed);
    let mut line = format!("{} packets from A (1 MiB / {path_mtu} bytes = {needed})", recording.sent);
    if again > 0 {
        line += &format!(", {again} of them sent again");
    }
    screen.line(&format!("{line}; {} acknowledgements from B", recording.received));
    if recording.sent < needed {
        screen.wrong(&format!("fewer packets than the {needed} that 1 MiB needs"));
    }
    demo.judge_b("1-mib", &[whole], "B's memory has the 1048576 bytes, and nothing else was touched", screen)
}

/// Parts that follow one another in the message.
fn parts(places: &[(usize, usize)]) -> Vec<Part> {
    let mut skip = 0;
    let part = |&(offset, len): &(usize, usize)| {
        let part = Part { offset, len, seed: 0x5ca7, skip };
        skip += len;
        part
    };
    places.iter().map(part).collect()
}

fn places(parts: &[Part]) -> Vec<(usize, usize)> {
    parts.iter().map(|part| (part.offset, part.len)).collect()
}

fn list(parts: &[Part]) -> String {
    let one = |part: &Part| format!("{} at {}", part.len, part.offset);
    parts.iter().map(one).collect::<Vec<_>>().join(", ")
}

const LARGE: usize = 1 << 20;
