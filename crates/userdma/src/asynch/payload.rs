//! What asynchronous operations take and own: slices of registered memory, or bytes.

use crate::{Data, Inline, MrSlice, Sgl};

/// A scatter/gather list that an operation owns until it completes. Made from a slice, a vector or an array of slices, or
/// nothing: `()`.
#[derive(Clone, Debug)]
pub struct Slices(List);

/// One slice, which is usual, takes no allocation.
#[derive(Clone, Debug)]
enum List {
    One(MrSlice),
    Many(Vec<MrSlice>),
}

/// What a SEND or WRITE takes: a list, or bytes (a copy of [`Inline`]) that need no region. Made from [`Inline`], or from
/// whatever makes [`Slices`]: `qp.send(Inline(b"bytes"))`, `qp.send(mr.slice(..))`, `qp.send([a, b])`, `qp.send(())`.
#[derive(Clone, Debug)]
pub struct Payload(Content);

#[derive(Clone, Debug)]
enum Content {
    Slices(Slices),
    Inline(Box<[u8]>),
}

impl Slices {
    /// The list.
    pub fn as_slice(&self) -> &[MrSlice] {
        match &self.0 {
            List::One(slice) => std::slice::from_ref(slice),
            List::Many(slices) => slices,
        }
    }

    pub(super) fn sgl(&self) -> Sgl<'_> {
        Sgl(self.as_slice())
    }
}

impl Payload {
    pub(super) fn data(&self) -> Data<'_> {
        match &self.0 {
            Content::Slices(slices) => Data::Sgl(slices.sgl()),
            Content::Inline(bytes) => Data::Inline(Inline(bytes)),
        }
    }
}

impl From<MrSlice> for Slices {
    fn from(slice: MrSlice) -> Self {
        Self(List::One(slice))
    }
}

impl From<&MrSlice> for Slices {
    fn from(slice: &MrSlice) -> Self {
        Self(List::One(slice.clone()))
    }
}

impl From<Vec<MrSlice>> for Slices {
    fn from(slices: Vec<MrSlice>) -> Self {
        Self(List::Many(slices))
    }
}

impl<const N: usize> From<[MrSlice; N]> for Slices {
    fn from(slices: [MrSlice; N]) -> Self {
        Self(List::Many(slices.into()))
    }
}

impl From<()> for Slices {
    fn from((): ()) -> Self {
        Self(List::Many(Vec::new()))
    }
}

impl<T: Into<Slices>> From<T> for Payload {
    fn from(slices: T) -> Self {
        Self(Content::Slices(slices.into()))
    }
}

impl From<Inline<'_>> for Payload {
    fn from(inline: Inline<'_>) -> Self {
        Self(Content::Inline(inline.0.into()))
    }
}
