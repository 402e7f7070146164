//! A receive into a borrow would write to it after its end.

use userdma::{Qp, Rts};

fn receive(qp: &Qp<Rts>) -> Result<(), userdma::Error> {
    let mut buffer = [0u8; 64];
    qp.post_recv(1, &mut buffer[..])
}

fn main() {}
