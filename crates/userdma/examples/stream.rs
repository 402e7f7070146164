//! Bytes over a stream, as over a TCP socket: one side sends them, the other sends back what they come to.
//!
//! Alone, on two addresses of this machine:
//!
//! ```text
//! cargo run --release -p userdma --example stream
//! cargo run --release -p userdma --example stream -- --bytes 10737418240 --faults loss=0.001
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! stream --on 10.0.0.1                        # the receiver: listens on port 18521
//! stream --on 10.0.0.2 --to 10.0.0.1          # the sender
//! ```

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::Duration;

use userdma::{AsyncCq, BlockingStream, Device, RdmaListener, StreamAttr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn run(args: &[&str]) -> Result {
    let (mut on, mut to, mut bytes, mut faults) = (None, None, 1 << 28, "");
    let mut args = args.iter();
    while let Some(&name) = args.next() {
        let mut value = || args.next().copied().ok_or(USAGE);
        match name {
            "--on" => on = Some(value()?),
            "--to" => to = Some(value()?),
            "--bytes" => bytes = value()?.parse()?,
            "--faults" => faults = value()?,
            "-h" | "--help" => {
                println!("{USAGE}");
                return Ok(());
            }
            _ => return Err(USAGE.into()),
        }
    }
    match (on, to) {
        (None, None) => alone(["127.0.0.2", "127.0.0.3"], bytes, faults),
        (Some(on), None) => receive(&mut listen(&open(on, faults)?)?),
        (Some(on), Some(to)) => send(&open(on, faults)?, to, bytes),
        (None, Some(_)) => Err(USAGE.into()),
    }
}

/// Both sides in one program.
pub(crate) fn alone([receiver, sender]: [&str; 2], bytes: u64, faults: &str) -> Result {
    let mut listener = listen(&open(receiver, faults)?)?;
    let device = open(sender, faults)?;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || receive(&mut listener));
        let sent = send(&device, receiver, bytes);
        sent.and_then(|()| receiving.join().unwrap_or_else(|_| Err("the receiver panicked".into())))
    })
}

fn open(on: &str, faults: &str) -> Result<Device> {
    Ok(Device::builder().name(on).faults(faults).open()?)
}

/// Listens on all addresses of the device.
fn listen(device: &Device) -> Result<RdmaListener> {
    let any = if device.gids().any(|gid| gid.ip().is_ipv4()) { "0.0.0.0" } else { "::" };
    Ok(RdmaListener::bind_with(device, (any, PORT), StreamAttr::default(), AsyncCq::with_thread)?)
}

/// Receives from one sender.
fn receive(listener: &mut RdmaListener) -> Result {
    let mut stream = listener.accept_blocking(PATIENCE)?;
    let mut digest = Digest::default();
    let bytes = io::copy(&mut stream, &mut digest)?;
    stream.write_all(&digest.finish().to_be_bytes())?;
    stream.shutdown()?;
    println!("receiver: {bytes} bytes, {:#018x}", digest.finish());
    Ok(())
}

/// Sends, and compares what it comes to on both sides.
fn send(device: &Device, to: &str, bytes: u64) -> Result {
    let mut stream = BlockingStream::connect(device, (to, PORT), PATIENCE)?;
    let mut digest = Digest::default();
    let mut piece = vec![0; 1 << 17];
    let started = userdma::uptime();
    let mut seed = started.subsec_nanos().into();
    let mut left = bytes;
    while left > 0 {
        fill(&mut piece, &mut seed);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        digest.write_all(&piece[..len])?;
        stream.write_all(&piece[..len])?;
        left -= len as u64;
    }
    stream.shutdown()?; // the receiver reads the end; the way back stays open
    let mut theirs = [0; 8];
    stream.read_exact(&mut theirs)?;
    let took = userdma::uptime() - started;
    println!("sender:   {bytes} bytes, {:#018x}", digest.finish());
    println!("in {took:.1?}: {:.2} GB/s", bytes as f64 / 1e9 / took.as_secs_f64());
    if u64::from_be_bytes(theirs) == digest.finish() {
        Ok(())
    } else {
        Err("other bytes came than went".into())
    }
}

/// Bytes that nobody can guess from their neighbours.
fn fill(piece: &mut [u8], seed: &mut u64) {
    for word in piece.chunks_mut(8) {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*seed ^ *seed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&mixed.to_be_bytes()[..word.len()]);
    }
}

/// What bytes come to, however they are cut: each counts, and so does its place.
#[derive(Default)]
struct Digest {
    sum: u64,
    word: u64,
    len: u64,
}

impl Digest {
    fn finish(&self) -> u64 {
        (self.sum ^ self.word).wrapping_mul(MULTIPLIER).rotate_left(31) ^ self.len
    }

    fn word(&mut self, word: u64) {
        self.sum = (self.sum.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    }

    fn byte(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        self.len += 1;
        if self.len.is_multiple_of(8) {
            let word = std::mem::take(&mut self.word);
            self.word(word);
        }
    }
}

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Bytes up to a whole word, whole words, the rest.
        let to_word = usize::try_from(self.len.wrapping_neg() % 8).unwrap_or(0).min(bytes.len());
        let (start, rest) = bytes.split_at(to_word);
        start.iter().for_each(|byte| self.byte(*byte));
        let words = rest.chunks_exact(8);
        let end = words.remainder();
        for word in words {
            self.word(word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
            self.len += 8;
        }
        end.iter().for_each(|byte| self.byte(*byte));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const USAGE: &str = "usage: stream [--on ADDRESS [--to ADDRESS]] [--bytes NUMBER] [--faults FAULTS]
  without addresses: sender and receiver on two addresses of this machine
  --on ADDRESS       the address of this machine whose device is used; alone: the receiver
  --to ADDRESS       the receiver's address: the sender
  --bytes NUMBER     how many bytes are sent, 2^28 unless said
  --faults FAULTS    what a bad network does, as loss=0.001";

const MULTIPLIER: u64 = 0x517c_c1b7_2722_0a95;
/// Where the receiver listens.
const PORT: u16 = 18521;
/// How long one side waits for the other.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_matter_how_bytes_are_cut() {
        let mut bytes = vec![0; 1000];
        fill(&mut bytes, &mut 7);
        let whole = |bytes: &[u8]| {
            let mut digest = Digest::default();
            digest.write_all(bytes).unwrap();
            digest.finish()
        };
        let mut cut = Digest::default();
        for piece in bytes.chunks(13) {
            cut.write_all(piece).unwrap();
        }
        assert_eq!(cut.finish(), whole(&bytes));
        bytes[500] ^= 1;
        assert_ne!(cut.finish(), whole(&bytes));
        assert_ne!(whole(&[0; 3]), whole(&[0; 4]));
    }
}
