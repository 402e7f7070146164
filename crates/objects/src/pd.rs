//! Protection domains: numbers that tie queue pairs to the memory they may touch.

use std::collections::HashMap;

use userdma_verbs::{DeviceAttr, ObjectError};

/// A protection domain of a device.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct PdId(pub u32);

/// The protection domains that exist, and how many objects use each.
///
/// Numbers start at 1 and are used again only after all 2^32, so that one kept too long names nothing.
#[derive(Debug, Default)]
pub struct PdTable {
    users: HashMap<PdId, u32>,
    last: u32,
}

impl PdTable {
    /// A new domain, or `None` if there are too many.
    pub fn alloc(&mut self) -> Option<PdId> {
        if self.users.len() >= DeviceAttr::LIMITS.max_pd as usize {
            return None;
        }
        loop {
            self.last = self.last.wrapping_add(1);
            let pd = PdId(self.last);
            if pd != PdId::default() && !self.users.contains_key(&pd) {
                self.users.insert(pd, 0);
                return Some(pd);
            }
        }
    }

    /// Ends a domain that nothing uses.
    ///
    /// # Errors
    /// `Busy` with the number of users, `NoObject` if there is no such domain; nothing has changed.
    pub fn dealloc(&mut self, pd: PdId) -> Result<(), ObjectError> {
        match self.users.get(&pd) {
            None => Err(NO_PD),
            Some(0) => {
                self.users.remove(&pd);
                Ok(())
            }
            Some(&users) => Err(ObjectError::Busy { object: "protection domain", users }),
        }
    }

    /// Whether it exists.
    pub fn contains(&self, pd: PdId) -> bool {
        self.users.contains_key(&pd)
    }

    /// Counts a user of the domain.
    ///
    /// # Errors
    /// `NoObject` if there is no such domain.
    pub fn acquire(&mut self, pd: PdId) -> Result<(), ObjectError> {
        *self.users.get_mut(&pd).ok_or(NO_PD)? += 1;
        Ok(())
    }

    /// Takes a user off the count.
    pub fn release(&mut self, pd: PdId) {
        let Some(users) = self.users.get_mut(&pd).filter(|users| **users > 0) else {
            debug_assert!(false, "{pd:?} was not acquired");
            return;
        };
        *users -= 1;
    }
}

const NO_PD: ObjectError = ObjectError::NoObject("protection domain");

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_ends_only_when_nothing_uses_it() {
        let mut pds = PdTable::default();
        let pd = pds.alloc().expect("room");
        assert!(pds.contains(pd));
        pds.acquire(pd).expect("exists");
        pds.acquire(pd).expect("exists");
        pds.release(pd);
        assert_eq!(pds.dealloc(pd), Err(ObjectError::Busy { object: "protection domain", users: 1 }));
        pds.release(pd);
        assert_eq!(pds.dealloc(pd), Ok(()));
        assert!(!pds.contains(pd));
        assert_eq!(pds.dealloc(pd), Err(NO_PD));
        assert_eq!(pds.acquire(pd), Err(NO_PD));
    }

    #[test]
    fn the_number_of_a_domain_that_ended_is_not_used_again() {
        let mut pds = PdTable::default();
        let old = pds.alloc().expect("room");
        pds.dealloc(old).expect("unused");
        let new = pds.alloc().expect("room");
        assert_ne!(old, new);
        assert!(!pds.contains(old) && !pds.contains(PdId::default()));
    }

    #[test]
    fn numbers_wrap_past_zero_and_past_those_in_use() {
        let mut pds = PdTable::default();
        let first = pds.alloc().expect("room");
        pds.last = u32::MAX;
        assert_eq!(pds.alloc(), Some(PdId(first.0 + 1)));
    }

    #[test]
    fn there_are_no_more_domains_than_the_device_says() {
        let mut pds = PdTable::default();
        for _ in 0..DeviceAttr::LIMITS.max_pd {
            assert!(pds.alloc().is_some());
        }
        assert_eq!(pds.alloc(), None);
        pds.dealloc(PdId(7)).expect("unused");
        assert!(pds.alloc().is_some());
    }
}
