//! Ping-pong of messages over a reliable connection, as `ibv_rc_pingpong`.
//!
//! Alone, on two addresses of this machine:
//!
//! ```text
//! cargo run --release -p userdma --example rc_pingpong
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! cargo run --release -p userdma --example rc_pingpong -- --on 127.0.0.5                   # waits on TCP port 18515
//! cargo run --release -p userdma --example rc_pingpong -- --on 127.0.0.6 --to 127.0.0.5    # connects
//! ```
//!
//! `--size BYTES`, `--iters N`, `--events` (sleep instead of polling, which wants a processor for each side).

use std::error::Error;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use userdma::{AccessFlags, Cq, Device, Mr, Qp, Rts, SendFlags, Wc, WcOpcode, exchange};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone)]
struct Args {
    on: String,
    to: Option<String>,
    size: usize,
    iters: u32,
    events: bool,
}

fn main() -> std::process::ExitCode {
    match pingpong() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rc_pingpong: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn pingpong() -> Result {
    let (args, alone) = parse()?;
    if !alone {
        return run(&args).map(|report| println!("{report}"));
    }
    // Two threads, two devices, one machine; only packets pass between them.
    let server = Args { on: "127.0.0.2".into(), ..args.clone() };
    let client = Args { on: "127.0.0.3".into(), to: Some("127.0.0.2".into()), ..args };
    let listener = listen(&server)?;
    let server = std::thread::spawn(move || serve(&server, &listener));
    println!("{}", run(&client)?);
    server.join().map_err(|_| "the server's thread panicked")??;
    Ok(())
}

fn run(args: &Args) -> Result<String> {
    match &args.to {
        None => serve(args, &listen(args)?),
        Some(to) => {
            let mut tcp = TcpStream::connect((to.as_str(), PORT))
                .map_err(|e| format!("{to}, TCP port {PORT}: {e}; is the other side running?"))?;
            Side::connect(args, &mut tcp)?.ping(args)
        }
    }
}

fn listen(args: &Args) -> Result<TcpListener> {
    let on = args.on.as_str();
    Ok(TcpListener::bind((on, PORT)).map_err(|e| format!("{on}, TCP port {PORT}: {e}"))?)
}

fn serve(args: &Args, listener: &TcpListener) -> Result<String> {
    let (mut tcp, _) = listener.accept()?;
    Side::connect(args, &mut tcp)?.pong(args)
}

/// What one side has.
struct Side {
    qp: Qp<Rts>,
    cq: Cq,
    mr: Mr,
    events: bool,
}

impl Side {
    fn connect(args: &Args, tcp: &mut TcpStream) -> Result<Self> {
        let device = Device::open(&args.on)?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(512)?;
        let qp = pd.create_qp(&cq, &cq).build()?;
        // The first half is sent, the second received into.
        let mr = pd.alloc(2 * args.size, AccessFlags::LOCAL_WRITE)?;
        for id in 0..RECEIVES {
            qp.post_recv(id, &mr.slice(args.size..))?;
        }
        let peer = exchange(tcp, &qp.endpoint())?;
        let qp = qp.connect(&peer)?;
        // Neither sends before the other is there.
        exchange(tcp, &qp.endpoint())?;
        println!("{}: connected to {} on {}", device.name(), peer.qpn, peer.gid.ip());
        Ok(Self { qp, cq, mr, events: args.events })
    }

    fn ping(&self, args: &Args) -> Result<String> {
        let started = userdma::uptime();
        for round in 0..args.iters {
            self.send(args, round)?;
            self.receive(args, round)?;
        }
        let time = userdma::uptime() - started;
        Ok(report(args, time))
    }

    fn pong(&self, args: &Args) -> Result<String> {
        for round in 0..args.iters {
            self.receive(args, round)?;
            self.send(args, round)?;
        }
        // The last answer has arrived when its completion is there.
        self.drain()?;
        Ok("the peer has the figures".into())
    }

    /// Every message starts with its round.
    fn send(&self, args: &Args, round: u32) -> Result {
        let mark = round.to_be_bytes();
        self.mr.write(0, &mark[..args.size.min(4)])?;
        // Now and then a completion, so that the queue does not fill up.
        let last = round + 1 == args.iters;
        let flags = if round % 32 == 31 || last { SendFlags::SIGNALED } else { SendFlags::empty() };
        Ok(self.qp.post_send(SEND, &self.mr.slice(..args.size), flags)?)
    }

    fn receive(&self, args: &Args, round: u32) -> Result {
        loop {
            let wc = self.next()?;
            if wc.opcode == WcOpcode::Send {
                continue;
            }
            let mut mark = [0; 4];
            let mark = &mut mark[..args.size.min(4)];
            self.mr.read(args.size, mark)?;
            if *mark != round.to_be_bytes()[..mark.len()] {
                return Err(format!("round {round} begins with {mark:?}").into());
            }
            return Ok(self.qp.post_recv(wc.wr_id, &self.mr.slice(args.size..))?);
        }
    }

    /// Waits for the completion of the last send.
    fn drain(&self) -> Result {
        while let [wc, ..] = self.cq.wait_for(1, Some(Duration::from_secs(2)))?[..] {
            wc.check()?;
            if wc.opcode == WcOpcode::Send {
                break;
            }
        }
        Ok(())
    }

    fn next(&self) -> Result<Wc> {
        loop {
            let wc = if self.events { self.cq.wait_for(1, None)?.pop() } else { self.cq.poll_one()? };
            if let Some(wc) = wc {
                return Ok(wc.check()?);
            }
        }
    }
}

fn report(args: &Args, time: Duration) -> String {
    let half_us = time.as_secs_f64() * 1e6 / f64::from(args.iters) / 2.0;
    let mb_s = args.size as f64 / half_us;
    format!("{} rounds of {} bytes: {half_us:.2} µs one way, {mb_s:.1} MB/s", args.iters, args.size)
}

/// The arguments, and whether there is neither `--on` nor `--to`.
fn parse() -> Result<(Args, bool)> {
    let mut args = Args { on: String::new(), to: None, size: 64, iters: 10_000, events: false };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--on" => args.on = value()?,
            "--to" => args.to = Some(value()?),
            "--size" => args.size = value()?.parse()?,
            "--iters" => args.iters = value()?.parse()?,
            "--events" => args.events = true,
            "-h" | "--help" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other => {
                return Err(format!("unknown argument {other}\n{USAGE}").into());
            }
        }
    }
    if !args.events && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("both sides poll and share one processor: --events is faster here");
    }
    let alone = args.on.is_empty() && args.to.is_none();
    if args.on.is_empty() && !alone {
        return Err("--to needs --on: the address of this side".into());
    }
    std::io::stdout().flush()?;
    Ok((args, alone))
}

const USAGE: &str = "usage: rc_pingpong [--on ADDRESS [--to ADDRESS]] [--size BYTES] [--iters N] [--events]
  --on      the address of this side: it waits for the other, or connects if there is --to
  --to      the address of the other side
  --size    bytes of a message: 64 if nothing is said
  --iters   how often it goes to and fro: 10000 if nothing is said
  --events  sleep instead of polling: better where others need the processors
Without addresses both sides run here.";
/// Receives that are posted at any time.
const RECEIVES: u64 = 16;
/// The work request number of sends.
const SEND: u64 = 1 << 32;
/// The TCP port where the sides meet.
const PORT: u16 = 18515;
