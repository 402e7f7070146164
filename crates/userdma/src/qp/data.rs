//! What work requests take: scatter/gather lists and inline data.

use crate::MrSlice;

/// A scatter/gather list: slices of registered memory, in order. Made from `&slice`, `&[a, b]`, or nothing: `()`.
#[derive(Clone, Copy, Debug)]
pub struct Sgl<'a>(pub &'a [MrSlice]);

/// Bytes that are taken at post time; they need no region. At most as many as the queue pair was made for, 512 unless
/// [`QpBuilder::max_inline_data`](crate::QpBuilder::max_inline_data) says otherwise; more are refused.
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a>(pub &'a [u8]);

/// A payload: a list or bytes inline.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Gathered from registered memory when it is sent.
    Sgl(Sgl<'a>),
    /// Copied at post time.
    Inline(Inline<'a>),
}

impl<'a> From<&'a MrSlice> for Sgl<'a> {
    fn from(slice: &'a MrSlice) -> Self {
        Self(std::slice::from_ref(slice))
    }
}

impl<'a> From<&'a [MrSlice]> for Sgl<'a> {
    fn from(list: &'a [MrSlice]) -> Self {
        Self(list)
    }
}

impl<'a, const N: usize> From<&'a [MrSlice; N]> for Sgl<'a> {
    fn from(list: &'a [MrSlice; N]) -> Self {
        Self(list)
    }
}

impl<'a> From<&'a Vec<MrSlice>> for Sgl<'a> {
    fn from(list: &'a Vec<MrSlice>) -> Self {
        Self(list)
    }
}

impl From<()> for Sgl<'_> {
    fn from((): ()) -> Self {
        Self(&[])
    }
}

impl<'a> From<Inline<'a>> for Data<'a> {
    fn from(inline: Inline<'a>) -> Self {
        Self::Inline(inline)
    }
}

impl<'a, T: Into<Sgl<'a>>> From<T> for Data<'a> {
    fn from(list: T) -> Self {
        Self::Sgl(list.into())
    }
}
