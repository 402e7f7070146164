//! The new format: blocks, each with its type, its length, and its length again.

use std::io::Read;

use super::{CapturedFrame, Direction, FileError, Input, MAX_FRAME, Order};
use crate::capture::linktype::LinkType;

/// The type of a section header: the same in both byte orders.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// What the blocks so far say about those that follow.
#[derive(Debug)]
pub(super) struct Section {
    order: Order,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    /// Units of time in a second.
    units: u64,
    offset_s: i64,
    snap_len: u32,
}

impl Section {
    /// Reads the rest of the section header whose type has been read.
    pub(super) fn read(input: &mut Input<impl Read>) -> Result<Self, FileError> {
        let start = input.at - 4;
        let mut head = [0; 8];
        input.read_all(&mut head, start, "section header")?;
        let [_, _, _, _, magic @ ..] = head;
        let order = match magic {
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            _ => return Err(FileError::Corrupt { at: start, why: "a section header without byte order" }),
        };
        let len = block_len(order.u32_at(&head, 0), start)?;
        let Some(rest) = len.checked_sub(12) else {
            return Err(FileError::Corrupt { at: start, why: "a section header that is too short" });
        };
        input.read_all(&mut vec![0; rest], start, "section header")?;
        Ok(Self { order, interfaces: Vec::new() })
    }

    pub(super) fn next(&mut self, input: &mut Input<impl Read>) -> Result<Option<CapturedFrame>, FileError> {
        loop {
            let at = input.at;
            let mut kind = [0; 4];
            if !input.read_next(&mut kind, WHAT)? {
                return Ok(None);
            }
            if kind == SECTION_HEADER {
                *self = Self::read(input)?;
                continue;
            }
            let body = self.read_body(input, at)?;
            let frame = match self.order.u32(kind) {
                INTERFACE => {
                    let interface = self.interface(&body);
                    self.interfaces.push(interface);
                    None
                }
                ENHANCED => Some(self.enhanced(&body, at)?),
                SIMPLE => Some(self.simple(&body, at)?),
                _ => None,
            };
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }

    /// A block's body, after its type.
    fn read_body(&self, input: &mut Input<impl Read>, at: u64) -> Result<Vec<u8>, FileError> {
        let mut word = [0; 4];
        input.read_all(&mut word, at, WHAT)?;
        let len = block_len(self.order.u32(word), at)?;
        let mut body = vec![0; len - 8];
        input.read_all(&mut body, at, WHAT)?;
        let again = self.order.u32_at(&body, len - 12);
        if again as usize != len {
            return Err(FileError::Corrupt { at, why: "a block whose two lengths differ" });
        }
        body.truncate(len - 12);
        Ok(body)
    }

    fn interface(&self, body: &[u8]) -> Interface {
        let mut interface = Interface {
            link: LinkType(self.order.u16_at(body, 0).into()),
            units: 1_000_000,
            offset_s: 0,
            snap_len: self.order.u32_at(body, 4),
        };
        for (code, value) in self.options(body.get(8..).unwrap_or_default()) {
            match (code, value) {
                (OPT_IF_TSRESOL, &[resolution]) => interface.units = units(resolution),
                (OPT_IF_TSOFFSET, &[_, _, _, _, _, _, _, _]) => {
                    let (first, second) = (self.order.u32_at(value, 0), self.order.u32_at(value, 4));
                    let (high, low) = match self.order {
                        Order::Big => (first, second),
                        Order::Little => (second, first),
                    };
                    interface.offset_s = (u64::from(high) << 32 | u64::from(low)).cast_signed();
                }
                _ => {}
            }
        }
        interface
    }

    fn enhanced(&self, body: &[u8], at: u64) -> Result<CapturedFrame, FileError> {
        let word = |index: usize| self.order.u32_at(body, 4 * index);
        let interface = self.interfaces.get(word(0) as usize).ok_or(no_interface(at))?;
        let len = word(3) as usize;
        let bytes = 20_usize.checked_add(len).and_then(|end| body.get(20..end)).ok_or(too_long(at))?;
        let options = body.get(20 + len.next_multiple_of(4)..).unwrap_or_default();
        let flags = self.options(options).find(|(code, value)| *code == OPT_EPB_FLAGS && value.len() == 4);
        Ok(CapturedFrame {
            at_ns: Some(interface.nanoseconds(u64::from(word(1)) << 32 | u64::from(word(2)))),
            link: interface.link,
            direction: flags.and_then(|(_, value)| direction(self.order.u32_at(value, 0))),
            original_len: (word(4) as usize).max(len),
            bytes: bytes.to_vec(),
        })
    }

    fn simple(&self, body: &[u8], at: u64) -> Result<CapturedFrame, FileError> {
        let interface = self.interfaces.first().ok_or(no_interface(at))?;
        let original_len = self.order.u32_at(body, 0) as usize;
        let snap_len = if interface.snap_len == 0 { usize::MAX } else { interface.snap_len as usize };
        let end = original_len.min(snap_len).checked_add(4);
        let bytes = end.and_then(|end| body.get(4..end)).ok_or(too_long(at))?;
        Ok(CapturedFrame {
            at_ns: None,
            link: interface.link,
            direction: None,
            original_len,
            bytes: bytes.to_vec(),
        })
    }

    /// The options in `bytes`, as far as they are whole.
    fn options<'a>(&self, mut bytes: &'a [u8]) -> impl Iterator<Item = (u16, &'a [u8])> {
        let order = self.order;
        std::iter::from_fn(move || {
            let (head, rest) = bytes.split_at_checked(4)?;
            let (code, len) = (order.u16_at(head, 0), usize::from(order.u16_at(head, 2)));
            if code == OPT_END {
                return None;
            }
            let value = rest.get(..len)?;
            bytes = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            Some((code, value))
        })
    }
}

impl Interface {
    fn nanoseconds(&self, time: u64) -> u64 {
        let ns = i128::from(time) * 1_000_000_000 / i128::from(self.units);
        let ns = ns + i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

/// A block's length, if it can be one.
fn block_len(len: u32, at: u64) -> Result<usize, FileError> {
    let len = len as usize;
    if len < 12 || !len.is_multiple_of(4) {
        return Err(FileError::Corrupt {
            at,
            why: "a block length that is no multiple of four, or below 12",
        });
    }
    if len > MAX_FRAME + 4096 {
        return Err(FileError::Corrupt { at, why: "a block longer than 1 MiB" });
    }
    Ok(len)
}

/// Units of time in a second: a power of ten, or, with the top bit set, of two.
fn units(resolution: u8) -> u64 {
    let power = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(power).unwrap_or(u64::MAX)
}

/// The low two bits of a packet's flags.
fn direction(flags: u32) -> Option<Direction> {
    match flags & 3 {
        1 => Some(Direction::Inbound),
        2 => Some(Direction::Outbound),
        _ => None,
    }
}

const WHAT: &str = "block";
const INTERFACE: u32 = 1;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;
const OPT_END: u16 = 0;
const OPT_EPB_FLAGS: u16 = 2;
const OPT_IF_TSRESOL: u16 = 9;
const OPT_IF_TSOFFSET: u16 = 14;

fn no_interface(at: u64) -> FileError {
    FileError::Corrupt { at, why: "a packet of an interface that the file does not describe" }
}

fn too_long(at: u64) -> FileError {
    FileError::Corrupt { at, why: "a packet longer than its block" }
}
