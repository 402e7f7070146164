//! Memory that Rust does not own is registered at the program's own risk.

use userdma::{AccessFlags, Mr, Pd};

fn register(pd: &Pd, addr: *mut u8) -> Result<Mr, userdma::Error> {
    Mr::register_raw(pd, addr, 4096, AccessFlags::LOCAL_WRITE)
}

fn main() {}
