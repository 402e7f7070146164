//! The ledger: what the client did that took effect in the server's process, one line each.

use std::fmt;
use std::str::FromStr;

/// A line of the ledger.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Entry {
    /// A SEND, solicited or not.
    Send { len: u64 },
    /// A SEND with immediate data.
    SendImm { len: u64, imm: u32 },
    /// A SEND that invalidated a window.
    SendInv { len: u64, rkey: u32 },
    /// A WRITE of the client's pattern from `src` on.
    Write { off: u64, len: u64, src: u64 },
    /// The same with immediate data.
    WriteImm { off: u64, len: u64, src: u64, imm: u32 },
    /// A COMPARE_SWAP, whether it swapped or not.
    Cas { off: u64, compare: u64, swap: u64 },
    /// A FETCH_ADD.
    Faa { off: u64, add: u64 },
    /// Bytes that may have been written or not.
    Maybe { off: u64, len: u64 },
    /// An operation completed in error.
    Failed { status: String },
}

/// A message that took a receive, as the ledger tells it or as a completion shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Message {
    Send { len: u64 },
    SendImm { len: u64, imm: u32 },
    SendInv { len: u64, rkey: u32 },
    WriteImm { len: u64, imm: u32 },
}

impl Entry {
    /// The message that the server received with it.
    pub(crate) fn message(&self) -> Option<Message> {
        match *self {
            Self::Send { len } => Some(Message::Send { len }),
            Self::SendImm { len, imm } => Some(Message::SendImm { len, imm }),
            Self::SendInv { len, rkey } => Some(Message::SendInv { len, rkey }),
            Self::WriteImm { len, imm, .. } => Some(Message::WriteImm { len, imm }),
            Self::Write { .. }
            | Self::Cas { .. }
            | Self::Faa { .. }
            | Self::Maybe { .. }
            | Self::Failed { .. } => None,
        }
    }

    /// Reads a whole ledger, which starts with `vt 1` and ends with `end`.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let mut lines = text.lines();
        if lines.next() != Some("vt 1") {
            return Err("the ledger does not start with 'vt 1'".into());
        }
        let mut entries = Vec::new();
        for line in lines {
            if line == "end" {
                return Ok(entries);
            }
            entries.push(line.parse()?);
        }
        Err("the ledger has no end".into())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send { len } => write!(f, "send {len}"),
            Self::SendImm { len, imm } => write!(f, "send_imm {len} {imm:#x}"),
            Self::SendInv { len, rkey } => write!(f, "send_inv {len} {rkey:#x}"),
            Self::Write { off, len, src } => write!(f, "write {off:#x} {len} {src}"),
            Self::WriteImm { off, len, src, imm } => write!(f, "write_imm {off:#x} {len} {src} {imm:#x}"),
            Self::Cas { off, compare, swap } => write!(f, "cas {off:#x} {compare:#x} {swap:#x}"),
            Self::Faa { off, add } => write!(f, "faa {off:#x} {add:#x}"),
            Self::Maybe { off, len } => write!(f, "maybe {off:#x} {len}"),
            Self::Failed { status } => write!(f, "failed {status}"),
        }
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let unreadable = || format!("cannot read the ledger's line '{line}'");
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["failed", status] = words[..] {
            return Ok(Self::Failed { status: status.to_owned() });
        }
        let (&name, numbers) = words.split_first().ok_or_else(unreadable)?;
        let numbers: Vec<u64> =
            numbers.iter().map(|word| number(word)).collect::<Option<_>>().ok_or_else(unreadable)?;
        let narrow = |n: u64| u32::try_from(n).map_err(|_| unreadable());
        Ok(match (name, &numbers[..]) {
            ("send", &[len]) => Self::Send { len },
            ("send_imm", &[len, imm]) => Self::SendImm { len, imm: narrow(imm)? },
            ("send_inv", &[len, rkey]) => Self::SendInv { len, rkey: narrow(rkey)? },
            ("write", &[off, len, src]) => Self::Write { off, len, src },
            ("write_imm", &[off, len, src, imm]) => Self::WriteImm { off, len, src, imm: narrow(imm)? },
            ("cas", &[off, compare, swap]) => Self::Cas { off, compare, swap },
            ("faa", &[off, add]) => Self::Faa { off, add },
            ("maybe", &[off, len]) => Self::Maybe { off, len },
            _ => return Err(unreadable()),
        })
    }
}

/// A decimal number, or a hexadecimal one with `0x`.
pub(crate) fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_reads_as_it_was_written() {
        let entries = [
            Entry::Send { len: 0 },
            Entry::SendImm { len: 5, imm: 0xffff_ffff },
            Entry::SendInv { len: 1, rkey: 0x1234 },
            Entry::Write { off: 64, len: 3, src: 37 },
            Entry::WriteImm { off: 64, len: 1 << 20, src: 0, imm: 7 },
            Entry::Cas { off: 0, compare: u64::MAX, swap: 1 },
            Entry::Faa { off: 8, add: 0x1122_3344_5566_7788 },
            Entry::Maybe { off: 9, len: 9 },
            Entry::Failed { status: "access".into() },
        ];
        let lines: Vec<String> = entries.iter().map(Entry::to_string).collect();
        let text = format!("vt 1\n{}\nend\n", lines.join("\n"));
        assert_eq!(Entry::parse_all(&text).as_deref(), Ok(&entries[..]));
    }

    #[test]
    fn what_vt_writes_is_read() {
        assert_eq!("write 0x40 1024 37".parse(), Ok(Entry::Write { off: 64, len: 1024, src: 37 }));
        assert_eq!("faa 0x0 0x10".parse(), Ok(Entry::Faa { off: 0, add: 16 }));
    }

    #[test]
    fn a_ledger_that_is_cut_off_or_unknown_is_refused() {
        for text in
            ["", "vt 2\nend\n", "vt 1\nsend 1\n", "vt 1\nsend\nend\n", "vt 1\nsend_imm 1 0x100000000\nend\n"]
        {
            assert!(Entry::parse_all(text).is_err(), "{text:?}");
        }
    }
}
