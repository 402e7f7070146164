//! Memory of our own, made for registration: page aligned, zeroed, never borrowed.

/// An allocation that is reached by copies only, so that devices and peers may change it at any time.
#[derive(Debug)]
pub struct Buffer {
    base: usize,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes on a page boundary (anonymous memory; huge pages are asked for from 2 MiB on).
    pub fn new(len: usize) -> std::io::Result<Self> {
        let _ = len;
        todo!()
    }

    /// First address.
    pub fn addr(&self) -> usize {
        self.base
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
