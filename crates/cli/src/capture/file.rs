//! Capture files: frames out of pcap and pcapng, from any stream.
//!
//! Read here and not by a crate, because a tool for people has to say where a file is broken, must read captures with
//! cut-off packets and has to respect the clock's resolution, which differs from file to file.

mod pcap;
mod pcapng;

use std::io::{self, Read};

use super::linktype::LinkType;

/// One captured frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CapturedFrame {
    /// Nanoseconds since 1970; `None` in blocks without a time.
    pub at_ns: Option<u64>,
    /// What the frame starts with.
    pub link: LinkType,
    /// Whether it came in or went out, if the file says so.
    pub direction: Option<Direction>,
    /// Bytes that it had on the wire.
    pub original_len: usize,
    /// Bytes that were captured, from the first one on.
    pub bytes: Vec<u8>,
}

/// Which way a frame went, seen from where it was captured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// Why a file cannot be read (further).
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// Nothing is in it.
    Empty,
    /// It starts with something else.
    NotACapture([u8; 4]),
    /// It ends inside `what`, which begins at byte `at`.
    CutOff {
        /// Where the piece begins.
        at: u64,
        /// What it is.
        what: &'static str,
    },
    /// What lies at byte `at` contradicts the format.
    Corrupt {
        /// Where.
        at: u64,
        /// How.
        why: &'static str,
    },
    /// The system could not read it.
    Io(io::Error),
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::NotACapture([a, b, c, d]) => {
                write!(f, "is no pcap or pcapng file: it starts with {a:02x} {b:02x} {c:02x} {d:02x}")
            }
            Self::CutOff { at, what } => write!(f, "ends inside the {what} that begins at byte {at}"),
            Self::Corrupt { at, why } => write!(f, "is damaged at byte {at}: {why}"),
            Self::Io(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

impl std::error::Error for FileError {}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The frames of a capture file, in its order. After an error there are no more.
#[derive(Debug)]
pub struct Frames<R> {
    input: Input<R>,
    format: Format,
    is_over: bool,
}

#[derive(Debug)]
enum Format {
    Pcap(pcap::Header),
    PcapNg(pcapng::Section),
}

impl<R: Read> Frames<R> {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// [`FileError`] says why it is no capture.
    pub fn new(reader: R) -> Result<Self, FileError> {
        let mut input = Input { reader, at: 0 };
        let mut magic = [0; 4];
        match input.read_some(&mut magic)? {
            4 => {}
            0 => return Err(FileError::Empty),
            _ => return Err(FileError::CutOff { at: 0, what: "file header" }),
        }
        let format = if magic == pcapng::SECTION_HEADER {
            Format::PcapNg(pcapng::Section::read(&mut input)?)
        } else {
            Format::Pcap(pcap::Header::read(magic, &mut input)?)
        };
        Ok(Self { input, format, is_over: false })
    }
}

impl<R: Read> Iterator for Frames<R> {
    type Item = Result<CapturedFrame, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let frame = match &mut self.format {
            Format::Pcap(header) => header.next(&mut self.input),
            Format::PcapNg(section) => section.next(&mut self.input),
        };
        self.is_over = !matches!(frame, Ok(Some(_)));
        frame.transpose()
    }
}

/// A stream, and how much of it has been read.
#[derive(Debug)]
struct Input<R> {
    reader: R,
    at: u64,
}

impl<R: Read> Input<R> {
    /// Fills `out`; fewer bytes only at the end.
    fn read_some(&mut self, out: &mut [u8]) -> Result<usize, FileError> {
        let mut done = 0;
        while done < out.len() {
            match self.reader.read(&mut out[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileError::Io(error)),
            }
        }
        self.at += done as u64;
        Ok(done)
    }

    /// Fills `out`, a part of `what`, which began at byte `start`.
    fn read_all(&mut self, out: &mut [u8], start: u64, what: &'static str) -> Result<(), FileError> {
        let len = out.len();
        if self.read_some(out)? == len { Ok(()) } else { Err(FileError::CutOff { at: start, what }) }
    }

    /// Fills `out`, or finds the end: `false`. In between it is an error.
    fn read_next(&mut self, out: &mut [u8], what: &'static str) -> Result<bool, FileError> {
        let (at, len) = (self.at, out.len());
        match self.read_some(out)? {
            0 => Ok(false),
            n if n == len => Ok(true),
            _ => Err(FileError::CutOff { at, what }),
        }
    }
}

/// The byte order of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    /// The number at `at`, 0 if it is not there.
    fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| self.u32(*chunk))
    }

    /// The number at `at`, 0 if it is not there.
    fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| self.u16(*chunk))
    }
}

/// No frame is longer; a length above it means that the file is damaged.
const MAX_FRAME: usize = 1 << 20;

#[cfg(test)]
mod tests;
