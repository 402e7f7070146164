//! Small messages by RDMA, as many as possible.

use userdma::{Inline, SendFlags};
use userdma_link::clock;

use super::Outcome;
use super::pingpong::Patience;
use super::rig::{NO_WC, RATE_TARGET, Rig, check_wc};
use crate::failure::Failure;
use crate::pair::pattern::{self, Difference};

/// WRITEs of 8 bytes, [`BATCH`] to a completion, up to [`BATCHES`] such groups under way. If `is_batched` the WRITEs of a
/// group start together, else one by one.
pub(super) fn write(rig: &Rig, slice_ns: u64, is_batched: bool) -> Result<Outcome, Failure> {
    let lane = &rig.small;
    let mut wcs = [NO_WC; 8];
    let (mut posted, mut done) = (0_u64, 0);
    let mut patience = Patience::default();
    let start = clock::now();
    let mut is_over = false;
    while !is_over || done < posted {
        if !is_over && posted - done < BATCHES {
            is_over = clock::now().since(start).as_nanos() >= slice_ns.into();
            let batch = is_batched.then(|| lane.qp.batch());
            for index in 0..BATCH {
                let flags = if index == BATCH - 1 { SendFlags::SIGNALED } else { SendFlags::empty() };
                let target = rig.remote.slice(RATE_TARGET as u64 + 8 * index, 8);
                lane.qp.post_write(index, Inline(&(posted + 1).to_ne_bytes()), target, flags)?;
            }
            drop(batch);
            posted += 1;
        }
        let count = lane.cq.poll(&mut wcs)?;
        wcs[..count].iter().try_for_each(check_wc)?;
        // What a measurement before has left to be acknowledged may complete only now.
        done += wcs[..count].iter().filter(|wc| wc.wr_id == BATCH - 1).count() as u64;
        if count == 0 {
            patience.turn()?;
        } else {
            patience = Patience::default();
        }
    }
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    let messages = done * BATCH;
    Ok(Outcome { half_trip_us: None, bytes: 8 * messages, messages, ns })
}

/// On the side that was written to: the words of the last batch are equal, since each batch writes its number.
pub(super) fn check(rig: &Rig) -> Result<Option<Difference>, Failure> {
    let found = rig.mr.to_vec(RATE_TARGET..RATE_TARGET + RATE_LEN)?;
    let last = rig.mr.load(RATE_TARGET)?;
    if last == 0 {
        return Err(Failure::new("no WRITE has arrived"));
    }
    // Each batch has 64 words of 8 bytes: as many as the region.
    let expected = last.to_ne_bytes().repeat(RATE_LEN / 8);
    Ok(pattern::difference(&expected, &found))
}

/// Bytes that a batch writes.
const RATE_LEN: usize = super::BATCH * 8;
const BATCH: u64 = super::BATCH as u64;
const BATCHES: u64 = 4;
