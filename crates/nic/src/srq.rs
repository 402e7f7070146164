//! Shared receive queues of the device: made, changed, asked and ended.

use std::collections::HashMap;
use std::sync::Arc;

use userdma_objects::{PdId, Srq};
use userdma_verbs::{
    CreateSrqError, DeviceAttr, ModifySrqError, ObjectError, SrqAttr, SrqAttrMask, SrqInitAttr, Srqn,
};

use crate::Shard;

/// The shared receive queues that exist.
///
/// Numbers start at 1 and are used again only after all 2^24, so that an event which nobody has read names no other queue.
#[derive(Debug, Default)]
pub(crate) struct SrqTable {
    entries: HashMap<Srqn, SrqEntry>,
    last: Srqn,
}

#[derive(Debug)]
struct SrqEntry {
    srq: Arc<Srq>,
    /// Queue pairs that take receives from it.
    users: u32,
}

impl SrqTable {
    /// A number that no queue has.
    fn next_number(&mut self) -> Srqn {
        loop {
            self.last = Srqn::new(self.last.get() + 1);
            if self.last != Srqn::default() && !self.entries.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    pub(crate) fn get(&self, srqn: Srqn) -> Option<&Arc<Srq>> {
        self.entries.get(&srqn).map(|entry| &entry.srq)
    }

    /// Counts a queue pair that takes receives from the queue.
    pub(crate) fn add_user(&mut self, srqn: Srqn) {
        self.count_users(srqn, 1);
    }

    /// Takes a queue pair off the count.
    pub(crate) fn remove_user(&mut self, srqn: Srqn) {
        self.count_users(srqn, -1);
    }

    fn count_users(&mut self, srqn: Srqn, change: i32) {
        let entry = self.entries.get_mut(&srqn);
        debug_assert!(entry.is_some(), "{srqn:?} ended while it was used");
        if let Some(entry) = entry {
            entry.users = entry.users.saturating_add_signed(change);
        }
    }
}

impl Shard {
    /// Makes a shared receive queue whose receives name memory of `pd`.
    ///
    /// # Errors
    /// `Size` names a size that is not possible; `TooMany`, `NoPd`. Nothing was made.
    pub fn create_srq(&mut self, pd: PdId, init: &SrqInitAttr) -> Result<Arc<Srq>, CreateSrqError> {
        check_size("max_wr", init.max_wr, 1, LIMITS.max_srq_wr)?;
        check_size("max_sge", init.max_sge, 0, LIMITS.max_srq_sge)?;
        if self.srqs.entries.len() >= LIMITS.max_srq as usize {
            return Err(CreateSrqError::TooMany { max: LIMITS.max_srq });
        }
        self.pds.acquire(pd).map_err(|_| CreateSrqError::NoPd)?;
        let srqn = self.srqs.next_number();
        let srq = Arc::new(Srq::new(srqn, pd, init));
        self.srqs.entries.insert(srqn, SrqEntry { srq: Arc::clone(&srq), users: 0 });
        Ok(srq)
    }

    /// Sets the size or the limit of a shared receive queue, or both. What is posted stays. Either all of it happens or
    /// nothing.
    ///
    /// # Errors
    /// `Value` says which field is wrong, and what is possible; `NoSrq`.
    pub fn modify_srq(&self, srqn: Srqn, attr: &SrqAttr, mask: SrqAttrMask) -> Result<(), ModifySrqError> {
        let srq = self.srqs.get(srqn).ok_or(ModifySrqError::NoSrq)?;
        srq.modify(attr, mask, LIMITS.max_srq_wr)
    }

    /// The attributes of a shared receive queue.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn query_srq(&self, srqn: Srqn) -> Result<SrqAttr, ObjectError> {
        self.srqs.get(srqn).map(|srq| srq.attr()).ok_or(NO_SRQ)
    }

    /// Ends a shared receive queue. What is posted is forgotten without completions.
    ///
    /// # Errors
    /// `Busy` while queue pairs use it; `NoObject`.
    pub fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), ObjectError> {
        let users = self.srqs.entries.get(&srqn).ok_or(NO_SRQ)?.users;
        if users > 0 {
            return Err(ObjectError::Busy { object: "shared receive queue", users });
        }
        if let Some(entry) = self.srqs.entries.remove(&srqn) {
            self.pds.release(entry.srq.pd());
        }
        self.forget_srq(srqn);
        Ok(())
    }
}

fn check_size(field: &'static str, value: u32, min: u32, max: u32) -> Result<(), CreateSrqError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(CreateSrqError::Size { field, value, min, max }) }
}

const LIMITS: DeviceAttr = DeviceAttr::LIMITS;
const NO_SRQ: ObjectError = ObjectError::NoObject("shared receive queue");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_past_zero_and_past_those_in_use() {
        let mut shard = Shard::new(crate::ShardConfig::default());
        let pd = shard.alloc_pd().unwrap();
        let init = SrqInitAttr { max_wr: 1, max_sge: 1 };
        let first = shard.create_srq(pd, &init).unwrap().srqn();
        shard.srqs.last = Srqn::new(0xff_ffff);
        let second = shard.create_srq(pd, &init).unwrap().srqn();
        assert_eq!((first, second), (Srqn::new(1), Srqn::new(2)));
    }
}
