//! Writes the seeds of the fuzzers: what rxe said in the golden captures of `crates/wire`.
//!
//! ```text
//! cargo run -p userdma-sim --example fuzz_seeds -- FOLDER
//! ```
//! makes FOLDER/packet, /responder, /unreliable, /datagrams, /requester and /capture. Copied to the corpus,
//! `cargo xtask fuzz --minimise` keeps of them what reaches something new, and those called `kept-…`.

#![allow(clippy::expect_used, reason = "a tool for the tree's own files")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use userdma_sim::fuzz::{border_seeds, requester_seed, responder_seed};
use userdma_wire::encap::EncapFrame;
use userdma_wire::{Packet, ROCE_V2_PORT, Service};

fn main() {
    let out = PathBuf::from(std::env::args().nth(1).expect("a folder to write to"));
    for target in ["packet", "responder", "unreliable", "datagrams", "requester", "capture"] {
        fs::create_dir_all(out.join(target)).expect("a folder of ours");
    }
    for (name, seed) in border_seeds() {
        put(&out, "responder", &format!("kept-{name}"), &seed);
        put(&out, "unreliable", &format!("kept-{name}"), &seed);
    }
    let mut shapes = BTreeSet::new();
    for file in captures() {
        let name = file.file_stem().expect("a file").to_string_lossy().into_owned();
        let frames = frames(&file);
        packets(&out, &name, &frames, &mut shapes);
        programs(&out, &name, &frames);
        let head = fs::read(&file).expect("a capture");
        put(&out, "capture", &name, &head[..head.len().min(4000)]);
    }
}

fn captures() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
    let mut files = vec![golden.join("probe_errors.pcap")];
    for folder in ["rxe", "rxe4096"] {
        let entries = fs::read_dir(golden.join(folder)).expect("the captures");
        files.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap"));
    files.sort();
    files
}

fn frames(file: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(File::open(file).expect("a capture")).expect("a capture");
    let mut frames = Vec::new();
    while let Some(Ok(packet)) = reader.next_packet() {
        frames.push(packet.data.into_owned());
    }
    frames
}

fn transport(frame: &[u8]) -> Option<(EncapFrame<'_>, Packet<'_>)> {
    let parsed = EncapFrame::parse(frame).ok().filter(|parsed| parsed.encap.dst_port == ROCE_V2_PORT)?;
    let packet = Packet::parse(parsed.transport).ok()?;
    Some((parsed, packet))
}

/// One short packet of each opcode and padding, and each that a probe made wrong.
fn packets(out: &Path, name: &str, frames: &[Vec<u8>], shapes: &mut BTreeSet<(u8, usize)>) {
    for (index, frame) in frames.iter().enumerate() {
        let Some((parsed, packet)) = transport(frame) else { continue };
        if packet.payload().len() <= 256 && shapes.insert((packet.bth().opcode_byte(), packet.pad_len())) {
            put(out, "packet", &format!("{name}-{index}"), parsed.transport);
            if packet.pad_len() == 1 {
                put(out, "packet", &format!("{name}-{index}-frame"), frame);
            }
        }
    }
}

/// The first requests to each queue pair, and the first answers to it.
fn programs(out: &Path, name: &str, frames: &[Vec<u8>]) {
    let mut sides: BTreeMap<u32, (Vec<Packet<'_>>, Vec<Packet<'_>>)> = BTreeMap::new();
    let mut mtu = 256;
    for (parsed, packet) in frames.iter().filter_map(|frame| transport(frame)) {
        if packet.info().service != Service::Rc {
            continue;
        }
        mtu = mtu.max(if packet.payload().len() > 256 { 1024 } else { 256 });
        let from_server = u32::from(parsed.encap.src_port % 2);
        let key = packet.bth().qpn().get() << 1 | from_server;
        let side = sides.entry(key).or_default();
        if packet.info().is_response() { side.1.push(packet) } else { side.0.push(packet) }
    }
    for (key, (requests, _)) in &sides {
        if !requests.is_empty() {
            let seed = responder_seed(&requests[..requests.len().min(24)], mtu);
            put(out, "responder", &format!("{name}-{key:x}"), &seed);
            put(out, "unreliable", &format!("{name}-{key:x}"), &seed);
            put(out, "datagrams", &format!("{name}-{key:x}"), &seed);
        }
    }
    let requests: Vec<_> = sides.values().flat_map(|side| side.0.iter().copied()).take(12).collect();
    let answers: Vec<_> = sides.values().flat_map(|side| side.1.iter().copied()).take(24).collect();
    if !requests.is_empty() {
        put(out, "requester", name, &requester_seed(&requests, &answers, mtu));
    }
}

fn put(out: &Path, target: &str, name: &str, bytes: &[u8]) {
    fs::write(out.join(target).join(name), bytes).expect("a file of ours");
}
