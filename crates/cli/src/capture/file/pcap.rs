//! The old format: a header of 24 bytes, then records with a header of 16.

use std::io::Read;

use super::{CapturedFrame, FileError, Input, MAX_FRAME, Order};
use crate::capture::linktype::LinkType;

/// What the file's header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    order: Order,
    /// Nanoseconds per unit of the fraction of a second.
    fraction_ns: u64,
    link: LinkType,
}

impl Header {
    /// Reads the header after its first four bytes, `magic`.
    pub(super) fn read(magic: [u8; 4], input: &mut Input<impl Read>) -> Result<Self, FileError> {
        let (order, fraction_ns) = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1_000),
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
            _ => return Err(FileError::NotACapture(magic)),
        };
        let mut rest = [0; 20];
        input.read_all(&mut rest, 0, "file header")?;
        // The upper half of the word may tell the length of a frame check sequence.
        let link = LinkType(order.u32_at(&rest, 16) & 0xffff);
        Ok(Self { order, fraction_ns, link })
    }

    pub(super) fn next(&self, input: &mut Input<impl Read>) -> Result<Option<CapturedFrame>, FileError> {
        let at = input.at;
        let mut head = [0; 16];
        if !input.read_next(&mut head, WHAT)? {
            return Ok(None);
        }
        let word = |index: usize| self.order.u32_at(&head, 4 * index);
        let len = word(2) as usize;
        if len > MAX_FRAME {
            return Err(FileError::Corrupt { at, why: "a packet longer than 1 MiB" });
        }
        let mut bytes = vec![0; len];
        input.read_all(&mut bytes, at, WHAT)?;
        let at_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(1)).wrapping_mul(self.fraction_ns);
        Ok(Some(CapturedFrame {
            at_ns: Some(at_ns),
            link: self.link,
            direction: None,
            original_len: (word(3) as usize).max(len),
            bytes,
        }))
    }
}

const WHAT: &str = "packet";
