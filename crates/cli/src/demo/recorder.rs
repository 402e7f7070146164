//! The packets of each step, as the device's own capture shows them.

use std::fs::File;
use std::io::BufWriter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use userdma::Device;
use userdma_link::pcapng::{self, PacketInfo, Writer};

use crate::capture::decode::{Decoded, Icrc, Prepared};
use crate::capture::file::{CapturedFrame, Direction, Frames};
use crate::capture::words;
use crate::failure::Failure;

/// Makes the file that the user wants the packets in.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::new(format!("capture file {}: {error}", path.display())))
}

/// Records, step after step.
#[derive(Debug)]
pub(super) struct Recorder {
    port: u16,
    /// The file that the device writes: memory that vanishes with the program, however it ends.
    scratch: OwnedFd,
    frames: Vec<CapturedFrame>,
}

/// The packets of one step.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Each packet in words.
    pub(super) lines: Vec<String>,
    /// How many of them travelled from A to B.
    pub(super) sent: usize,
    /// How many came back.
    pub(super) received: usize,
    /// Whether each ICRC was right and nothing was malformed.
    pub(super) is_sound: bool,
}

impl Recorder {
    pub(super) fn new(port: u16) -> Result<Self, Failure> {
        let scratch = memfd_create("userdma-demo-capture", MemfdFlags::CLOEXEC)
            .map_err(|error| Failure::new(format!("memory for captured packets: {error}")))?;
        Ok(Self { port, scratch, frames: Vec::new() })
    }

    /// Captures from now on.
    pub(super) fn start(&self, device: &Device) -> Result<(), Failure> {
        Ok(device.start_capture(self.path())?)
    }

    /// Captures no longer; what there was.
    pub(super) fn stop(&mut self, device: &Device) -> Result<Recording, Failure> {
        device.stop_capture()?;
        let file = File::open(self.path())?;
        let frames =
            Frames::new(std::io::BufReader::new(file)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let frames = frames.map_err(|error| Failure::new(format!("the device's capture {error}")))?;
        let mut recording = Recording { is_sound: true, ..Recording::default() };
        for frame in &frames {
            recording.add(frame, self.port);
        }
        self.frames.extend(frames);
        Ok(recording)
    }

    /// Writes everything to the file that the user wants.
    pub(super) fn keep(&self, file: File) -> Result<(), Failure> {
        let problem = |error: std::io::Error| Failure::new(format!("capture file: {error}"));
        let mut writer = Writer::new(BufWriter::new(file), "userdma demo").map_err(problem)?;
        let interface = writer.interface("host A").map_err(problem)?;
        for frame in &self.frames {
            let direction = match frame.direction {
                Some(Direction::Inbound) => pcapng::Direction::Inbound,
                Some(Direction::Outbound) | None => pcapng::Direction::Outbound,
            };
            let info = PacketInfo { interface, at_ns: frame.at_ns.unwrap_or(0), direction, comment: None };
            writer.packet(&info, &[], &frame.bytes).map_err(problem)?;
        }
        writer.flush().map_err(problem)
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.scratch.as_raw_fd())
    }
}

impl Recording {
    fn add(&mut self, frame: &CapturedFrame, port: u16) {
        match frame.direction {
            Some(Direction::Inbound) => self.received += 1,
            Some(Direction::Outbound) | None => self.sent += 1,
        }
        let Some(prepared) = Prepared::new(frame) else { return self.is_sound = false };
        prepared.decode(port, |decoded| match decoded {
            Decoded::Packet { encap, packet, icrc, .. } => {
                self.is_sound &= icrc == Icrc::Good;
                let name = packet.info().name;
                let psn = packet.bth().psn();
                let details = words::details(&packet);
                self.lines.push(format!("{} → {}  {name:<26} psn {psn}  {details}", encap.src, encap.dst));
            }
            Decoded::Malformed { encap, reason, .. } => {
                self.is_sound = false;
                self.lines.push(format!("{} → {}  malformed: {reason}", encap.src, encap.dst));
            }
            Decoded::Other => self.is_sound = false,
        });
    }
}
