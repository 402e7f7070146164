//! A process is killed right behind connecting: its peer is told, though it only receives, by the agent that another process of the
//! address has, or gets because the one that was killed had it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{ALL, LONG};
use futures_executor::block_on;
use userdma::{AsyncCq, AsyncQp, ConnAttr, Connection, Device, Init, Listener, Mr, Pd};
use userdma_other::{Other, role, say};

struct Side {
    device: Device,
    pd: Pd,
    cq: AsyncCq,
}

impl Side {
    fn open(address: &str) -> Self {
        let device = Device::open(address).unwrap();
        let (pd, cq) = (device.alloc_pd().unwrap(), AsyncCq::with_thread(&device, 16).unwrap());
        Self { device, pd, cq }
    }

    fn qp(&self) -> AsyncQp<Init> {
        self.cq.create_qp(&self.pd, |qp| qp.max_send_wr(4).max_recv_wr(4)).unwrap()
    }

    fn mr(&self) -> Mr {
        self.pd.alloc(64, ALL).unwrap()
    }
}

/// Accepts one connection, and does nothing any more.
fn serve() {
    let side = Side::open(HERE);
    let listener = Listener::bind(&side.device, (HERE, 0)).unwrap();
    say(&listener.local_addr().to_string());
    let request = listener.accept_blocking(LONG).unwrap();
    let _accepted = request.accept_blocking(side.qp(), &ConnAttr::default(), LONG).unwrap();
    sleep();
}

/// Connects, and says how a receive ends.
fn call(server: &str) {
    let side = Side::open(THERE);
    let made =
        Connection::connect_blocking(&side.device, server, side.qp(), &ConnAttr::default(), LONG).unwrap();
    let mr = side.mr();
    say("connected");
    let error = block_on(made.recv(mr.slice(..))).unwrap_err();
    say(if error.is_flushed() { "flushed" } else { "failed" });
}

fn sleep() -> ! {
    loop {
        std::thread::park();
    }
}

#[test]
fn the_peer_of_a_process_that_is_killed_is_told() {
    const TEST: &str = "the_peer_of_a_process_that_is_killed_is_told";
    match role().as_deref() {
        None => {}
        Some("serve") => return serve(),
        Some("stay") => {
            let _device = Device::open(HERE).unwrap();
            say("stays");
            sleep();
        }
        Some(server) => return call(server),
    }
    // Whoever else has agents here ends when he likes, and one that ends together with the process may know nothing of it.
    let start = |role: &str| Other::start_with(TEST, role, &[("USERDMA_AGENT", "killed")]);
    let mut stays = None;
    for _ in 0..4 {
        let mut server = start("serve");
        let address = server.line();
        // The first server has the agent, the others have not.
        if stays.is_none() {
            assert_eq!(stays.insert(start("stay")).line(), "stays");
        }
        let mut client = start(&address);
        assert_eq!(client.line(), "connected");
        server.child.kill().unwrap();
        assert_eq!(client.line(), "flushed");
    }
}

const HERE: &str = "127.45.61.2";
const THERE: &str = "127.45.61.3";
