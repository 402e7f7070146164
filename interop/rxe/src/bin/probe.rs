//! Sends wrong requests to a `vt -x -d rxe0` that is started again for each, and prints or checks what comes back.
//!
//! ```text
//! userdma-probe OWN-IP PEER-IP          prints the outcome of each
//! userdma-probe OWN-IP PEER-IP FILE     holds them against the table's column `rxe`
//! userdma-probe --receives              prints the length of receive that each needs (vt's -z)
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use userdma_interop_rxe::probe::{DocRow, OWN_QPN, PSN, Prober, Quiet, Row, Target, parse_doc, rows};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["--receives"] => {
            for row in rows() {
                println!("{}", row.receive_len);
            }
            Ok(true)
        }
        [own, peer] => probe(own, peer, None),
        [own, peer, table] => probe(own, peer, Some(table)),
        _ => Err("usage: userdma-probe OWN-IP PEER-IP [TABLE]".into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("userdma-probe: {e}");
            ExitCode::from(2)
        }
    }
}

/// Runs every row; whether all were as the table says.
fn probe(own: &str, peer: &str, table: Option<&str>) -> Result<bool, Box<dyn Error>> {
    let (own, peer): (Ipv4Addr, Ipv4Addr) = (own.parse()?, peer.parse()?);
    let table = table.map(std::fs::read_to_string).transpose()?.map(|text| parse_doc(&text));
    let mut prober = Prober::new(own.into(), peer.into(), Quiet::For(Duration::from_millis(250)))?;
    let mut right = 0;
    let rows = rows();
    for row in &rows {
        let mut stream = connect(peer)?;
        let target = swap(&mut stream, own)?;
        let outcome = prober.run(row, &target)?.to_string();
        let expected = table.as_deref().map(|table| listed(table, row));
        if expected.as_ref().is_none_or(|expected| *expected == Some(outcome.as_str())) {
            right += 1;
            println!("{} | {outcome}", row.name);
        } else {
            println!("{} | {outcome} | the table says {expected:?}", row.name);
        }
    }
    println!("userdma-probe: {right} of {} as they should be", rows.len());
    Ok(right == rows.len())
}

fn listed<'a>(table: &'a [DocRow], row: &Row) -> Option<&'a str> {
    table.iter().find(|listed| listed.request == row.name).map(|listed| listed.rxe.as_str())
}

/// The server is started again for each row, so it may take a while.
fn connect(peer: Ipv4Addr) -> std::io::Result<TcpStream> {
    let address = (peer, 18515);
    for _ in 0..200 {
        // Without a limit of its own: an attempt that is given up may still be taken for a connection over there.
        if let Ok(stream) = TcpStream::connect(address) {
            return Ok(stream);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    TcpStream::connect(address)
}

/// Swaps vt's `struct peer` twice.
fn swap(stream: &mut TcpStream, own: Ipv4Addr) -> std::io::Result<Target> {
    let mut ours = [0; 40];
    ours[0..4].copy_from_slice(&OWN_QPN.to_le_bytes());
    ours[4..8].copy_from_slice(&PSN.to_le_bytes());
    ours[24..40].copy_from_slice(&own.to_ipv6_mapped().octets());
    let mut theirs = [0; 40];
    for _ in 0..2 {
        stream.write_all(&ours)?;
        stream.read_exact(&mut theirs)?;
    }
    let number =
        |from: usize, to: usize| theirs[from..to].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    let word = |at: usize| u32::try_from(number(at, at + 4)).unwrap_or_default();
    Ok(Target { qpn: word(0), addr: number(16, 24), rkey: word(8), len: 8 << 20 })
}
