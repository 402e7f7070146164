//! Scatter/gather lists: copying a piece of a message from or to the memory that a list names.

use userdma_mem::MemError;
use userdma_verbs::Sge;

use crate::{AccessFault, MrTable, PdId, RemoteAccess};

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
///
/// It may stand at the end of an element; the next copy goes on with the element after it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SgCursor {
    /// The element.
    pub index: usize,
    /// Bytes into it.
    pub offset: u32,
}

impl SgCursor {
    /// The place `message_offset` bytes into the message: the end of the list if that lies beyond it.
    pub fn at(sgl: &[Sge], message_offset: u64) -> Self {
        let mut left = message_offset;
        for (index, sge) in sgl.iter().enumerate() {
            match u32::try_from(left) {
                Ok(offset) if offset < sge.length => return Self { index, offset },
                Ok(_) | Err(_) => left -= u64::from(sge.length),
            }
        }
        Self { index: sgl.len(), offset: 0 }
    }

    /// The next bytes of the list, at most `limit` of them, all in one element. Moves past elements that are used
    /// up or empty, not past the piece.
    fn piece(&mut self, sgl: &[Sge], limit: usize) -> Result<Sge, SglError> {
        loop {
            let sge = sgl.get(self.index).ok_or(SglError::TooShort)?;
            let left = sge.length.saturating_sub(self.offset);
            if left == 0 {
                *self = Self { index: self.index + 1, offset: 0 };
                continue;
            }
            let fault = SglError::Access { index: self.index, fault: AccessFault::Bounds };
            let addr = sge.addr.checked_add(u64::from(self.offset)).ok_or(fault)?;
            let length = u32::try_from(limit).map_or(left, |limit| left.min(limit));
            return Ok(Sge { addr, length, lkey: sge.lkey });
        }
    }
}

/// Bytes that a list holds.
pub fn sgl_len(sgl: &[Sge]) -> u64 {
    sgl.iter().map(|s| u64::from(s.length)).sum()
}

/// Copies the next `dst.len()` bytes of the message into `dst` and moves the cursor. If there is a `crc`, it goes on over them
/// (see [`userdma_mem::Region::read_crc`]).
///
/// Keys are looked up in each call, so that a region which ended since the last one is noticed. Only the bytes that
/// are copied need to lie in their region, not the whole element.
///
/// # Errors
/// The cursor then stands where the first byte is missing; what precedes it has been copied.
pub fn gather(
    mrs: &MrTable,
    pd: PdId,
    sgl: &[Sge],
    cursor: &mut SgCursor,
    dst: &mut [u8],
    mut crc: Option<&mut u32>,
) -> Result<(), SglError> {
    let mut rest = dst;
    while !rest.is_empty() {
        let (access, length) = open(mrs, pd, sgl, cursor, rest.len(), false)?;
        // `length` is at most `rest.len()`, as asked for.
        let (now, later) = rest.split_at_mut(length as usize);
        access.read_crc(0, now, crc.as_deref_mut()).map_err(SglError::Mem)?;
        cursor.offset += length;
        rest = later;
    }
    Ok(())
}

/// Copies `src` to the next bytes of the list (which need `LOCAL_WRITE`) and moves the cursor.
///
/// # Errors
/// As [`gather`].
pub fn scatter(
    mrs: &MrTable,
    pd: PdId,
    sgl: &[Sge],
    cursor: &mut SgCursor,
    src: &[u8],
) -> Result<(), SglError> {
    let mut rest = src;
    while !rest.is_empty() {
        let (access, length) = open(mrs, pd, sgl, cursor, rest.len(), true)?;
        // `length` is at most `rest.len()`, as asked for.
        let (now, later) = rest.split_at(length as usize);
        access.write(0, now).map_err(SglError::Mem)?;
        cursor.offset += length;
        rest = later;
    }
    Ok(())
}

/// Opens the next piece of the list, at most `limit` bytes; its length is not 0.
fn open<'a>(
    mrs: &'a MrTable,
    pd: PdId,
    sgl: &[Sge],
    cursor: &mut SgCursor,
    limit: usize,
    write: bool,
) -> Result<(RemoteAccess<'a>, u32), SglError> {
    let piece = cursor.piece(sgl, limit)?;
    let access =
        mrs.open_local(pd, &piece, write).map_err(|fault| SglError::Access { index: cursor.index, fault })?;
    Ok((access, piece.length))
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
