//! What the tests of the program share.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use userdma_verbs::{PKey, Psn, Qpn};
use userdma_wire::encap::Encap;
use userdma_wire::{Bth, Opcode, PacketWriter, packet_len};

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its status; -1 if a signal ended it.
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the program without input.
pub(crate) fn userdma(args: &[&str]) -> Ran {
    command(args).stdin(Stdio::null()).output().unwrap().into()
}

/// Runs the program with `input` on its standard input.
pub(crate) fn userdma_with_input(args: &[&str], input: &[u8]) -> Ran {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The program may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.into()
}

/// The program, to be started.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userdma"));
    command.args(args).env_remove("NO_COLOR").env("COLUMNS", "100");
    // Whoever runs the tests may have devices of his own.
    command.env("USERDMA_CONFIG", "").env_remove("USERDMA_DEVICES");
    command
}

/// A file or folder of the captures of the kernel's rxe.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden").join(name)
}

/// An empty folder of the test's own.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("userdma-cli-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A capture file of raw IP packets with one frame: three packets that the kernel was to cut, captured before.
pub(crate) fn super_packet_file() -> Vec<u8> {
    let mut encap = Encap::udp([127, 0, 0, 2].into(), [127, 0, 0, 3].into(), 50_000, 4791);
    let mut transport = Vec::new();
    for (index, len) in [(0_u16, 4096), (1, 4096), (2, 100)] {
        let opcode = if index < 2 { Opcode::RcSendMiddle } else { Opcode::RcSendLast };
        let bth = Bth::new(opcode, Qpn::new(0x4002), Psn::new(100 + u32::from(index)), PKey::DEFAULT);
        let mut packet = vec![0; packet_len(opcode, len)];
        PacketWriter::new(&mut packet, &bth).payload(len).fill(7);
        encap.pseudo().seal(&mut packet, index);
        transport.extend(packet);
    }
    encap.ipv4_id = 0;
    let mut frame = Vec::new();
    encap.write_headers(&mut frame, &transport);
    frame.extend(transport);
    let ip = &frame[14..];
    let len = u32::try_from(ip.len()).unwrap().to_le_bytes();
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 101].map(u32::to_le_bytes).concat();
    file.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    file.extend([len, len].concat());
    file.extend(ip);
    file
}
