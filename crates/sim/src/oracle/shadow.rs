//! What memory must look like: a byte for each byte, and other bytes that are possible where more than one is.

use userdma_mem::Buffer;

/// A buffer's expected contents, or those of a part of it.
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
        if !bytes.is_empty() {
            self.cover(at + bytes.len());
            self.others.push(Other { at, bytes: bytes.to_vec() });
        }
    }

    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[at..at + len]
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.bytes(at, 8));
        u64::from_ne_bytes(bytes)
    }

    /// Compares with the memory from `base` on; afterwards what was found there is what must be there.
    pub(super) fn check(&mut self, name: &str, memory: &Buffer, base: usize) -> Result<(), String> {
        let mut chunk = [0; 4096];
        for start in (0..self.used).step_by(chunk.len()) {
            let actual = &mut chunk[..(self.used - start).min(4096)];
            memory.read((base + start) as u64, actual).map_err(|error| error.to_string())?;
            if *actual != self.bytes[start..start + actual.len()] {
                self.compare(start, actual).map_err(|what| format!("{name} {what}"))?;
                self.bytes[start..start + actual.len()].copy_from_slice(actual);
            }
        }
        self.others.clear();
        Ok(())
    }

    fn compare(&self, start: usize, actual: &[u8]) -> Result<(), String> {
        for (index, &byte) in actual.iter().enumerate() {
            let at = start + index;
            if byte != self.bytes[at] && !self.is_allowed(at, byte) {
                return Err(format!(
                    "byte {at:#x} is {byte:#04x}, must be {:#04x} (found {}, expected {})",
                    self.bytes[at],
                    hex(&actual[index..]),
                    hex(&self.bytes[at..])
                ));
            }
        }
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

/// The first bytes.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
