//! An echo server for many clients, and a client that keeps several messages under way, on tokio.
//!
//! Alone, on two addresses of this machine:
//!
//! ```text
//! cargo run --release -p userdma --features tokio --example async_echo
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! async_echo --on 10.0.0.1                        # the server: waits on TCP port 18517, for ever
//! async_echo --on 10.0.0.2 --to 10.0.0.1          # a client
//! ```

use std::error::Error;

use tokio::net::{TcpListener, TcpStream};
use userdma::{AccessFlags, AsyncCq, AsyncQp, Device, MrSlice, Pd, exchange_async};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
}

pub(crate) async fn run(args: &[&str]) -> Result {
    match args {
        [] => alone("127.0.0.2", "127.0.0.3").await,
        ["--on", on] => serve(on, &TcpListener::bind((*on, PORT)).await?).await,
        ["--on", on, "--to", to] => client(on, to).await,
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// Both sides in one program.
pub(crate) async fn alone(server: &'static str, on: &str) -> Result {
    let listener = TcpListener::bind((server, PORT)).await?;
    let task = tokio::spawn(async move { serve(server, &listener).await });
    let result = client(on, server).await;
    task.abort();
    result
}

/// Serves every client that connects, each with a task and a queue pair of its own on one completion queue.
async fn serve(on: &str, listener: &TcpListener) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let cq = AsyncCq::with_tokio(&device, CLIENTS * 4 * UNDER_WAY)?;
    println!("server: {} echoes on {on}", device.name());
    loop {
        let (tcp, from) = listener.accept().await?;
        let (pd, cq) = (pd.clone(), cq.clone());
        tokio::spawn(async move {
            match echo(tcp, &pd, &cq).await {
                Ok(count) => println!("server: {from} is done, {count} messages"),
                Err(error) => println!("server: {from}: {error}"),
            }
        });
    }
}

/// Sends back what comes until the client says over TCP that it is done.
async fn echo(mut tcp: TcpStream, pd: &Pd, cq: &AsyncCq) -> Result<u64> {
    let qp = cq.create_qp(pd, |qp| qp.max_send_wr(UNDER_WAY).max_recv_wr(2 * UNDER_WAY))?;
    let mr = pd.alloc(2 * UNDER_WAY as usize * SIZE, AccessFlags::LOCAL_WRITE)?;
    // Receives are posted before the peer can send.
    let mut messages = qp.receives((0..2 * UNDER_WAY as usize).map(|i| mr.slice(part(i))));
    let peer = exchange_async(&mut tcp, &qp.endpoint()).await?;
    let qp = qp.connect(&peer)?;
    exchange_async(&mut tcp, &peer).await?;

    let mut count = 0;
    let mut bye = Box::pin(exchange_async(&mut tcp, &peer));
    loop {
        tokio::select! {
            // Giving up the other is harmless: a stream loses nothing.
            result = &mut bye => {
                result?;
                return Ok(count);
            }
            message = messages.next() => {
                let message = message.ok_or("no more messages")??;
                qp.send(message.slice()).await?;
                count += 1;
            }
        }
    }
}

/// Sends messages, several at a time, and compares each with what comes back.
async fn client(on: &str, to: &str) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let cq = AsyncCq::with_tokio(&device, 4 * UNDER_WAY)?;
    let qp = cq.create_qp(&pd, |qp| qp.max_send_wr(UNDER_WAY).max_recv_wr(UNDER_WAY))?;
    let mut tcp = TcpStream::connect((to, PORT)).await?;
    let peer = exchange_async(&mut tcp, &qp.endpoint()).await?;
    let qp = qp.connect(&peer)?;
    exchange_async(&mut tcp, &peer).await?;

    let mr = pd.alloc(2 * UNDER_WAY as usize * SIZE, AccessFlags::LOCAL_WRITE)?;
    let started = userdma::uptime();
    for round in 0..ROUNDS {
        exchange_messages(&qp, |i| mr.slice(part(i)), round).await?;
    }
    let took = userdma::uptime() - started;
    let count = u64::from(ROUNDS * UNDER_WAY);
    println!("client: {count} messages of {SIZE} bytes came back as they went, in {took:.1?}");
    println!("client: {UNDER_WAY} at a time, {:.0} echoes/s", count as f64 / took.as_secs_f64());
    exchange_async(&mut tcp, &peer).await?;
    Ok(())
}

/// One round: all messages are under way at once, and come back in order.
async fn exchange_messages(qp: &AsyncQp, memory: impl Fn(usize) -> MrSlice, round: u32) -> Result {
    let count = UNDER_WAY as usize;
    let mut echoes = Vec::new();
    for i in 0..count {
        memory(i).write(0, &message(round, i))?;
        let (send, recv) = (qp.send(memory(i)), qp.recv(memory(count + i)));
        echoes.push(tokio::spawn(async move {
            // Both are posted at once; nothing is lost if the echo is faster than the acknowledgement.
            tokio::try_join!(recv, send).map(|(received, _)| received.byte_len as usize)
        }));
    }
    let mut all = Vec::new();
    for (i, echo) in echoes.into_iter().enumerate() {
        if echo.await?? != SIZE {
            return Err("a message of another length came back".into());
        }
        let mut back = vec![0; SIZE];
        memory(count + i).read(0, &mut back)?;
        all.push(back);
    }
    // Which task sends first is up to the runtime.
    let mut sent: Vec<_> = (0..count).map(|i| message(round, i)).collect();
    all.sort();
    sent.sort();
    if all == sent { Ok(()) } else { Err("other bytes came back than went".into()) }
}

fn message(round: u32, i: usize) -> Vec<u8> {
    let seed = round.wrapping_mul(0x9e37_79b1) ^ u32::try_from(i).unwrap_or(0);
    (0u32..).map(|at| (at ^ seed).wrapping_mul(0x85eb_ca6b).to_be_bytes()[0]).take(SIZE).collect()
}

/// The `i`-th buffer of a region.
fn part(i: usize) -> std::ops::Range<usize> {
    i * SIZE..(i + 1) * SIZE
}

const USAGE: &str = "usage: async_echo [--on ADDRESS [--to ADDRESS]]
  without arguments: server and client on two addresses of this machine
  --on ADDRESS       the address of this machine whose device is used; alone: the server
  --to ADDRESS       the server's address: a client";

/// Bytes of a message.
const SIZE: usize = 1024;
/// Messages of a client that are under way at once.
const UNDER_WAY: u32 = 16;
/// How often a client sends them.
const ROUNDS: u32 = 500;
/// Clients that find a place in the server's completion queue.
const CLIENTS: u32 = 64;
/// The TCP port where the sides meet.
const PORT: u16 = 18517;
