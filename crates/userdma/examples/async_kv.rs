//! A key-value store whose GET is one RDMA READ: the server's program takes no part in it.
//!
//! The table lies in memory that clients may read. A key's hash names a bucket; a GET reads the bucket and looks for the key
//! in it. Each entry carries a checksum of its bytes, so a client that reads while the server writes notices, and reads
//! again. A PUT is a message to the server, who answers it. No runtime is used: a thread of the client runs its futures
//! and drives its device itself.
//!
//! Alone, on two addresses of this machine:
//!
//! ```text
//! cargo run --release -p userdma --example async_kv
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! async_kv --on 10.0.0.1                        # the server: waits on TCP port 18518, for ever
//! async_kv --on 10.0.0.2 --to 10.0.0.1          # a client: fills the table, then reads
//! ```

use std::cell::Cell;
use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use futures_executor::block_on;
use futures_util::future;
use userdma::{AccessFlags, AsyncCq, AsyncQp, Device, Inline, Mr, MrSlice, Pd, RemoteMr, exchange};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn run(args: &[&str]) -> Result {
    match args {
        [] => alone("127.0.0.2", "127.0.0.3"),
        ["--on", on] => Server::open(on)?.serve(&TcpListener::bind((*on, PORT))?),
        ["--on", on, "--to", to] => client(on, to),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// Both sides in one program.
pub(crate) fn alone(server: &str, on: &str) -> Result {
    let listener = TcpListener::bind((server, PORT))?;
    let store = Server::open(server)?;
    // It ends with the program.
    std::thread::spawn(move || store.serve(&listener));
    client(on, server)
}

// ---- the table ----

/// A key and its value: what a PUT carries and an entry of the table holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Pair {
    key: u64,
    value: [u8; VALUE],
}

impl Pair {
    /// The form in the table and on the wire: key, value, checksum.
    fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.key.to_be_bytes());
        bytes[8..8 + VALUE].copy_from_slice(&self.value);
        let sum = checksum(&bytes[..8 + VALUE]);
        bytes[8 + VALUE..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// `None` for an entry that is free or was being written.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (data, sum) = bytes.split_at_checked(8 + VALUE)?;
        if sum != checksum(data).to_be_bytes() {
            return None;
        }
        let (key, value) = data.split_at_checked(8)?;
        Some(Self { key: u64::from_be_bytes(key.try_into().ok()?), value: value.try_into().ok()? })
    }
}

/// FNV-1a, with a start that makes zeros wrong.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Where the bucket of a key begins.
fn bucket(key: u64) -> usize {
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    // 24 bits.
    usize::try_from(hash).unwrap_or(0) % BUCKETS * BUCKET
}

// ---- the server ----

#[derive(Clone)]
struct Server {
    cq: AsyncCq,
    pd: Pd,
    /// One writes at a time; readers do not ask.
    table: Arc<Mutex<Mr>>,
    remote: RemoteMr,
}

impl Server {
    fn open(on: &str) -> Result<Self> {
        let device = Device::open(on)?;
        let pd = device.alloc_pd()?;
        let table = pd.alloc(BUCKETS * BUCKET, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
        println!("server: {BUCKETS} buckets of {PER_BUCKET} entries on {on}");
        let (cq, remote) = (AsyncCq::with_thread(&device, 4096)?, table.remote());
        Ok(Self { cq, pd, table: Arc::new(Mutex::new(table)), remote })
    }

    /// A thread for each client.
    fn serve(&self, listener: &TcpListener) -> Result {
        loop {
            let (tcp, from) = listener.accept()?;
            let server = self.clone();
            std::thread::spawn(move || {
                let result = server.serve_client(tcp);
                println!(
                    "server: {from} has gone: {}",
                    result.map_or_else(|e| e.to_string(), |n| format!("{n} PUTs"))
                );
            });
        }
    }

    /// Answers PUTs until an empty message comes.
    fn serve_client(&self, mut tcp: TcpStream) -> Result<u64> {
        let qp = self.cq.create_qp(&self.pd, |qp| qp.max_send_wr(16).max_recv_wr(PUTS))?;
        let mr = self.pd.alloc(PUTS as usize * ENTRY, AccessFlags::LOCAL_WRITE)?;
        let mut puts = qp.receives((0..PUTS as usize).map(|i| mr.slice(ENTRY * i..ENTRY * (i + 1))));
        let (peer, _) = exchange(&mut tcp, &(qp.endpoint(), self.remote))?;
        let qp = qp.connect(&peer)?;
        exchange(&mut tcp, &peer)?;
        let mut count = 0;
        block_on(async {
            while let Some(message) = puts.next().await.transpose()?
                && !message.is_empty()
            {
                let pair = Pair::decode(&message.to_vec()?).ok_or("a PUT that is none")?;
                let stored = self.put(&pair)?;
                qp.send(Inline(&[u8::from(stored)])).await?;
                count += 1;
            }
            Ok(count)
        })
    }

    /// Stores a pair; false if its bucket is full.
    fn put(&self, pair: &Pair) -> Result<bool> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let start = bucket(pair.key);
        let entries = table.to_vec(start..start + BUCKET)?;
        let is_for_it = |entry: &[u8]| Pair::decode(entry).is_none_or(|there| there.key == pair.key);
        let Some(index) = entries.chunks(ENTRY).position(is_for_it) else { return Ok(false) };
        table.write(start + index * ENTRY, &pair.encode())?;
        Ok(true)
    }
}

