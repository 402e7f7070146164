//! Small messages by RDMA, as many as possible.

use userdma::{Inline, SendFlags};
use userdma_link::clock;

use super::Outcome;
use super::pingpong::Patience;
use super::rig::{NO_WC, RATE_TARGET, Rig, check_wc};
use crate::failure::Failure;

/// WRITEs of 8 bytes, [`BATCH`] posted at a time, the last of each signaled, up to [`BATCHES`] under way.
pub(super) fn write(rig: &Rig, slice_ns: u64) -> Result<Outcome, Failure> {
    let lane = &rig.small;
    let mut wcs = [NO_WC; 8];
    let (mut posted, mut done) = (0, 0);
    let mut patience = Patience::default();
    let start = clock::now();
    let mut is_over = false;
    while !is_over || done < posted {
        if !is_over && posted - done < BATCHES {
            is_over = clock::now().since(start).as_nanos() >= slice_ns.into();
            let batch = lane.qp.batch();
            for index in 0..BATCH {
                let flags = if index == BATCH - 1 { SendFlags::SIGNALED } else { SendFlags::empty() };
                let target = rig.remote.slice(RATE_TARGET as u64 + 8 * index, 8);
                lane.qp.post_write(index, Inline(&posted.to_ne_bytes()), target, flags)?;
            }
            drop(batch);
            posted += 1;
        }
        let count = lane.cq.poll(&mut wcs)?;
        wcs[..count].iter().try_for_each(check_wc)?;
        done += count as u64;
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

const BATCH: u64 = 64;
const BATCHES: u64 = 4;
