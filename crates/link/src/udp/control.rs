//! Control messages: what a packet's `sendmsg` and `recvmsg` say besides its bytes.
//!
//! Each is a header (length as `usize`, level and type as `c_int`) and its value, padded to a multiple of `usize`.
//! They are written and read as bytes, so nothing here needs a pointer.

/// Control messages of one packet, in a buffer of fixed size.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; Self::CAPACITY],
}

impl Control {
    /// Room for four messages of one number each, more than any packet here has.
    pub(super) const CAPACITY: usize = 4 * (HEADER_LEN + 8);

    /// None yet.
    pub(super) const EMPTY: Self = Self { bytes: [0; Self::CAPACITY] };

    /// Adds a message behind the first `len` bytes; returns the new length, or the old one if there is no room.
    pub(super) fn push(&mut self, len: usize, level: i32, kind: i32, value: &[u8]) -> usize {
        let end = len + (HEADER_LEN + value.len()).next_multiple_of(ALIGN);
        debug_assert!(end <= Self::CAPACITY, "the buffer is made for all messages that a packet has");
        let Some(message) = self.bytes.get_mut(len..end) else { return len };
        let (head, rest) = message.split_at_mut(HEADER_LEN);
        head[..WORD].copy_from_slice(&(HEADER_LEN + value.len()).to_ne_bytes());
        head[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        head[WORD + 4..].copy_from_slice(&kind.to_ne_bytes());
        rest[..value.len()].copy_from_slice(value);
        end
    }

    /// The messages in the first `len` bytes, as level, type and value. Ends at the first that does not fit.
    pub(super) fn messages(&self, len: usize) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = &self.bytes[..len.min(Self::CAPACITY)];
        std::iter::from_fn(move || {
            let (message_len, after) = rest.split_first_chunk::<WORD>()?;
            let (level, after) = after.split_first_chunk::<4>()?;
            let (kind, after) = after.split_first_chunk::<4>()?;
            let message_len = usize::from_ne_bytes(*message_len);
            let value = after.get(..message_len.checked_sub(HEADER_LEN)?)?;
            rest = rest.get(message_len.next_multiple_of(ALIGN)..).unwrap_or(&[]);
            Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), value))
        })
    }
}

const WORD: usize = size_of::<usize>();
const ALIGN: usize = WORD;
const HEADER_LEN: usize = WORD + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut control = Control::EMPTY;
        let mut len = control.push(0, 17, 103, &4112u16.to_ne_bytes());
        len = control.push(len, 0, 1, &[2]);
        len = control.push(len, 0, 2, &64i32.to_ne_bytes());
        let read: Vec<_> = control.messages(len).collect();
        let wanted: [(i32, i32, &[u8]); 3] =
            [(17, 103, &4112u16.to_ne_bytes()), (0, 1, &[2]), (0, 2, &64i32.to_ne_bytes())];
        assert_eq!(read, wanted);
    }

    #[test]
    fn the_layout_is_the_c_librarys() {
        assert_eq!(HEADER_LEN, size_of::<libc::cmsghdr>());
        // SAFETY: computes with its argument only.
        let space = unsafe { libc::CMSG_SPACE(2) } as usize;
        assert_eq!(Control::EMPTY.clone().push(0, 1, 2, &[3, 4]), space);
    }

    #[test]
    fn a_cut_or_impossible_message_ends_the_list() {
        let mut control = Control::EMPTY;
        let len = control.push(0, 17, 104, &1040i32.to_ne_bytes());
        assert_eq!(control.messages(len - 5).count(), 0);
        assert_eq!(control.messages(7).count(), 0);
        for bad_len in [0, HEADER_LEN - 1, usize::MAX, usize::MAX - 3] {
            control.bytes[..WORD].copy_from_slice(&bad_len.to_ne_bytes());
            assert_eq!(control.messages(len).count(), 0, "{bad_len}");
        }
    }
}
