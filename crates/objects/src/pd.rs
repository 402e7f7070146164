//! Protection domains: numbers that tie queue pairs to the memory they may touch.

use userdma_verbs::ObjectError;

/// A protection domain of a device.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct PdId(pub u32);

/// The protection domains that exist, and how many objects use each.
#[derive(Debug, Default)]
pub struct PdTable {}

impl PdTable {
    /// A new domain, or `None` if there are too many.
    pub fn alloc(&mut self) -> Option<PdId> {
        todo!()
    }

    /// Ends a domain that nothing uses.
    pub fn dealloc(&mut self, pd: PdId) -> Result<(), ObjectError> {
        let _ = pd;
        todo!()
    }

    /// Whether it exists.
    pub fn contains(&self, pd: PdId) -> bool {
        let _ = pd;
        todo!()
    }

    /// Counts a user of the domain.
    pub fn acquire(&mut self, pd: PdId) -> Result<(), ObjectError> {
        let _ = pd;
        todo!()
    }

    /// Takes a user off the count.
    pub fn release(&mut self, pd: PdId) {
        let _ = pd;
        todo!()
    }
}
