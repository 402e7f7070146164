//! Capture files: the pcapng blocks that a capture of Ethernet packets needs.
//!
//! A section header, one interface description per link (Ethernet, nanoseconds), then enhanced packets with direction
//! and an optional comment. Numbers are in the machine's byte order, which the section header tells.

use std::io::{self, Write};

/// Which of a file's interfaces: its place among the interface descriptions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InterfaceId(u32);

/// Whether a packet came in or went out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// What is known of a captured packet besides its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PacketInfo<'a> {
    /// Where it was captured.
    pub interface: InterfaceId,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// In or out.
    pub direction: Direction,
    /// A remark for the reader.
    pub comment: Option<&'a str>,
}

/// Writes a capture file. Buffer what it writes to: it makes several small writes per packet.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    interfaces: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a file that `application` wrote.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, application: &str) -> io::Result<Self> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER_MAGIC.to_ne_bytes());
        body.extend(VERSION.map(u16::to_ne_bytes).concat());
        body.extend(UNKNOWN_LENGTH.to_ne_bytes());
        push_option(&mut body, OPT_SHB_USERAPPL, application.as_bytes());
        push_option(&mut body, OPT_END, &[]);
        write_block(&mut out, BLOCK_SECTION, &body)?;
        Ok(Self { out, interfaces: 0 })
    }

    /// Adds an Ethernet interface called `name`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn interface(&mut self, name: &str) -> io::Result<InterfaceId> {
        let mut body = Vec::new();
        body.extend(LINKTYPE_ETHERNET.to_ne_bytes());
        body.extend([0; 2]);
        body.extend(NO_SNAP_LEN.to_ne_bytes());
        push_option(&mut body, OPT_IF_NAME, name.as_bytes());
        push_option(&mut body, OPT_IF_TSRESOL, &[NANOSECONDS]);
        push_option(&mut body, OPT_END, &[]);
        write_block(&mut self.out, BLOCK_INTERFACE, &body)?;
        let id = InterfaceId(self.interfaces);
        self.interfaces += 1;
        Ok(id)
    }

    /// Adds a packet that lies in two pieces: headers, and what follows them.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` for packets beyond 2^31 bytes.
    pub fn packet(&mut self, info: &PacketInfo<'_>, headers: &[u8], payload: &[u8]) -> io::Result<()> {
        let comment = info.comment.map(clip);
        let len = headers.len() + payload.len();
        let options = OPTION_HEADER
            + FLAGS_LEN
            + OPTION_HEADER
            + comment.map_or(0, |text| OPTION_HEADER + padded(text.len()));
        let captured = u32::try_from(len).ok().filter(|&n| n < 1 << 31).ok_or(io::ErrorKind::InvalidInput)?;
        let total = BLOCK_FRAME + PACKET_FIXED + padded(len) + options;
        let total = u32::try_from(total).map_err(|_| io::ErrorKind::InvalidInput)?;

        let time = [info.at_ns >> 32, info.at_ns & 0xffff_ffff].map(|half| {
            // Both halves have 32 bits.
            u32::try_from(half).unwrap_or(0)
        });
        let head = [BLOCK_PACKET, total, info.interface.0, time[0], time[1], captured, captured];
        for word in head {
            self.out.write_all(&word.to_ne_bytes())?;
        }
        self.out.write_all(headers)?;
        self.out.write_all(payload)?;
        self.out.write_all(&[0; 3][..padded(len) - len])?;

        let flags: u32 = match info.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        write_option(&mut self.out, OPT_EPB_FLAGS, &flags.to_ne_bytes())?;
        if let Some(text) = comment {
            write_option(&mut self.out, OPT_COMMENT, text.as_bytes())?;
        }
        write_option(&mut self.out, OPT_END, &[])?;
        self.out.write_all(&total.to_ne_bytes())
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// What it writes to.
    pub fn output(&self) -> &W {
        &self.out
    }

    /// What it writes to, for whoever takes blocks out of it: between two calls it holds whole ones.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.out
    }
}

/// A block: type, length, body (whose length is a multiple of 4), length again.
fn write_block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    // Bodies of headers hold names of at most 64 KiB.
    let total = u32::try_from(BLOCK_FRAME + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&kind.to_ne_bytes())?;
    out.write_all(&total.to_ne_bytes())?;
    out.write_all(body)?;
    out.write_all(&total.to_ne_bytes())
}

/// An option: code, length, value, padding to a multiple of 4.
fn write_option(out: &mut impl Write, code: u16, value: &[u8]) -> io::Result<()> {
    let len = u16::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&code.to_ne_bytes())?;
    out.write_all(&len.to_ne_bytes())?;
    out.write_all(value)?;
    out.write_all(&[0; 3][..padded(value.len()) - value.len()])
}

