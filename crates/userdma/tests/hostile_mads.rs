//! Somebody on the network sends whatever he likes to queue pair 1 of two processes that are connected, and knows all numbers of
//! their connection: it stays, nothing of what he does is left, and who listens is found.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use common::{ALL, LONG};
use futures_executor::block_on;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma::{AsyncCq, AsyncQp, ConnAttr, Connection, Device, Init, Inline, Listener, Mr, Pd};
use userdma_other::{Other, is_other, say};
use userdma_verbs::Psn;
use userdma_wire::mad::{Header, MAD_LEN};
use userdma_wire::{Packet, Pseudo, gsi};

const SERVER: [u8; 4] = [127, 45, 70, 2];
const CLIENT: [u8; 4] = [127, 45, 70, 3];
const STRANGER: [u8; 4] = [127, 45, 70, 9];

struct Side {
    device: Device,
    pd: Pd,
    cq: AsyncCq,
    mr: Mr,
}

impl Side {
    fn open(address: [u8; 4]) -> Self {
        let device = Device::builder().address(address).open().unwrap();
        let (pd, cq) = (device.alloc_pd().unwrap(), AsyncCq::with_thread(&device, 256).unwrap());
        let mr = pd.alloc(4096, ALL).unwrap();
        Self { device, pd, cq, mr }
    }

    fn qp(&self) -> AsyncQp<Init> {
        self.cq.create_qp(&self.pd, |qp| qp.max_send_wr(8).max_recv_wr(8)).unwrap()
    }

    fn accept(&self, listener: &Listener) -> Option<Connection> {
        let request = listener.accept_blocking(LONG).unwrap();
        let is_friend = request.peer_addr().ip() == IpAddr::from(CLIENT);
        is_friend.then(|| request.accept_blocking(self.qp(), &ConnAttr::default(), LONG).unwrap())
    }

    fn connect(&self, to: &str) -> Connection {
        Connection::connect_blocking(&self.device, to, self.qp(), &ConnAttr::default(), LONG).unwrap()
    }

    /// Says a number, and hears it again.
    fn check(&self, connection: &Connection, number: u64) {
        block_on(async {
            connection.send(Inline(&number.to_be_bytes())).await.unwrap();
            connection.recv(self.mr.slice(..8)).await.unwrap();
        });
        assert_eq!(self.mr.to_vec(..8).unwrap(), number.to_be_bytes());
    }
}

/// Echoes what comes on the first connection, until that is `END`; says what it holds when that is 0; takes all other connections
/// of the friend, and refuses everybody else.
fn serve() {
    let side: &Side = Box::leak(Box::new(Side::open(SERVER)));
    let listener = Listener::bind(&side.device, (IpAddr::from(SERVER), 0)).unwrap();
    say(&listener.local_addr().to_string());
    let first = side.accept(&listener).unwrap();
    std::thread::spawn(move || {
        let mut friends = Vec::new();
        loop {
            friends.extend(side.accept(&listener));
            friends.retain(|friend: &Connection| !friend.is_closed());
        }
    });
    loop {
        block_on(first.recv(side.mr.slice(..8))).unwrap();
        let came = side.mr.to_vec(..8).unwrap();
        block_on(first.send(side.mr.slice(..8))).unwrap();
        match u64::from_be_bytes(*came.first_chunk().unwrap()) {
            0 => say(&held().to_string()),
            END => return,
            _ => {}
        }
    }
}

/// Descriptors and threads of this process.
fn held() -> usize {
    ["/proc/self/fd", "/proc/self/task"].map(|of| std::fs::read_dir(of).unwrap().count()).iter().sum()
}

/// The management datagrams of a capture: each begins as those of the communication manager do.
fn captured(path: &Path) -> Vec<[u8; MAD_LEN]> {
    let file = std::fs::read(path).unwrap();
    let starts = (0..file.len()).filter(|&at| file[at..].starts_with(&[1, 7, 2, 3]));
    starts.filter_map(|at| file[at..].first_chunk().copied()).collect()
}

