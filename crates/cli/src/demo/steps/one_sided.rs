//! WRITE and READ: B's program sleeps while its memory is written and read.

use userdma::SendFlags;

use super::{Demo, Screen};
use crate::failure::Failure;
use crate::pair::pattern::Part;
use crate::pair::protocol::Request;

pub(super) fn write(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    let source = Part { offset: 0, len: 1000, seed: 0x3417e, skip: 0 };
    let target = Part { offset: 5000, ..source };
    demo.a.fill(&[source])?;
    demo.b.order(&Request::Fill(Vec::new()))?;
    screen.line("B's program sleeps in read(2); its device places the bytes");
    screen.line("A  post_send  wr_id 3   RDMA WRITE of 1000 bytes to offset 5000 of B's MR");
    demo.operate(screen, |demo| {
        let remote = demo.remote().slice(5000, 1000);
        Ok(demo.a.qp()?.post_write(3, &demo.a.mr.slice(..1000), remote, SendFlags::SIGNALED)?)
    })?;
    demo.judge_b("write", &[target], "B's memory has the 1000 bytes, and nothing else was touched", screen)
}

pub(super) fn write_imm(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    let source = Part { offset: 0, len: 100, seed: 0x1a44, skip: 0 };
    let target = Part { offset: 7000, ..source };
    demo.a.fill(&[source])?;
    demo.b.order(&Request::Fill(Vec::new()))?;
    demo.b.order(&Request::PostRecv { wr_id: 4, list: Vec::new() })?;
    screen.line("B  post_recv  wr_id 4   no memory: it only takes the immediate data");
    screen.line(&format!("A  post_send  wr_id 5   RDMA WRITE with immediate {IMM:#010x}, 100 bytes"));
    demo.operate(screen, |demo| {
        let remote = demo.remote().slice(7000, 100);
        let memory = demo.a.mr.slice(..100);
        Ok(demo.a.qp()?.post_write_with_imm(5, &memory, remote, IMM, SendFlags::SIGNALED)?)
    })?;
    let completion = demo.completion_b(screen)?;
    if completion.imm == Some(IMM) && completion.byte_len == 100 {
        screen.verified("B was told: the immediate data and the length are right");
    } else {
        screen.wrong(&format!("B was told {:?} and {} bytes", completion.imm, completion.byte_len));
    }
    demo.judge_b("write-imm", &[target], "B's memory has the 100 bytes, and nothing else was touched", screen)
}

pub(super) fn read(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    let source = Part { offset: 9000, len: 3000, seed: 0x43ad, skip: 0 };
    let target = Part { offset: 100, ..source };
    demo.a.fill(&[])?;
    demo.b.order(&Request::Fill(vec![source]))?;
    screen.line("A  post_send  wr_id 6   RDMA READ of 3000 bytes from offset 9000 of B's MR");
    demo.operate(screen, |demo| {
        let remote = demo.remote().slice(9000, 3000);
        Ok(demo.a.qp()?.post_read(6, &demo.a.mr.slice(100..3100), remote, SendFlags::SIGNALED)?)
    })?;
    demo.judge_a("read", &[target], "A has the 3000 bytes, and nothing else was touched", screen)?;
    let difference = demo.b.check(&[source], false)?;
    demo.judge(difference, "B's memory is as it was", screen);
    Ok(())
}

const IMM: u32 = 0x00c0_ffee;
