//! Bytes from several slices in a row.

use std::io::IoSlice;

/// Takes pieces from slices.
#[derive(Debug)]
pub(super) struct Gather<'a> {
    slices: std::slice::Iter<'a, IoSlice<'a>>,
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Gather<'a> {
    pub(super) fn new(slices: &'a [IoSlice<'a>]) -> Self {
        Self { slices: slices.iter(), rest: &[], taken: 0 }
    }

    /// The next piece, which is not empty and has at most `most` bytes; `None` if there is none.
    pub(super) fn next(&mut self, most: usize) -> Option<&'a [u8]> {
        while self.rest.is_empty() {
            self.rest = self.slices.next()?;
        }
        let (piece, rest) = self.rest.split_at(most.min(self.rest.len()));
        self.rest = rest;
        self.taken += piece.len();
        (!piece.is_empty()).then_some(piece)
    }

    /// Bytes of all pieces.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_order_and_bounds() {
        let slices = [b"ab".as_slice(), b"", b"cdefg"].map(IoSlice::new);
        let mut gather = Gather::new(&slices);
        assert_eq!(gather.next(3), Some(b"ab".as_slice()));
        assert_eq!(gather.next(0), None);
        assert_eq!(gather.next(4), Some(b"cdef".as_slice()));
        assert_eq!(gather.next(4), Some(b"g".as_slice()));
        assert_eq!((gather.next(4), gather.taken()), (None, 7));
    }
}