/// A connection, and the messages by which it and another were made and that was ended.
fn overheard(client: &Side, address: &str) -> (Connection, Vec<[u8; MAD_LEN]>) {
    let path = std::env::temp_dir().join(format!("userdma-hostile.{}.pcapng", std::process::id()));
    client.device.start_capture(&path).unwrap();
    let connection = client.connect(address);
    drop(client.connect(address));
    client.check(&connection, 1);
    client.device.stop_capture().unwrap();
    let known = captured(&path);
    std::fs::remove_file(&path).unwrap();
    // REQ, REP, RTU and DREQ.
    let attributes: Vec<_> = known.iter().map(|mad| mad[17]).collect();
    assert!([0x10, 0x13, 0x14, 0x15].iter().all(|wanted| attributes.contains(wanted)), "{attributes:x?}");
    (connection, known)
}

/// One of the messages with some bytes changed, and how many of them are sent.
fn mutated(dice: &mut SmallRng, known: &[[u8; MAD_LEN]]) -> ([u8; MAD_LEN], usize) {
    let mut mad = known[dice.random_range(0..known.len())];
    for _ in 0..dice.random_range(0..4) {
        // Headers and ids more than the rest.
        let end = if dice.random() { 36 } else { MAD_LEN };
        mad[dice.random_range(0..end)] = dice.random();
    }
    let len = if dice.random_range(0..16) == 0 { 4 * dice.random_range(0..64) } else { MAD_LEN };
    (mad, len)
}

/// A socket whose packets are right up to their datagram.
struct Stranger {
    socket: UdpSocket,
    psn: Psn,
}

impl Stranger {
    fn open() -> Self {
        let socket = UdpSocket::bind((IpAddr::from(STRANGER), 4791)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        Self { socket, psn: Psn::default() }
    }

    fn send(&mut self, to: [u8; 4], mad: &[u8; MAD_LEN], len: usize) {
        let mut room = [0; gsi::PACKET_LEN];
        gsi::write(&mut room, self.psn, mad);
        self.psn = self.psn.add(1);
        let len = room.len() - (MAD_LEN - len);
        Pseudo::new(STRANGER.into(), to.into(), 4791, 4791).seal(&mut room[..len], 0);
        self.socket.send_to(&room[..len], (IpAddr::from(to), 4791)).unwrap();
    }

    /// Asks what the class can do, until the answer comes: everything before has been looked at.
    fn wait(&mut self, to: [u8; 4], transaction: u64) {
        let mut question = [0; MAD_LEN];
        question[..4].copy_from_slice(&[1, 7, 2, Header::METHOD_GET]);
        question[8..16].copy_from_slice(&transaction.to_be_bytes());
        question[17] = 1;
        loop {
            self.send(to, &question, MAD_LEN);
            let mut room = [0; 2048];
            while let Ok(len) = self.socket.recv(&mut room) {
                let packet = Packet::parse(&room[..len]).unwrap();
                let mad = gsi::mad_of(&packet).unwrap();
                if mad[3] == Header::METHOD_GET_RESP && mad[8..16] == question[8..16] {
                    return;
                }
            }
        }
    }
}

#[test]
fn a_hundred_thousand_mutated_messages_touch_no_connection_of_others() {
    if is_other() {
        return serve();
    }
    let mut server =
        Other::start("a_hundred_thousand_mutated_messages_touch_no_connection_of_others", "other");
    let address = server.line();
    let client = Side::open(CLIENT);
    let (connection, known) = overheard(&client, &address);
    let mut stranger = Stranger::open();
    stranger.wait(SERVER, 1);
    stranger.wait(CLIENT, 2);
    client.check(&connection, 0);
    let before: (usize, usize) = (held(), server.line().parse().unwrap());
    let seed = std::env::var("USERDMA_SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    println!("USERDMA_SEED={seed}");
    let mut dice = SmallRng::seed_from_u64(seed);
    for round in 0..100_000 {
        let to = if dice.random() { SERVER } else { CLIENT };
        let (mad, len) = mutated(&mut dice, &known);
        stranger.send(to, &mad, len);
        if round % 500 == 499 {
            stranger.wait(SERVER, 3 + round);
            stranger.wait(CLIENT, 3 + round);
            client.check(&connection, 1 + round);
        }
    }
    drop(client.connect(&address));
    client.check(&connection, 0);
    // A few come and go with the address's agent, which may be ours.
    let after: (usize, usize) = (held(), server.line().parse().unwrap());
    assert!(after.0 < before.0 + 16 && after.1 < before.1 + 16, "{before:?}, then {after:?}");
    client.check(&connection, END);
}

/// The server ends.
const END: u64 = u64::MAX;
