//! `into_vec` consumes the region: it cannot be used afterwards.

use userdma::Mr;

fn use_after(mr: Mr) -> Vec<u8> {
    let vec = mr.into_vec().unwrap();
    mr.write(0, b"late").unwrap();
    vec
}

fn main() {}
