//! READ, atomics and receives need memory that stays.

use userdma::{Inline, Qp, RemoteMr, Rts, SendFlags};

fn read(qp: &Qp<Rts>, remote: RemoteMr) -> Result<(), userdma::Error> {
    qp.post_read(1, Inline(&[0; 8]), remote, SendFlags::SIGNALED)
}

fn main() {}
