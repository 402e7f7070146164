//! Large messages by RDMA, as many under way as keep the other side busy.

use std::time::Duration;

use userdma::{Cq, MrSlice, Qp, Rts, SendFlags};
use userdma_link::clock;

use super::Outcome;
use super::pingpong::Patience;
use super::rig::{LARGE, MAX_LEN, NO_WC, Rig, check_wc, is_receive};
use crate::failure::Failure;

/// How the side that posts learns that something is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Learn {
    /// It sleeps for completions.
    Sleeping,
    /// It polls.
    Polling,
}

/// WRITEs of `len` bytes.
pub(super) fn write(rig: &Rig, slice_ns: u64, len: usize, learn: Learn) -> Result<Outcome, Failure> {
    let target = rig.remote.slice(LARGE as u64, len as u64);
    stream(rig, slice_ns, len, learn, |qp, memory, _, is_signaled| {
        qp.post_write(ID, memory, target, flags(is_signaled))
    })
}

/// READs of `len` bytes.
pub(super) fn read(rig: &Rig, slice_ns: u64, len: usize) -> Result<Outcome, Failure> {
    let source = rig.remote.slice(LARGE as u64, len as u64);
    stream(rig, slice_ns, len, Learn::Sleeping, |qp, memory, _, is_signaled| {
        qp.post_read(ID, memory, source, flags(is_signaled))
    })
}

/// SENDs of `len` bytes; the last one has immediate data.
pub(super) fn send(rig: &Rig, slice_ns: u64, len: usize) -> Result<Outcome, Failure> {
    stream(rig, slice_ns, len, Learn::Sleeping, |qp, memory, is_last, is_signaled| {
        if is_last {
            qp.post_send_with_imm(ID, memory, 1, flags(is_signaled))
        } else {
            qp.post_send(ID, memory, flags(is_signaled))
        }
    })
}

fn flags(is_signaled: bool) -> SendFlags {
    if is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() }
}

/// Receives until immediate data comes.
pub(super) fn receive(rig: &Rig) -> Result<(), Failure> {
    let memory = rig.mr.slice(LARGE..LARGE + MAX_LEN);
    let mut wcs = [NO_WC; 16];
    loop {
        let count = rig.large.cq.wait(&mut wcs, Some(TIMEOUT))?;
        if count == 0 {
            return Err(Failure::new("no message within 5 s"));
        }
        for wc in &wcs[..count] {
            check_wc(wc)?;
            if is_receive(wc) {
                rig.large.qp.post_recv(0, &memory)?;
                if wc.imm().is_some() {
                    return Ok(());
                }
            }
        }
    }
}

/// Keeps [`DEPTH`] groups of operations under way for the slice, one after it, and waits for all. Small operations go in
/// groups that start together and end in one completion; larger ones are groups of one.
fn stream(
    rig: &Rig,
    slice_ns: u64,
    len: usize,
    learn: Learn,
    post: impl Fn(&Qp<Rts>, &MrSlice, bool, bool) -> Result<(), userdma::Error>,
) -> Result<Outcome, Failure> {
    let memory = rig.mr.slice(LARGE..LARGE + len);
    let lane = &rig.large;
    let group = (GROUP_BYTES / len).clamp(1, MAX_GROUP);
    let (mut posted, mut done, mut is_over) = (0, 0, false);
    let start = clock::now();
    while !is_over || done < posted {
        while !is_over && posted - done < DEPTH {
            is_over = clock::now().since(start).as_nanos() >= slice_ns.into();
            let batch = (group > 1).then(|| lane.qp.batch());
            for left in (0..group).rev() {
                post(&lane.qp, &memory, is_over && left == 0, left == 0)?;
            }
            drop(batch);
            posted += 1;
        }
        done += completions(&lane.cq, learn)?;
    }
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    let messages = (done * group) as u64;
    Ok(Outcome { half_trip_us: None, bytes: messages * len as u64, messages, ns })
}

/// Takes completions, one at least; how many are of the stream.
fn completions(cq: &Cq, learn: Learn) -> Result<usize, Failure> {
    let mut wcs = [NO_WC; DEPTH];
    let mut patience = Patience::default();
    let count = loop {
        let count = match learn {
            Learn::Sleeping => cq.wait(&mut wcs, Some(TIMEOUT))?,
            Learn::Polling => cq.poll(&mut wcs)?,
        };
        match (count, learn) {
            (0, Learn::Sleeping) => return Err(Failure::new("no completion within 5 s")),
            (0, Learn::Polling) => patience.turn()?,
            (count, _) => break count,
        }
    };
    wcs[..count].iter().try_for_each(check_wc)?;
    // What a measurement before has left to be acknowledged may complete only now.
    Ok(wcs[..count].iter().filter(|wc| wc.wr_id == ID).count())
}

/// What a stream's operations are called; those of other measurements are 0.
const ID: u64 = 1;
/// Groups under way; as many messages fit a peer that has posted [`LARGE_RECVS`](super::rig::LARGE_RECVS) receives.
const DEPTH: usize = 16;
/// Bytes of a group of small operations, at most, and their number.
const GROUP_BYTES: usize = 64 << 10;
const MAX_GROUP: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(5);
