//! Going to RTS uses up the queue pair in INIT.

use userdma::{Endpoint, Init, Qp};

fn twice(qp: Qp<Init>, peer: &Endpoint) -> Result<(), userdma::Error> {
    let _first = qp.connect(peer)?;
    let _second = qp.connect(peer)?;
    Ok(())
}

fn main() {}
