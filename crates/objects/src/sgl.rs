//! Scatter/gather lists: copying a piece of a message from or to the memory that a list names.

use userdma_mem::MemError;
use userdma_verbs::Sge;

use crate::{AccessFault, MrTable, PdId};

/// Why a list could not be walked.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SglError {
    /// An element is not covered by a valid region with the right.
    #[error("scatter/gather element {index}: {fault}")]
    Access {
        /// Which element.
        index: usize,
        /// Why.
        fault: AccessFault,
    },
    /// The memory vanished.
    #[error("scatter/gather element: {0}")]
    Mem(MemError),
    /// The list ended before the message.
    #[error("the list is shorter than the message")]
    TooShort,
}

/// A place in a list: where the next byte of the message goes or comes from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SgCursor {
    /// The element.
    pub index: usize,
    /// Bytes into it.
    pub offset: u32,
}

impl SgCursor {
    /// The place `message_offset` bytes into the message.
    pub fn at(sgl: &[Sge], message_offset: u64) -> Self {
        let _ = (sgl, message_offset);
        todo!()
    }
}

/// Bytes that a list holds.
pub fn sgl_len(sgl: &[Sge]) -> u64 {
    sgl.iter().map(|s| u64::from(s.length)).sum()
}

/// Copies the next `dst.len()` bytes of the message into `dst` and moves the cursor.
pub fn gather(mrs: &MrTable, pd: PdId, sgl: &[Sge], cursor: &mut SgCursor, dst: &mut [u8]) -> Result<(), SglError> {
    let _ = (mrs, pd, sgl, cursor, dst);
    todo!()
}

/// Copies `src` to the next bytes of the list (which need `LOCAL_WRITE`) and moves the cursor.
pub fn scatter(mrs: &MrTable, pd: PdId, sgl: &[Sge], cursor: &mut SgCursor, src: &[u8]) -> Result<(), SglError> {
    let _ = (mrs, pd, sgl, cursor, src);
    todo!()
}
