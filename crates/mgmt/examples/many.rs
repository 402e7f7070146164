//! What a connection costs the connection manager beside many others, without sockets and clocks: microseconds for each, which
//! should grow as a logarithm of their number. Numbers of connections are arguments.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that meets the unexpected fails")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement reads the clock")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{One, rep, req_params};
use userdma_mgmt::cm::{Cm, ConnId};
use userdma_verbs::Qpn;
use userdma_wire::mad::cm::{Drep, Rep};

fn main() {
    let asked: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let counts = if asked.is_empty() { vec![1000, 4000, 16_000, 64_000, 128_000] } else { asked };
    println!("connections     ask  15 retries  destroy  connect  disconnect  timewait   listen  unlisten");
    for count in counts {
        let [ask, retry, destroy] = unanswered(count);
        let [connect, disconnect, timewait] = ended(count);
        let [listen, unlisten] = listened(count);
        println!(
            "{count:11} {ask:7.1} {retry:11.1} {destroy:8.1} {connect:8.1} {disconnect:11.1} {timewait:9.1} \
             {listen:8.1} {unlisten:9.1}"
        );
    }
}

/// Nobody answers; all are destroyed while their events wait.
fn unanswered(count: u32) -> [f64; 3] {
    let (mut one, mut conns) = (One::new(), Vec::new());
    let ask = each(count, || {
        for _ in 0..count {
            conns.push(one.cm.send_req(one.now, &req_params()).unwrap());
            drain(&mut one.cm);
        }
    });
    let retry = each(count, || pass(&mut one));
    let destroy = each(count, || conns.iter().for_each(|&conn| one.cm.destroy(one.now, conn)));
    one.empty();
    [ask, retry, destroy]
}

/// All are connected, then disconnected, then in timewait.
fn ended(count: u32) -> [f64; 3] {
    let (mut one, mut conns) = (One::new(), Vec::<(ConnId, u32)>::new());
    let connect = each(count, || {
        for theirs in 1..=count {
            let (conn, transaction, _) = one.ask();
            one.hear(transaction, Rep { local_comm_id: theirs, local_qpn: Qpn::new(theirs), ..rep(conn) });
            one.told_one(conn);
            one.cm.send_rtu(conn, &[]).unwrap();
            drain(&mut one.cm);
            conns.push((conn, theirs));
        }
    });
    let disconnect = each(count, || {
        for &(conn, theirs) in &conns {
            one.cm.send_dreq(one.now, conn, &[]).unwrap();
            let (transaction, _) = one.sent_one();
            let drep = Drep { local_comm_id: theirs, remote_comm_id: conn.0, ..Drep::default() };
            one.hear(transaction, drep);
            one.told_one(conn);
        }
    });
    let timewait = each(count, || pass(&mut one));
    [connect, disconnect, timewait]
}

/// So many listen, each to a service of its own.
fn listened(count: u32) -> [f64; 2] {
    let (mut one, mut listeners) = (One::new(), Vec::new());
    let listen = each(count, || {
        listeners.extend((0..count).map(|service| one.cm.listen(service.into(), 0, None).unwrap()));
    });
    let unlisten = each(count, || listeners.iter().for_each(|&listener| one.cm.unlisten(listener)));
    [listen, unlisten]
}

/// Time passes until nothing is due.
fn pass(one: &mut One) {
    while let Some(at) = one.cm.poll_timeout() {
        one.now = at;
        one.cm.handle_timeout(at);
        drain(&mut one.cm);
    }
}

fn drain(cm: &mut Cm) {
    while cm.poll_transmit().is_some() {}
    while cm.poll_number().is_some() {}
}

/// Microseconds for each.
fn each(count: u32, work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}
