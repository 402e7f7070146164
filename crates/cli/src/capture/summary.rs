//! The summary of a capture.

use std::collections::BTreeMap;
use std::fmt;

use userdma_wire::{Packet, Syndrome};

use super::connections::Flows;
use super::decode::Icrc;
use super::words::verdict;

/// What a capture holds.
#[derive(Debug, Default)]
pub struct Summary {
    /// RoCE v2 packets.
    pub packets: u64,
    /// Frames that are something else.
    pub other_frames: u64,
    /// Frames whose link type is not understood, by its number.
    pub unknown_links: BTreeMap<u32, u64>,
    /// Packets to the port of RoCE v2 that cannot be read, by the reason.
    pub malformed: BTreeMap<String, u64>,
    /// First and last time, nanoseconds since 1970.
    pub span: Option<(u64, u64)>,
    opcodes: BTreeMap<u8, (&'static str, u64, u64)>,
    verdicts: BTreeMap<String, u64>,
    icrc: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// Counts a packet.
    pub fn count(&mut self, packet: &Packet<'_>, icrc: Icrc) {
        self.packets += 1;
        let entry = self.opcodes.entry(packet.bth().opcode_byte()).or_insert((packet.info().name, 0, 0));
        entry.1 += 1;
        entry.2 += packet.payload().len() as u64;
        match packet.aeth().map(|aeth| aeth.syndrome()) {
            Some(syndrome @ (Syndrome::Nak(_) | Syndrome::Rnr { .. } | Syndrome::Reserved(_))) => {
                *self.verdicts.entry(verdict(syndrome)).or_default() += 1;
            }
            Some(Syndrome::Ack { .. }) | None => {}
        }
        *self.icrc.entry(icrc_word(icrc)).or_default() += 1;
    }

    /// Takes a frame's time into account.
    pub fn at(&mut self, at_ns: u64) {
        let (first, last) = self.span.unwrap_or((at_ns, at_ns));
        self.span = Some((first.min(at_ns), last.max(at_ns)));
    }

    /// The summary in words, with what the flows tell.
    pub fn text<'a>(&'a self, flows: &'a Flows) -> impl fmt::Display + 'a {
        Text { summary: self, flows }
    }
}

fn icrc_word(icrc: Icrc) -> &'static str {
    match icrc {
        Icrc::Good => "good",
        Icrc::Bad => "bad",
        Icrc::OtherId(_) => "fits an unknown ip id",
        Icrc::NotCaptured => "not captured",
    }
}

struct Text<'a> {
    summary: &'a Summary,
    flows: &'a Flows,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.summary;
        write!(f, "{} RoCE v2 packets", summary.packets)?;
        if let Some((first, last)) = summary.span {
            write!(f, " in {:.6} s", (last - first) as f64 / 1e9)?;
        }
        writeln!(f, ", {} other frames", summary.other_frames)?;
        for (link, count) in &summary.unknown_links {
            writeln!(f, "{count} frames of link type {link}, which is not understood")?;
        }
        self.opcodes(f)?;
        self.counts(f)?;
        self.connections(f)
    }
}

impl Text<'_> {
    fn opcodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.summary.opcodes.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<30} {:>9} {:>14}", "opcode", "packets", "payload bytes")?;
        for (name, packets, bytes) in self.summary.opcodes.values() {
            writeln!(f, "{name:<30} {packets:>9} {bytes:>14}")?;
        }
        Ok(())
    }

    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flows = self.flows.in_order();
        let (again, late) =
            flows.iter().fold((0, 0), |(a, l), (_, flow)| (a + flow.sent_again, l + flow.late));
        writeln!(f, "\n{:<30} {again:>9}", "retransmissions")?;
        writeln!(f, "{:<30} {late:>9}", "overtaken or lost before")?;
        let sections = [("", &self.summary.verdicts), ("malformed: ", &self.summary.malformed)];
        for (prefix, counts) in sections {
            for (what, count) in counts {
                writeln!(f, "{:<30} {count:>9}", format!("{prefix}{what}"))?;
            }
        }
        for (what, count) in &self.summary.icrc {
            writeln!(f, "{:<30} {count:>9}", format!("icrc {what}"))?;
        }
        Ok(())
    }

    /// Pairs of flows that belong together share a paragraph.
    fn connections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flows = self.flows.in_order();
        if flows.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nconnections (packets, payload bytes, sent again, NAKs, RNR NAKs)")?;
        let mut is_done = vec![false; flows.len()];
        for (index, (key, flow)) in flows.iter().enumerate() {
            if is_done[index] {
                continue;
            }
            self.flow(f, index)?;
            let back = flows.iter().position(|(other, _)| {
                other.src == key.dst && other.dst == key.src && Some(other.qpn) == flow.src_qpn
            });
            if let Some(back) = back.filter(|back| !is_done[*back] && *back != index) {
                is_done[back] = true;
                self.flow(f, back)?;
            }
        }
        Ok(())
    }

    fn flow(&self, f: &mut fmt::Formatter<'_>, index: usize) -> fmt::Result {
        let flows = self.flows.in_order();
        let (key, flow) = &flows[index];
        let src_qpn = flow.src_qpn.map_or_else(|| "?".to_owned(), |qpn| qpn.to_string());
        let name = format!("{} qpn {src_qpn} → {} qpn {}", key.src, key.dst, key.qpn);
        let counts = [flow.packets, flow.payload_bytes, flow.sent_again, flow.naks, flow.rnr_naks];
        write!(f, "  {name:<56}")?;
        for count in counts {
            write!(f, " {count:>8}")?;
        }
        writeln!(f)
    }
}
