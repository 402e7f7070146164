//! One-sided WRITE and READ of a peer's memory while the peer sleeps.
//!
//! Alone, on two addresses of this machine:
//!
//! ```text
//! cargo run --release -p userdma --example rdma_write
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! cargo run --release -p userdma --example rdma_write -- --on 127.0.0.5                   # the target: waits on TCP port 18516
//! cargo run --release -p userdma --example rdma_write -- --on 127.0.0.6 --to 127.0.0.5    # the initiator
//! ```

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use userdma::{AccessFlags, Device, RemoteMr, SendFlags, exchange};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> std::process::ExitCode {
    match write_and_read() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rdma_write: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn write_and_read() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let listener = listen("127.0.0.2")?;
            let target = std::thread::spawn(move || target("127.0.0.2", &listener));
            initiator("127.0.0.3", "127.0.0.2")?;
            target.join().map_err(|_| "the target's thread panicked")?
        }
        ["--on", on] => target(on, &listen(on)?),
        ["--on", on, "--to", to] => initiator(on, to),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

fn listen(on: &str) -> Result<TcpListener> {
    Ok(TcpListener::bind((on, PORT)).map_err(|e| format!("{on}, TCP port {PORT}: {e}"))?)
}

/// Offers memory, sleeps, and looks at it afterwards.
fn target(on: &str, listener: &TcpListener) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(1)?;
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let mr = pd.alloc(LEN, rights)?;
    let qp = pd.create_qp(&cq, &cq).build()?;

    let (mut tcp, _) = listener.accept()?;
    let (peer, _) = exchange(&mut tcp, &(qp.endpoint(), mr.remote()))?;
    let _qp = qp.connect(&peer)?;
    exchange(&mut tcp, &mr.remote())?;

    println!("target: {LEN} bytes are open to {}; this thread sleeps now", peer.gid.ip());
    std::thread::sleep(NAP);
    // Tells that it is awake, and is told that the other is done.
    exchange(&mut tcp, &mr.remote())?;
    let right = mr.to_vec(..)? == pattern();
    println!(
        "target: awake, the memory holds {}",
        if right { "what the peer wrote" } else { "something else" }
    );
    if right { Ok(()) } else { Err("wrong bytes".into()) }
}

/// Writes the peer's memory, reads it back and compares.
fn initiator(on: &str, to: &str) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(16)?;
    let (out, back) = (pd.alloc(LEN, AccessFlags::empty())?, pd.alloc(LEN, AccessFlags::LOCAL_WRITE)?);
    let qp = pd.create_qp(&cq, &cq).build()?;

    let mut tcp = TcpStream::connect((to, PORT))
        .map_err(|e| format!("{to}, TCP port {PORT}: {e}; is the target running?"))?;
    let (peer, remote) = exchange(&mut tcp, &(qp.endpoint(), RemoteMr::NONE))?;
    let qp = qp.connect(&peer)?;
    exchange(&mut tcp, &RemoteMr::NONE)?;

    out.write(0, &pattern())?;
    let started = userdma::uptime();
    qp.post_write(1, &out.slice(..), remote, SendFlags::empty())?;
    qp.post_read(2, &back.slice(..), remote, SendFlags::SIGNALED)?;
    let wc = cq.wait_for(1, Some(PATIENCE))?.pop().ok_or("no answer from the target")?;
    wc.check()?;
    let took = userdma::uptime() - started;
    if back.to_vec(..)? != pattern() {
        return Err("the bytes that came back are not those that went".into());
    }
    println!("initiator: {LEN} bytes written and read back in {took:?}, while the target sleeps for {NAP:?}");
    exchange(&mut tcp, &RemoteMr::NONE)?;
    Ok(())
}

fn pattern() -> Vec<u8> {
    (0u32..).map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]).take(LEN).collect()
}

const USAGE: &str = "usage: rdma_write [--on ADDRESS [--to ADDRESS]]
  --on  the address of this side: the target, or the initiator if there is --to
  --to  the address of the target
Without addresses both sides run here.";
/// Bytes of the target's memory.
const LEN: usize = 1 << 20;
/// How long the target sleeps.
const NAP: Duration = Duration::from_secs(1);
/// How long the initiator waits for the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The TCP port where the sides meet.
const PORT: u16 = 18516;
