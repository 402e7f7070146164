//! Before RTS there is no peer to send to.

use userdma::{Init, Inline, Qp, Rtr, SendFlags};

fn too_early(qp: &Qp<Init>) -> Result<(), userdma::Error> {
    qp.post_send(1, Inline(b"hello"), SendFlags::SIGNALED)
}

fn still_too_early(qp: &Qp<Rtr>) -> Result<(), userdma::Error> {
    qp.post_send(1, Inline(b"hello"), SendFlags::SIGNALED)
}

fn main() {}
