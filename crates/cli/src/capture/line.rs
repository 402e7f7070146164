//! One line per packet, or with `-v` all of its header fields below it.

use std::io::{self, Write};

use userdma_wire::Packet;
use userdma_wire::encap::Encap;

use super::connections::Freshness;
use super::decode::Decoded;
use super::file::Direction;
use super::words;

/// What a line tells besides the packet itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The frame's number in the file, from 1.
    pub(super) number: u64,
    /// Time since the first frame.
    pub(super) after_ns: Option<u64>,
    pub(super) direction: Option<Direction>,
    /// Bytes that were not captured.
    pub(super) cut_bytes: usize,
    pub(super) freshness: Freshness,
    pub(super) is_verbose: bool,
}

impl Line {
    /// Writes it. `address_width` is the widest pair of addresses so far, so that columns settle.
    pub(super) fn write(
        &self,
        decoded: &Decoded<'_>,
        address_width: &mut usize,
        out: &mut impl Write,
    ) -> io::Result<()> {
        match decoded {
            Decoded::Packet { encap, packet, icrc, segment } => {
                self.write_start(encap, address_width, out)?;
                let bth = packet.bth();
                let name = packet.info().name;
                write!(out, "{name:<28}  qpn {}  psn {}", bth.qpn(), bth.psn())?;
                let details = words::details(packet);
                if !details.is_empty() {
                    write!(out, "  {details}")?;
                }
                write!(out, "  [{icrc}]")?;
                self.write_remarks(*segment, out)?;
                if self.is_verbose {
                    write_fields(encap, packet, out)?;
                }
                Ok(())
            }
            Decoded::Malformed { encap, bytes, reason } => {
                self.write_start(encap, address_width, out)?;
                write!(out, "MALFORMED: {reason}, {}: {}", words::bytes(bytes.len()), words::hex(bytes))?;
                self.write_remarks(None, out)
            }
            Decoded::Other => Ok(()),
        }
    }

    fn write_start(&self, encap: &Encap, width: &mut usize, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{:>5}", self.number)?;
        match self.after_ns {
            Some(ns) => write!(out, "  {:>4}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)?,
            None => write!(out, "  {:>14}", "-")?,
        }
        match self.direction {
            Some(Direction::Inbound) => out.write_all(b"  in ")?,
            Some(Direction::Outbound) => out.write_all(b"  out")?,
            None => {}
        }
        let addresses = format!("{} → {}", encap.src, encap.dst);
        *width = (*width).max(addresses.chars().count());
        write!(out, "  {addresses:<width$}  ", width = *width)
    }

    fn write_remarks(&self, segment: Option<usize>, out: &mut impl Write) -> io::Result<()> {
        match self.freshness {
            Freshness::New => {}
            Freshness::Again => out.write_all("  again".as_bytes())?,
            Freshness::Late => out.write_all("  after later ones".as_bytes())?,
        }
        if let Some(segment) = segment {
            write!(out, "  segment {segment} of a super-packet")?;
        }
        if self.cut_bytes > 0 {
            write!(out, "  last {} not captured", words::bytes(self.cut_bytes))?;
        }
        writeln!(out)
    }
}

fn write_fields(encap: &Encap, packet: &Packet<'_>, out: &mut impl Write) -> io::Result<()> {
    let indent = "              ";
    if let Some(tag) = encap.vlan {
        writeln!(out, "{indent}VLAN        id {}, priority {}", tag & 0xfff, tag >> 13)?;
    }
    let (class, limit) = (encap.traffic_class, encap.hop_limit);
    if encap.is_ipv4() {
        let fragment = if encap.ipv4_dont_fragment { "don't fragment" } else { "may be fragmented" };
        write!(out, "{indent}IPv4        tos {class:#04x}, ttl {limit}, id {}, {fragment}", encap.ipv4_id)?;
    } else {
        write!(out, "{indent}IPv6        class {class:#04x}, hops {limit}, flow {:#07x}", encap.flow_label)?;
    }
    writeln!(out, ", ecn {}", encap.ecn())?;
    writeln!(out, "{indent}UDP         {} > {}", encap.src_port, encap.dst_port)?;
    for field in packet.fields(64).to_string().lines() {
        writeln!(out, "{indent}{field}")?;
    }
    writeln!(out)
}
