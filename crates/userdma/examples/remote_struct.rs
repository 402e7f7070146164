//! A struct in another program's memory: written there and read back by RDMA, every error handled.
//!
//! Alone, on two addresses of this machine:
//!
//! ```text
//! cargo run --release -p userdma --example remote_struct
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! cargo run --release -p userdma --example remote_struct -- --on 127.0.0.5                   # the owner: TCP port 18520
//! cargo run --release -p userdma --example remote_struct -- --on 127.0.0.6 --to 127.0.0.5    # the writer
//! ```
//!
//! The writer makes a mistake first, to show what becomes of it: a WRITE that leaves the owner's memory is refused, nothing is
//! written, and the queue pairs of both sides are in the error state. A new connection is the way out.

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use userdma::{
    AccessFlags, Cq, Device, Inline, Mr, Pd, Qp, RemoteMr, Rts, SendFlags, WcError, WcStatus, exchange,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What the programs share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    sensor: u64,
    celsius: f64,
    flags: u32,
}

/// Both programs must mean the same bytes, so their order is said here and not left to `repr(C)`.
impl Reading {
    const LEN: usize = 20;

    fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.sensor.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.celsius.to_be_bytes());
        bytes[16..].copy_from_slice(&self.flags.to_be_bytes());
        bytes
    }

    fn decode(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = bytes;
        Self {
            sensor: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            celsius: f64::from_be_bytes([i, j, k, l, m, n, o, p]),
            flags: u32::from_be_bytes([q, r, s, t]),
        }
    }
}

/// Offers memory for one reading, takes no part in what happens to it, and looks at it when a writer says that it is done.
fn owner(on: &str, listener: &TcpListener) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let mr = pd.alloc(Reading::LEN, rights)?;
    loop {
        let (mut tcp, _) = listener.accept()?;
        let cq = device.create_cq(1)?;
        let qp = pd.create_qp(&cq, &cq).build()?;
        let (peer, _) = exchange(&mut tcp, &(qp.endpoint(), mr.remote()))?;
        let qp = qp.connect(&peer)?;
        // The writer may begin.
        tcp.write_all(&[READY])?;

        // Sleeps until the writer has something to say. The end of the stream is how a writer that is gone is noticed.
        let is_done = tcp.read_exact(&mut [0]).is_ok();
        let mut bytes = [0; Reading::LEN];
        mr.read(0, &mut bytes)?;
        println!("owner:  the memory holds {:?}; queue pair in {:?}", Reading::decode(bytes), qp.state());
        while let Some(event) = device.poll_event()? {
            println!("owner:  event: {event}");
        }
        if is_done {
            return Ok(());
        }
    }
}

/// Writes a reading into the owner's memory and reads it back.
fn writer(on: &str, to: &str) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let reading = Reading { sensor: 17, celsius: 21.5, flags: 1 };

    println!("writer: a mistake on purpose: a WRITE that ends 4 bytes past the owner's memory");
    let mut wrong = Connection::open(&device, &pd, to)?;
    wrong.remote = wrong.remote.at(4);
    match wrong.write(&reading) {
        Err(Failure::Failed(error)) if error.status == WcStatus::RemAccessErr => {
            println!("writer: refused, as it must be: {error}");
        }
        Err(failure) => return Err(failure.into()),
        Ok(()) => return Err("a WRITE past the end was not refused".into()),
    }
    drop(wrong);

    let mut right = Connection::open(&device, &pd, to)?;
    right.write(&reading)?;
    let back = right.read()?;
    if back != reading {
        return Err(format!("{back:?} came back instead of {reading:?}").into());
    }
    println!("writer: written and read back: {back:?}");
    Ok(right.tcp.write_all(&[DONE])?)
}

/// A connection to an owner. It has a completion queue of its own: what comes late is not mistaken for another's.
struct Connection {
    tcp: TcpStream,
    qp: Qp<Rts>,
    cq: Cq,
    /// Where READs land.
    scratch: Mr,
    remote: RemoteMr,
}

