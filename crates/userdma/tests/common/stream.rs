//! Two devices in one process, and a stream between them.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]
#![allow(dead_code, reason = "each test uses its part")]

use userdma::{AsyncCq, Device, Error, RdmaStream, StreamAttr, StreamSetup};

/// How a pair is made.
pub(crate) struct StreamOptions {
    pub(crate) faults: &'static str,
    /// Of each side.
    pub(crate) attr: [StreamAttr; 2],
    /// Who drives.
    pub(crate) cq: fn(&Device, u32) -> Result<AsyncCq, Error>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { faults: "", attr: [StreamAttr::default(); 2], cq: AsyncCq::with_thread }
    }
}

impl StreamOptions {
    /// Rings of this size, and so many messages.
    pub(crate) fn small(ring: u32, messages: u16) -> Self {
        Self { attr: [StreamAttr { ring, messages, ..StreamAttr::default() }; 2], ..Self::default() }
    }
}

/// A stream between 127.45.`net`.2 and 127.45.`net`.3. Each test has a net of its own.
pub(crate) fn stream_pair(net: u8, options: &StreamOptions) -> (RdmaStream, RdmaStream) {
    let (a, b) = setups(net, options);
    connect(a, b)
}

/// Both sides before they are connected.
pub(crate) fn setups(net: u8, options: &StreamOptions) -> (StreamSetup, StreamSetup) {
    (setup(net, 2, options, options.attr[0]), setup(net, 3, options, options.attr[1]))
}

fn setup(net: u8, host: u8, options: &StreamOptions, attr: StreamAttr) -> StreamSetup {
    let device = Device::builder().address([127, 45, net, host]).faults(options.faults).open().unwrap();
    let cq = (options.cq)(&device, StreamSetup::places(attr.messages)).unwrap();
    StreamSetup::new(&device.alloc_pd().unwrap(), &cq, attr).unwrap()
}

pub(crate) fn connect(a: StreamSetup, b: StreamSetup) -> (RdmaStream, RdmaStream) {
    let (to_a, to_b) = ((a.endpoint(), a.offer()), (b.endpoint(), b.offer()));
    (a.connect(&to_b.0, &to_b.1).unwrap(), b.connect(&to_a.0, &to_a.1).unwrap())
}

/// The byte of a stream at this position: a function of the position and of whose stream it is.
pub(crate) fn fill(bytes: &mut [u8], position: u64, seed: u64) {
    for (i, byte) in (0_u64..).zip(bytes) {
        let at = position + i;
        let word = ((at / 8) ^ (seed << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *byte = word.rotate_left(29).to_be_bytes()[(at % 8) as usize];
    }
}

/// Whether these are the bytes from there on.
pub(crate) fn check(bytes: &[u8], position: u64, seed: u64) {
    let mut expected = vec![0; bytes.len()];
    fill(&mut expected, position, seed);
    let wrong = bytes.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "of {} bytes from {position} on", bytes.len());
}
