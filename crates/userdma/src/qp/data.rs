//! What work requests take: scatter/gather lists and inline data.

use userdma_host::Host;
use userdma_verbs::{DeviceAttr, PostError, Sge};

use crate::{Error, MrSlice};

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

impl Sgl<'_> {
    /// Lets `post` have the list as the device of `host` wants it. Short lists, which are usual, take little room on the stack.
    #[inline]
    pub(crate) fn with_sges<R>(
        self,
        host: &Host,
        max: u32,
        post: impl FnOnce(&[Sge]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.0 {
            [] => post(&[]),
            [one] => post(&[sge(host, one)?]),
            slices if slices.len() > MAX_SGE => Err(PostError::TooManySge { num: slices.len(), max }.into()),
            slices => {
                let mut sges = [Sge::default(); MAX_SGE];
                for (to, slice) in sges.iter_mut().zip(slices) {
                    *to = sge(host, slice)?;
                }
                post(&sges[..slices.len()])
            }
        }
    }
}

/// An element of a list; it must be of this device.
pub(super) fn sge(host: &Host, slice: &MrSlice) -> Result<Sge, Error> {
    if !slice.pd().host().is_same(host) {
        return Err(Error::OtherDevice("memory region"));
    }
    Ok(slice.sge().ok_or(PostError::TooLong { len: slice.len() as u64 })?)
}

/// Elements of a list that any queue takes.
const MAX_SGE: usize = DeviceAttr::LIMITS.max_sge as usize;

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
