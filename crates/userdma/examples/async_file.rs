//! A file server whose program sleeps: clients READ the file's pages out of its page cache.
//!
//! The file is mapped and the mapping is registered for reading. A file that is cut while it is served is no danger to the
//! server: READs of what is gone end in errors at the client.
//!
//! Alone, on two addresses of this machine, with a file of its own making:
//!
//! ```text
//! cargo run --release -p userdma --example async_file
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! async_file --on 10.0.0.1 FILE                        # the server: waits on TCP port 18519, for ever
//! async_file --on 10.0.0.2 --to 10.0.0.1 COPY          # a client
//! ```

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use futures_util::{StreamExt, TryStreamExt, stream};
use userdma::{AccessFlags, AsyncCq, Device, Mr, Pd, RKey, RemoteMr, exchange};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn run(args: &[&str]) -> Result {
    match args {
        [] => alone("127.0.0.2", "127.0.0.3"),
        ["--on", on, file] => Server::open(on, Path::new(file))?.serve(&TcpListener::bind((*on, PORT))?),
        ["--on", on, "--to", to, copy] => fetch(on, to, Path::new(copy)),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// Both sides in one program, which compares the files.
pub(crate) fn alone(server: &str, on: &str) -> Result {
    let dir = std::env::temp_dir().join(format!("userdma-async-file-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let result = serve_and_compare(server, on, &dir);
    std::fs::remove_dir_all(&dir)?;
    result
}

fn serve_and_compare(at: &str, on: &str, dir: &Path) -> Result {
    let (original, copy) = (dir.join("original"), dir.join("copy"));
    let words = (0..LEN / 4).flat_map(|i: u32| i.wrapping_mul(0x9e37_79b1).to_ne_bytes());
    std::fs::write(&original, words.collect::<Vec<_>>())?;
    let listener = TcpListener::bind((at, PORT))?;
    let server = Server::open(at, &original)?;
    // It ends with the program.
    std::thread::spawn(move || server.serve(&listener));
    fetch(on, at, &copy)?;
    if std::fs::read(&original)? != std::fs::read(&copy)? {
        return Err("the copy differs".into());
    }
    println!("both files are the same");
    Ok(())
}

struct Server {
    pd: Pd,
    cq: AsyncCq,
    mr: Mr,
}

impl Server {
    fn open(on: &str, path: &Path) -> Result<Self> {
        let device = Device::open(on)?;
        let pd = device.alloc_pd()?;
        let cq = AsyncCq::with_thread(&device, 4096)?;
        let mr = map(&pd, &File::open(path)?)?;
        println!("server: {} bytes of {} on {on}", mr.len(), path.display());
        Ok(Self { pd, cq, mr })
    }

    /// Tells each client where the file lies, and keeps its queue pair until it has gone.
    fn serve(&self, listener: &TcpListener) -> Result {
        std::thread::scope(|scope| {
            loop {
                let (tcp, from) = listener.accept()?;
                scope.spawn(move || match self.serve_client(tcp) {
                    Ok(()) => println!("server: {from} has what it wanted"),
                    Err(error) => println!("server: {from}: {error}"),
                });
            }
        })
    }

    fn serve_client(&self, mut tcp: TcpStream) -> Result {
        let qp = self.cq.create_qp(&self.pd, |qp| qp.max_send_wr(1).max_recv_wr(1))?;
        let (peer, _) = exchange(&mut tcp, &(qp.endpoint(), self.mr.remote()))?;
        let _qp = qp.connect(&peer)?;
        exchange(&mut tcp, &peer)?;
        // This thread sleeps while the client reads; it is told when it is done.
        exchange(&mut tcp, &peer)?;
        Ok(())
    }
}

/// Maps a file and registers the mapping for reading by peers.
fn map(pd: &Pd, file: &File) -> Result<Mr> {
    let len = usize::try_from(file.metadata()?.len())?;
    // SAFETY: the kernel chooses the place, so nothing that exists is touched.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(format!("cannot map the file: {}", std::io::Error::last_os_error()).into());
    }
    // SAFETY: no Rust reference to the mapping is ever made, and it stays until the program ends.
    Ok(unsafe { Mr::register_raw(pd, at.cast(), len, AccessFlags::REMOTE_READ) }?)
}

/// Reads the whole file, several pieces at a time, into `copy`.
fn fetch(on: &str, to: &str, copy: &Path) -> Result {
    let device = Device::open(on)?;
    let pd = device.alloc_pd()?;
    let (cq, mut driver) = AsyncCq::create(&device, 64)?;
    let qp = cq.create_qp(&pd, |qp| qp.max_send_wr(32).max_recv_wr(1))?;
    let mut tcp = TcpStream::connect((to, PORT))?;
    let nothing = RemoteMr { addr: 0, rkey: RKey::new(0), len: 0 };
    let (peer, remote) = exchange(&mut tcp, &(qp.endpoint(), nothing))?;
    let qp = qp.connect(&peer)?;
    exchange(&mut tcp, &peer)?;

    let buffers = pd.alloc(PIECES * PIECE, AccessFlags::LOCAL_WRITE)?;
    let mut file = File::create(copy)?;
    let started = userdma::uptime();
    driver.block_on(async {
        let read = |at: u64| {
            let len = (remote.len - at).min(PIECE as u64);
            // As many pieces are under way as there are buffers, and they end in order.
            let buffer = usize::try_from(at).unwrap_or(0) / PIECE % PIECES * PIECE;
            let slice = buffers.slice(buffer..buffer + usize::try_from(len).unwrap_or(PIECE));
            let request = qp.read(&slice, remote.slice(at, len));
            async move { request.await.map(|_| (at, slice)) }
        };
        let pieces = stream::iter((0..remote.len).step_by(PIECE)).map(read).buffered(PIECES - 1);
        let mut bytes = vec![0; PIECE];
        pieces
            .map_err(Box::<dyn Error + Send + Sync>::from)
            .try_for_each(|(at, slice)| {
                let bytes = &mut bytes[..slice.len()];
                let copied = slice.read(0, bytes).map_err(Into::into);
                let written = copied.and_then(|()| Ok(file.write_all_at(bytes, at)?));
                std::future::ready(written)
            })
            .await
    })?;
    file.flush()?;
    let took = userdma::uptime() - started;
    println!(
        "client: {} bytes in {took:.1?}: {:.2} GB/s, {} READs of {} KiB at a time",
        remote.len,
        remote.len as f64 / took.as_secs_f64() / 1e9,
        PIECES - 1,
        PIECE >> 10
    );
    exchange(&mut tcp, &peer)?;
    Ok(())
}

const USAGE: &str = "usage: async_file [--on ADDRESS FILE | --on ADDRESS --to ADDRESS COPY]
  without arguments: server and client on two addresses of this machine, with a file of their own
  --on ADDRESS FILE                  the server of FILE; ADDRESS is the one of this machine whose device is used
  --on ADDRESS --to ADDRESS COPY     a client that writes what it reads to COPY";

/// Bytes of the file, if there is none.
const LEN: u32 = 64 << 20;
/// Bytes of a READ.
const PIECE: usize = 256 << 10;
/// Buffers: one is being written to the copy while the others are under way.
const PIECES: usize = 9;
/// The TCP port where the sides meet.
const PORT: u16 = 18519;
