//! Memory windows, type 2.

use userdma_verbs::RKey;

/// A type 2 memory window: rights to a part of a region that can be given and withdrawn by work requests.
#[derive(Debug)]
pub struct Mw {}

impl Mw {
    /// The key that the last posted bind gave it.
    pub fn rkey(&self) -> RKey {
        todo!()
    }
}