// ---- the client ----

struct Client {
    qp: AsyncQp,
    table: RemoteMr,
    /// For answers to PUTs, then a bucket for each GET that is under way.
    mr: Mr,
    rereads: Cell<u64>,
}

impl Client {
    async fn put(&self, pair: &Pair) -> Result<bool> {
        let put = pair.encode();
        let answer = self.mr.slice(..1);
        // If something goes wrong, the SEND knows what; the receive is only flushed.
        let (recv, send) = future::join(self.qp.recv(&answer), self.qp.send(Inline(&put))).await;
        send.and(recv)?;
        let mut stored = [0];
        answer.read(0, &mut stored)?;
        Ok(stored == [1])
    }

    /// The value of a key. One READ, unless the entry was just being written.
    async fn get(&self, key: u64, memory: &MrSlice) -> Result<Option<[u8; VALUE]>> {
        let there = self.table.slice(bucket(key) as u64, BUCKET as u64);
        for _ in 0..TRIES {
            self.qp.read(memory, there).await?;
            let mut entries = [0; BUCKET];
            memory.read(0, &mut entries)?;
            let mut entries = entries.chunks(ENTRY);
            if let Some(pair) = entries.clone().filter_map(Pair::decode).find(|pair| pair.key == key) {
                return Ok(Some(pair.value));
            }
            if entries.all(|entry| Pair::decode(entry).is_some() || entry.iter().all(|&byte| byte == 0)) {
                return Ok(None);
            }
            self.rereads.set(self.rereads.get() + 1);
        }
        Err("an entry is being written all the time".into())
    }

    /// One of several tasks: gets keys and checks their values.
    async fn get_many(&self, task: u64) -> Result {
        let start = BUCKET * (1 + usize::try_from(task)?);
        let memory = self.mr.slice(start..start + BUCKET);
        for i in 0..GETS {
            // Every tenth key is not there.
            let key = (i * TASKS + task).wrapping_mul(7919) % (KEYS + KEYS / 9);
            let expected = (key < KEYS).then(|| value(key));
            if self.get(key, &memory).await? != expected {
                return Err(format!("key {key} has another value").into());
            }
        }
        Ok(())
    }
}

fn client(on: &str, to: &str) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let (cq, mut driver) = AsyncCq::create(&device, 64)?;
    let qp = cq.create_qp(&pd, |qp| qp.max_send_wr(32).max_recv_wr(32))?;
    let mut tcp = TcpStream::connect((to, PORT))?;
    let nothing = RemoteMr { addr: 0, rkey: userdma::RKey::new(0), len: 0 };
    let (peer, table) = exchange(&mut tcp, &(qp.endpoint(), nothing))?;
    let qp = qp.connect(&peer)?;
    exchange(&mut tcp, &peer)?;
    let mr = pd.alloc(BUCKET * (1 + usize::try_from(TASKS)?), AccessFlags::LOCAL_WRITE)?;
    let client = Client { qp, table, mr, rereads: Cell::new(0) };

    driver.block_on(async {
        let started = userdma::uptime();
        for key in 0..KEYS {
            if !client.put(&Pair { key, value: value(key) }).await? {
                return Err(format!("the bucket of key {key} is full").into());
            }
        }
        report("PUT", KEYS, started);
        let started = userdma::uptime();
        future::try_join_all((0..TASKS).map(|task| client.get_many(task))).await?;
        report("GET", GETS * TASKS, started);
        println!("client: {TASKS} GETs at a time, {} were read again", client.rereads.get());
        client.qp.send(()).await?;
        Ok(())
    })
}

fn report(what: &str, count: u64, started: std::time::Duration) {
    let took = userdma::uptime() - started;
    println!("client: {count} {what}s in {took:.1?}: {:.0} a second", count as f64 / took.as_secs_f64());
}

/// The value that the key has here.
fn value(key: u64) -> [u8; VALUE] {
    let mut value = [0; VALUE];
    for (at, byte) in value.iter_mut().enumerate() {
        *byte = (key.wrapping_add(at as u64)).wrapping_mul(0xff51_afd7_ed55_8ccd).to_be_bytes()[0];
    }
    value
}

const USAGE: &str = "usage: async_kv [--on ADDRESS [--to ADDRESS]]
  without arguments: server and client on two addresses of this machine
  --on ADDRESS       the address of this machine whose device is used; alone: the server
  --to ADDRESS       the server's address: a client";

/// Bytes of a value.
const VALUE: usize = 48;
/// Bytes of an entry: key, value, checksum.
const ENTRY: usize = 8 + VALUE + 8;
/// Entries of a bucket.
const PER_BUCKET: usize = 16;
/// Bytes of a bucket: what a GET reads.
const BUCKET: usize = PER_BUCKET * ENTRY;
/// Buckets of the table.
const BUCKETS: usize = 1024;
/// Keys that the client stores.
const KEYS: u64 = 4000;
/// GETs under way at once.
const TASKS: u64 = 16;
/// GETs of each of them.
const GETS: u64 = 2000;
/// How often a GET looks at an entry that is being written.
const TRIES: u32 = 100;
/// PUTs that may wait for the server.
const PUTS: u32 = 16;
/// The TCP port where the sides meet.
const PORT: u16 = 18518;
