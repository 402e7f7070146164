//! HTTP over RDMA: an unmodified hyper serves and asks over streams.
//!
//! Alone, on two addresses of this machine:
//!
//! ```text
//! cargo run --release -p userdma --features tokio --example stream_http
//! ```
//!
//! On two machines (or in two terminals):
//!
//! ```text
//! stream_http --on 10.0.0.1                        # the server: listens on port 18522, for ever
//! stream_http --on 10.0.0.2 --to 10.0.0.1          # a client
//! ```

use std::convert::Infallible;
use std::error::Error;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use userdma::{Device, RdmaListener, RdmaStream};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
}

pub(crate) async fn run(args: &[&str]) -> Result {
    match args {
        [] => alone("127.0.0.2", "127.0.0.3").await,
        ["--on", on] => serve(listen(on)?).await,
        ["--on", on, "--to", to] => client(on, to).await,
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// Both sides in one program.
pub(crate) async fn alone(server: &str, on: &str) -> Result {
    let task = tokio::spawn(serve(listen(server)?));
    let result = client(on, server).await;
    task.abort();
    result
}

fn listen(on: &str) -> Result<RdmaListener> {
    let device = Device::open(on)?;
    let address = device.gids().next().ok_or("a device without an address")?.ip();
    Ok(RdmaListener::bind(&device, (address, PORT))?)
}

/// Serves every client that connects, each with a task and a stream of its own.
async fn serve(mut listener: RdmaListener) -> Result {
    println!("server: answers on {}", listener.local_addr());
    loop {
        let stream = listener.accept().await?;
        tokio::spawn(async move {
            let from = stream.peer_addr();
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            match connection.await {
                Ok(()) => println!("server: {from:?} is done"),
                Err(error) => println!("server: {from:?}: {error}"),
            }
        });
    }
}

/// `POST /echo` gives the body back; `GET /bytes` gives [`PAGE`] bytes.
async fn answer(request: Request<Incoming>) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match (request.method().as_str(), request.uri().path()) {
        ("GET", "/bytes") => (StatusCode::OK, page()),
        ("POST", "/echo") => match request.collect().await {
            Ok(body) => (StatusCode::OK, body.to_bytes()),
            Err(error) => (StatusCode::BAD_REQUEST, error.to_string().into()),
        },
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

/// Asks for small and large things over one connection, and looks at every byte.
async fn client(on: &str, to: &str) -> Result {
    let stream = RdmaStream::connect(&Device::open(on)?, (to, PORT)).await?;
    let (mut requests, connection) = handshake(TokioIo::new(stream)).await?;
    let task = tokio::spawn(connection);

    let started = userdma::uptime();
    for i in 0..ECHOES {
        let text = Bytes::from(format!("request {i}"));
        if ask(&mut requests, "POST", "/echo", text.clone()).await? != (StatusCode::OK, text) {
            return Err("another body came back".into());
        }
    }
    let took = userdma::uptime() - started;
    println!("client: {ECHOES} requests, {:.0} a second", f64::from(ECHOES) / took.as_secs_f64());

    let started = userdma::uptime();
    for _ in 0..PAGES {
        if ask(&mut requests, "GET", "/bytes", Bytes::new()).await? != (StatusCode::OK, page()) {
            return Err("another page came".into());
        }
    }
    let took = userdma::uptime() - started;
    let gigabytes = f64::from(PAGES) * PAGE as f64 / 1e9;
    println!("client: {PAGES} pages of {PAGE} bytes, {:.2} GB/s", gigabytes / took.as_secs_f64());

    let (status, _) = ask(&mut requests, "GET", "/nothing", Bytes::new()).await?;
    println!("client: GET /nothing: {status}");
    drop(requests); // hyper shuts the stream down
    Ok(task.await??)
}

/// One request, and its answer's status and body.
async fn ask(
    requests: &mut SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    body: Bytes,
) -> Result<(StatusCode, Bytes)> {
    requests.ready().await?;
    let request = Request::builder().method(method).uri(path).header("host", "rdma").body(Full::new(body))?;
    let response = requests.send_request(request).await?;
    let status = response.status();
    Ok((status, response.collect().await?.to_bytes()))
}

fn page() -> Bytes {
    (0..u32::try_from(PAGE / 4).unwrap_or(0))
        .flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes())
        .collect()
}

const USAGE: &str = "usage: stream_http [--on ADDRESS [--to ADDRESS]]
  without arguments: server and client on two addresses of this machine
  --on ADDRESS       the address of this machine whose device is used; alone: the server
  --to ADDRESS       the server's address: a client";

/// Bytes of a large answer.
const PAGE: usize = 1 << 20;
/// How many of them the client asks for.
const PAGES: u32 = 50;
/// Small requests.
const ECHOES: u32 = 1000;
/// Where the server listens.
const PORT: u16 = 18522;
