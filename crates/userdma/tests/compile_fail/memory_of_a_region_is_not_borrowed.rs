//! Peers may change a region at any time: there is no slice of its bytes.

use userdma::Mr;

fn peek(mr: &Mr) -> &[u8] {
    &mr[..]
}

fn borrow(mr: &Mr) -> &[u8] {
    mr.as_ref()
}

fn main() {}