fn push_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    // A vector takes everything, and the value's length fits now.
    let _ = write_option(body, code, value);
}

/// As much of a remark as an option can hold.
fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(usize::from(u16::MAX))]
}

const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

const BLOCK_SECTION: u32 = 0x0a0d_0d0a;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
/// The section's length, which is not known when it begins.
const UNKNOWN_LENGTH: i64 = -1;
const LINKTYPE_ETHERNET: u16 = 1;
const NO_SNAP_LEN: u32 = 0;
/// Ten to the minus nine.
const NANOSECONDS: u8 = 9;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const OPT_EPB_FLAGS: u16 = 2;
const OPT_IF_NAME: u16 = 2;
const OPT_SHB_USERAPPL: u16 = 4;
const OPT_IF_TSRESOL: u16 = 9;

/// Type and both lengths of a block.
const BLOCK_FRAME: usize = 12;
/// Interface, time in two halves, captured and original length.
const PACKET_FIXED: usize = 20;
const OPTION_HEADER: usize = 4;
const FLAGS_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    fn info(interface: InterfaceId) -> PacketInfo<'static> {
        PacketInfo {
            interface,
            at_ns: 1_700_000_000_123_456_789,
            direction: Direction::Outbound,
            comment: None,
        }
    }

    #[test]
    fn another_reader_finds_what_was_written() {
        let mut writer = Writer::new(Vec::new(), "userdma").unwrap();
        let first = writer.interface("roce_lo").unwrap();
        let second = writer.interface("roce_eth0").unwrap();
        for len in 0..9u8 {
            let payload: Vec<u8> = (0..len).collect();
            writer.packet(&info(first), &[0xaa; 14], &payload).unwrap();
        }
        let remark = PacketInfo {
            comment: Some("direct WRITE, 8 bytes"),
            direction: Direction::Inbound,
            ..info(second)
        };
        writer.packet(&remark, &[1, 2, 3], &[]).unwrap();

        let bytes = writer.output().clone();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut packets = 0u8;
        let mut interfaces = 0;
        while let Some(block) = reader.next_block() {
            let block = block.unwrap();
            if matches!(block, Block::InterfaceDescription(_)) {
                interfaces += 1;
                continue;
            }
            let Block::EnhancedPacket(packet) = block else { panic!("{block:?}") };
            if packets < 9 {
                assert_eq!(packet.interface_id, 0);
                assert_eq!(&packet.data[..14], [0xaa; 14]);
                assert_eq!(&packet.data[14..], (0..packets).collect::<Vec<_>>());
                assert_eq!(packet.original_len, 14 + u32::from(packets));
                assert_eq!(packet.options, [EnhancedPacketOption::Flags(2)]);
            } else {
                assert_eq!((packet.interface_id, &packet.data[..]), (1, &[1, 2, 3][..]));
                let options = [
                    EnhancedPacketOption::Flags(1),
                    EnhancedPacketOption::Comment("direct WRITE, 8 bytes".into()),
                ];
                assert_eq!(packet.options, options);
            }
            packets += 1;
        }
        assert_eq!((interfaces, packets), (2, 10));
    }

    #[test]
    fn time_has_nanoseconds() {
        let mut writer = Writer::new(Vec::new(), "userdma").unwrap();
        let id = writer.interface("lo").unwrap();
        writer.packet(&info(id), &[], &[0; 4]).unwrap();
        let bytes = writer.output().clone();
        // The packet's block: frame 12, fixed 20, data 4, options 12, from the end.
        let block = &bytes[bytes.len() - 48..];
        let word = |at: usize| u64::from(u32::from_ne_bytes(block[at..at + 4].try_into().unwrap()));
        assert_eq!(word(0), 6);
        let at = Duration::from_nanos(word(12) << 32 | word(16));
        assert_eq!(at, Duration::new(1_700_000_000, 123_456_789));
    }

    #[test]
    fn a_remark_that_is_too_long_is_cut() {
        let mut writer = Writer::new(Vec::new(), "userdma").unwrap();
        let id = writer.interface("lo").unwrap();
        let text = "ä".repeat(40_000);
        writer.packet(&PacketInfo { comment: Some(&text), ..info(id) }, &[], &[0; 4]).unwrap();
        let bytes = writer.output().clone();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut remarks = 0;
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                assert!(matches!(&packet.options[1], EnhancedPacketOption::Comment(c) if c.len() == 65_534));
                remarks += 1;
            }
        }
        assert_eq!(remarks, 1);
    }
}
