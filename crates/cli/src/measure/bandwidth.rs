//! Large messages by RDMA, as many under way as keep the other side busy.

use std::time::Duration;

use userdma::{MrSlice, Qp, Rts, SendFlags};
use userdma_link::clock;

use super::Outcome;
use super::rig::{LARGE, LARGE_LEN, NO_WC, Rig, check_wc, is_receive};
use crate::failure::Failure;

/// WRITEs.
pub(super) fn write(rig: &Rig, slice_ns: u64) -> Result<Outcome, Failure> {
    let target = rig.remote.slice(LARGE as u64, LARGE_LEN as u64);
    stream(rig, slice_ns, |qp, memory, _| qp.post_write(0, memory, target, SendFlags::SIGNALED))
}

/// READs.
pub(super) fn read(rig: &Rig, slice_ns: u64) -> Result<Outcome, Failure> {
    let source = rig.remote.slice(LARGE as u64, LARGE_LEN as u64);
    stream(rig, slice_ns, |qp, memory, _| qp.post_read(0, memory, source, SendFlags::SIGNALED))
}

/// SENDs; the last one has immediate data.
pub(super) fn send(rig: &Rig, slice_ns: u64) -> Result<Outcome, Failure> {
    stream(rig, slice_ns, |qp, memory, is_last| {
        if is_last {
            qp.post_send_with_imm(0, memory, 1, SendFlags::SIGNALED)
        } else {
            qp.post_send(0, memory, SendFlags::SIGNALED)
        }
    })
}

/// Receives until immediate data comes.
pub(super) fn receive(rig: &Rig) -> Result<(), Failure> {
    let memory = rig.mr.slice(LARGE..LARGE + LARGE_LEN);
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

/// Keeps [`DEPTH`] operations under way for the slice, one after it, and waits for all.
fn stream(
    rig: &Rig,
    slice_ns: u64,
    post: impl Fn(&Qp<Rts>, &MrSlice, bool) -> Result<(), userdma::Error>,
) -> Result<Outcome, Failure> {
    let memory = rig.mr.slice(LARGE..LARGE + LARGE_LEN);
    let lane = &rig.large;
    let mut wcs = [NO_WC; DEPTH];
    let (mut posted, mut done, mut is_over) = (0, 0, false);
    let start = clock::now();
    while !is_over || done < posted {
        while !is_over && posted - done < DEPTH {
            is_over = clock::now().since(start).as_nanos() >= slice_ns.into();
            post(&lane.qp, &memory, is_over)?;
            posted += 1;
        }
        let count = lane.cq.wait(&mut wcs, Some(TIMEOUT))?;
        if count == 0 {
            return Err(Failure::new("no completion within 5 s"));
        }
        wcs[..count].iter().try_for_each(check_wc)?;
        done += count;
    }
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    Ok(Outcome { half_trip_us: None, bytes: (done * LARGE_LEN) as u64, messages: done as u64, ns })
}

/// Operations under way.
const DEPTH: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(5);