impl Connection {
    fn open(device: &Device, pd: &Pd, to: &str) -> Result<Self> {
        let cq = device.create_cq(2)?;
        let qp = pd.create_qp(&cq, &cq).max_send_wr(1).max_recv_wr(1).build()?;
        let scratch = pd.alloc(Reading::LEN, AccessFlags::LOCAL_WRITE)?;
        let mut tcp = TcpStream::connect((to, PORT))
            .map_err(|e| format!("{to}, TCP port {PORT}: {e}; is the owner running?"))?;
        let (peer, remote) = exchange(&mut tcp, &(qp.endpoint(), RemoteMr::NONE))?;
        if remote.len != Reading::LEN as u64 {
            return Err(format!("the owner offers {} bytes, not {}", remote.len, Reading::LEN).into());
        }
        let qp = qp.connect(&peer)?;
        tcp.read_exact(&mut [0])?;
        Ok(Self { tcp, qp, cq, scratch, remote })
    }

    /// When it returns, the owner's memory has the reading.
    fn write(&self, reading: &Reading) -> std::result::Result<(), Failure> {
        self.qp.post_write(1, Inline(&reading.encode()), self.remote, SendFlags::SIGNALED)?;
        self.wait()
    }

    fn read(&self) -> std::result::Result<Reading, Failure> {
        self.qp.post_read(2, &self.scratch.slice(..), self.remote, SendFlags::SIGNALED)?;
        self.wait()?;
        let mut bytes = [0; Reading::LEN];
        self.scratch.read(0, &mut bytes)?;
        Ok(Reading::decode(bytes))
    }

    /// Waits for the one request that is posted.
    fn wait(&self) -> std::result::Result<(), Failure> {
        let wc = self.cq.wait_for(1, Some(PATIENCE))?.pop().ok_or(Failure::TimedOut)?;
        wc.check()?;
        Ok(())
    }
}

/// Why the owner's memory was not written or read.
#[derive(Debug)]
enum Failure {
    /// The call was refused and has done nothing. The connection goes on.
    Refused(userdma::Error),
    /// The work request was not executed. The connection is in the error state: make a new one.
    Failed(WcError),
    /// Nobody knows yet. It may still be executed, so the connection is of no use: drop it.
    TimedOut,
}

impl From<userdma::Error> for Failure {
    fn from(error: userdma::Error) -> Self {
        Self::Refused(error)
    }
}

impl From<WcError> for Failure {
    fn from(error: WcError) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::TimedOut => write!(f, "no answer within {PATIENCE:?}"),
        }
    }
}

impl std::error::Error for Failure {}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("remote_struct: {error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn run(args: &[&str]) -> Result {
    match args {
        [] => alone("127.0.0.2", "127.0.0.3"),
        ["--on", on] => owner(on, &listen(on)?),
        ["--on", on, "--to", to] => writer(on, to),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// Both sides in one program.
pub(crate) fn alone(on: &'static str, writer_on: &str) -> Result {
    let listener = listen(on)?;
    let owner = std::thread::spawn(move || owner(on, &listener));
    writer(writer_on, on)?;
    owner.join().map_err(|_| "the owner's thread panicked")?
}

fn listen(on: &str) -> Result<TcpListener> {
    Ok(TcpListener::bind((on, PORT)).map_err(|e| format!("{on}, TCP port {PORT}: {e}"))?)
}

const USAGE: &str = "usage: remote_struct [--on ADDRESS [--to ADDRESS]]
  --on  the address of this side: the owner, or the writer if there is --to
  --to  the address of the owner
Without addresses both sides run here.";
/// How long an answer may take. A peer that is gone is noticed before.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the owner says: it has connected.
const READY: u8 = b'r';
/// What the writer says: it has written.
const DONE: u8 = b'd';
/// The TCP port where the sides meet.
const PORT: u16 = 18520;
