//! What memory must look like: a byte for each byte, and other bytes that are possible where more than one is.

use crate::Memory;

/// A buffer's expected contents.
#[derive(Debug)]
pub(super) struct Shadow {
    bytes: Vec<u8>,
    /// Other possible contents, by place.
    others: Vec<Other>,
    /// Bytes beyond this one were never used, and are not looked at.
    used: usize,
}

#[derive(Debug)]
struct Other {
    at: usize,
    bytes: Vec<u8>,
}

impl Shadow {
    /// `len` zeros.
    pub(super) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len], others: Vec::new(), used: 0 }
    }

    /// The bytes up to `end` are looked at from now on.
    pub(super) fn cover(&mut self, end: usize) {
        self.used = self.used.max(end.min(self.bytes.len()));
    }

    /// These bytes are there.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.cover(at + bytes.len());
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Each of these bytes may be there instead of what is.
    pub(super) fn allow(&mut self, at: usize, bytes: &[u8]) {
        self.cover(at + bytes.len());
        self.others.push(Other { at, bytes: bytes.to_vec() });
    }

    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[at..at + len]
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.bytes(at, 8));
        u64::from_ne_bytes(bytes)
    }

    /// Compares with the memory; afterwards what was found there is what must be there.
    pub(super) fn check(&mut self, name: &str, memory: &Memory) -> Result<(), String> {
        let actual = memory.bytes(0, self.used);
        for (at, (&actual, &expected)) in actual.iter().zip(&self.bytes).enumerate() {
            if actual != expected && !self.is_allowed(at, actual) {
                let run = actual_run(&memory.bytes(at as u64, (self.used - at).min(16)));
                return Err(format!(
                    "{name} byte {at:#x} is {actual:#04x}, must be {expected:#04x} (found {run}, expected {})",
                    actual_run(&self.bytes[at..(at + 16).min(self.used)])
                ));
            }
        }
        self.bytes[..self.used].copy_from_slice(&actual);
        self.others.clear();
        Ok(())
    }

    fn is_allowed(&self, at: usize, byte: u8) -> bool {
        self.others.iter().any(|other| {
            at.checked_sub(other.at)
                .and_then(|index| other.bytes.get(index))
                .is_some_and(|&possible| possible == byte)
        })
    }
}

fn actual_run(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
