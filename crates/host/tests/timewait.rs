//! While a connection is not over, timewait included, the number of its queue pair is nobody else's: in the process and, if that
//! ends, in the next one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code)]
mod common;

use std::net::SocketAddr;

use common::{QueuePair, Side, param};
use userdma_host::cm::{CmId, CmOption, EventKind, PortSpace};
use userdma_host::{Host, HostConfig};
use userdma_other::{Other, role, say};
use userdma_verbs::{QpCap, QpInitAttr, QpType, Qpn};

/// A queue pair of `client` that was connected to `server` until just now; its number. Timewait lasts 4.096 µs · 2^`exponent`, 20
/// s at most.
fn disconnected(client: &Side, server: &Side, on: &str, exponent: u8) -> (Host, Qpn, CmId) {
    let service: SocketAddr = format!("{on}:7174").parse().unwrap();
    let listener = server.listen(PortSpace::Tcp, &service.to_string());
    let active = client.create(PortSpace::Tcp);
    client.manager.set_option(active, CmOption::AckTimeout(exponent)).unwrap();
    let active = client.resolve_with(active, service);
    let QueuePair { host, qp, .. } = client.queue_pair(active);
    client.manager.connect(active, &param(qp.qpn(), b"")).unwrap();
    let passive = server.queue.expect(EventKind::ConnectRequest).id;
    server.manager.accept(passive, Some(&param(Qpn::new(9), b""))).unwrap();
    client.queue.expect(EventKind::ConnectResponse);
    client.manager.accept(active, None).unwrap();
    server.queue.expect(EventKind::Established);
    client.manager.disconnect(active).unwrap();
    server.queue.expect(EventKind::Disconnected);
    server.manager.disconnect(passive).unwrap();
    client.queue.expect(EventKind::Disconnected);
    host.destroy_qp(qp.qpn()).unwrap().unwrap();
    server.manager.destroy(passive).unwrap();
    server.manager.destroy(listener).unwrap();
    (host, qp.qpn(), active)
}

/// A small queue pair.
fn small() -> QpInitAttr {
    let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    QpInitAttr { qp_type: QpType::Rc, cap, sq_sig_all: true }
}

/// Makes and destroys as many queue pairs as there are numbers; whether one of them got `number`.
fn comes_back(host: &Host, number: Qpn) -> bool {
    let init = small();
    let came = host.control(move |shard, now| {
        let (pd, cq) = (shard.alloc_pd().unwrap(), shard.create_cq(1, None).unwrap());
        (0..1 << 14).any(|_| {
            let qp = shard.create_qp(pd, &init, cq.number(), cq.number()).unwrap();
            shard.destroy_qp(now, qp.qpn()).unwrap();
            qp.qpn() == number
        })
    });
    came.unwrap()
}

#[test]
fn a_number_comes_back_when_timewait_is_over() {
    let (client, server) = (Side::new(&[&["127.43.9.1"]]), Side::new(&[&["127.43.9.2"]]));
    let (host, number, id) = disconnected(&client, &server, "127.43.9.2", 23);
    assert!(!comes_back(&host, number));
    client.manager.destroy(id).unwrap();
    assert!(!comes_back(&host, number), "timewait needs no owner");

    let (host, number, _) = disconnected(&client, &server, "127.43.9.2", 12);
    client.queue.expect(EventKind::TimewaitExit);
    assert!(comes_back(&host, number));
}

#[test]
fn the_slot_of_a_process_that_ends_in_timewait_is_given_to_nobody() {
    let open = || {
        let addresses = vec!["127.43.9.3".parse().unwrap()];
        Host::open(&HostConfig { addresses, ..HostConfig::default() }).unwrap()
    };
    let slot = || open().slot();
    let _agent = open();
    let first = slot();
    assert_eq!(slot(), first, "in order, it is given again at once");
    let (client, server) = (Side::new(&[&["127.43.9.3"]]), Side::new(&[&["127.43.9.4"]]));
    let (host, number, _) = disconnected(&client, &server, "127.43.9.4", 23);
    assert_eq!(number.get() >> 14, u32::from(first));
    drop((host, client));
    assert_ne!(slot(), first);
}

/// Whether an agent outlives it that knows of its slot, or the next process finds nothing.
#[test]
fn the_number_of_a_process_that_was_killed_in_timewait_is_not_the_next_ones() {
    const TEST: &str = "the_number_of_a_process_that_was_killed_in_timewait_is_not_the_next_ones";
    const AT: [&str; 2] = ["127.81.1.1", "127.81.1.2"];
    match role().as_deref() {
        Some("disconnect") => {
            let (client, server) = (Side::new(&[&AT[..1]]), Side::new(&[&AT[1..]]));
            let ended = disconnected(&client, &server, AT[1], 23);
            say_and_wait(&[ended.1]);
        }
        Some(_) => {
            let addresses = vec![AT[0].parse().unwrap()];
            let host = Host::open(&HostConfig { addresses, ..HostConfig::default() }).unwrap();
            say_and_wait(&some_numbers(&host));
        }
        None => {
            for (beside, agent) in [(0, "timewait-alone"), (1, "timewait-beside")] {
                let start = |role| Other::start_with(TEST, role, &[("USERDMA_AGENT", agent)]);
                let mut beside: Vec<_> = (0..beside).map(|_| start("make")).collect();
                beside.iter_mut().for_each(|other| drop(other.line()));
                let number = start("disconnect").line();
                let next = start("make").line();
                assert!(!next.split(' ').any(|made| made == number), "{agent}: {number} again in {next}");
            }
        }
    }
}

/// The numbers of a few new queue pairs.
fn some_numbers(host: &Host) -> Vec<Qpn> {
    let init = small();
    let made = host.control(move |shard, _| {
        let (pd, cq) = (shard.alloc_pd().unwrap(), shard.create_cq(1, None).unwrap());
        (0..16).map(|_| shard.create_qp(pd, &init, cq.number(), cq.number()).unwrap().qpn()).collect()
    });
    made.unwrap()
}

/// Says numbers of queue pairs, and stays until it is killed.
fn say_and_wait(numbers: &[Qpn]) {
    let numbers: Vec<_> = numbers.iter().map(|qpn| qpn.get().to_string()).collect();
    say(&numbers.join(" "));
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
