//! `userdma capture`: a capture file, decoded the way a person wants to read it.

pub mod connections;
pub mod decode;
pub mod file;
mod line;
pub mod linktype;
pub mod summary;
pub mod words;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use userdma_verbs::Qpn;

use crate::args::CaptureArgs;
use crate::failure::Failure;

use connections::{Flows, Freshness};
use decode::{Decoded, Icrc, Prepared};
use file::{CapturedFrame, FileError, Frames};
use line::Line;
use summary::Summary;

/// Decodes the file that `args` name to `out`.
///
/// # Errors
/// Those of the file, with its name, after what could be decoded; those of `out`.
pub fn run(args: &CaptureArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (name, reader) = open(&args.file)?;
    print(args, &name, reader, out)
}

/// Decodes a capture that comes from `reader` and is called `name`; what `args` say of a file is not looked at.
///
/// # Errors
/// As [`run`].
pub fn print(args: &CaptureArgs, name: &str, reader: impl Read, out: &mut impl Write) -> Result<(), Failure> {
    let mut printer = Printer::new(args);
    let ended = printer.print_all(reader, out).map_err(|error| match error {
        PrintError::File(error) => Failure::new(format!("{name} {error}")),
        PrintError::Out(error) => Failure::from(error),
    });
    if args.stats {
        write!(out, "{}", printer.summary.text(&printer.flows))?;
    } else if ended.is_ok() {
        printer.write_leftovers(out)?;
    }
    ended
}

/// Decodes any bytes in every way. Files come from anywhere, so none may do more than be refused.
pub fn fuzz(bytes: &[u8]) {
    for (verbose, stats, qpn) in [(false, false, None), (true, false, Some(0x11)), (false, true, None)] {
        let args = CaptureArgs { file: "-".into(), verbose, qpn, stats, port: userdma_wire::ROCE_V2_PORT };
        // An error is an answer, too.
        let _ = print(&args, "the input", bytes, &mut io::sink());
    }
}

fn open(path: &Path) -> Result<(String, Box<dyn Read>), Failure> {
    if path == Path::new("-") {
        return Ok(("standard input".to_owned(), Box::new(io::stdin().lock())));
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Failure::new(format!("cannot open {name}: {error}")))?;
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(Failure::new(format!("{name} is a folder")));
    }
    Ok((name, Box::new(BufReader::with_capacity(1 << 18, file))))
}

enum PrintError {
    File(FileError),
    Out(io::Error),
}

struct Printer<'a> {
    args: &'a CaptureArgs,
    number: u64,
    printed: u64,
    start_ns: Option<u64>,
    address_width: usize,
    flows: Flows,
    summary: Summary,
}

impl<'a> Printer<'a> {
    fn new(args: &'a CaptureArgs) -> Self {
        Self {
            args,
            number: 0,
            printed: 0,
            start_ns: None,
            address_width: 0,
            flows: Flows::default(),
            summary: Summary::default(),
        }
    }

    fn print_all(&mut self, reader: impl Read, out: &mut impl Write) -> Result<(), PrintError> {
        for frame in Frames::new(reader).map_err(PrintError::File)? {
            let frame = frame.map_err(PrintError::File)?;
            self.print_frame(&frame, out).map_err(PrintError::Out)?;
        }
        Ok(())
    }

    fn print_frame(&mut self, frame: &CapturedFrame, out: &mut impl Write) -> io::Result<()> {
        self.number += 1;
        if let Some(at) = frame.at_ns {
            self.summary.at(at);
            self.start_ns.get_or_insert(at);
        }
        let Some(prepared) = Prepared::new(frame) else {
            *self.summary.unknown_links.entry(frame.link.0).or_default() += 1;
            return Ok(());
        };
        let mut result = Ok(());
        prepared.decode(self.args.port, |decoded| {
            if result.is_ok() {
                result = self.print_decoded(frame, prepared.cut_bytes(), &decoded, out);
            }
        });
        result
    }

    fn print_decoded(
        &mut self,
        frame: &CapturedFrame,
        cut_bytes: usize,
        decoded: &Decoded<'_>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let freshness = match decoded {
            Decoded::Packet { encap, packet, icrc, .. } => {
                self.summary.count(packet, *icrc);
                self.flows.observe(encap, packet, *icrc != Icrc::Bad)
            }
            Decoded::Malformed { reason, .. } => {
                *self.summary.malformed.entry(reason.to_string()).or_default() += 1;
                Freshness::New
            }
            Decoded::Other => {
                self.summary.other_frames += 1;
                return Ok(());
            }
        };
        if self.args.stats || !self.is_wanted(decoded) {
            return Ok(());
        }
        self.printed += 1;
        let line = Line {
            number: self.number,
            after_ns: frame.at_ns.map(|at| at.saturating_sub(self.start_ns.unwrap_or(at))),
            direction: frame.direction,
            cut_bytes,
            freshness,
            is_verbose: self.args.verbose,
        };
        line.write(decoded, &mut self.address_width, out)
    }

    /// Whether the packet goes to the queue pair that was asked for, or, once that is known, comes from it.
    fn is_wanted(&self, decoded: &Decoded<'_>) -> bool {
        let Some(wanted) = self.args.qpn else { return true };
        let wanted = Qpn::new(wanted);
        match decoded {
            Decoded::Packet { encap, packet, .. } => {
                packet.bth().qpn() == wanted
                    || self.flows.of(encap, packet).is_some_and(|flow| flow.src_qpn == Some(wanted))
            }
            Decoded::Malformed { .. } | Decoded::Other => false,
        }
    }

    /// Why nothing was printed, if nothing was, and what is not understood.
    fn write_leftovers(&self, out: &mut impl Write) -> io::Result<()> {
        for (link, count) in &self.summary.unknown_links {
            writeln!(out, "{count} frames of link type {link}, which is not understood")?;
        }
        if self.summary.packets == 0 && self.summary.malformed.is_empty() {
            let port = self.args.port;
            writeln!(out, "no RoCE v2 packet (UDP port {port}) among {} frames", self.number)?;
        } else if let (Some(qpn), 0) = (self.args.qpn, self.printed) {
            let (qpn, packets) = (Qpn::new(qpn), self.summary.packets);
            writeln!(out, "no packet of queue pair {qpn} among {packets}; --stats lists the connections")?;
        }
        Ok(())
    }
}
