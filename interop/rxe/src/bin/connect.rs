//! Connects by the Rust API to what speaks the connection manager's protocol, and exchanges a message with it, as rdma_client
//! and rdma_server do.
//!
//! ```text
//! userdma-connect OWN-IP PORT              listens, accepts, receives a message and answers it, and waits for the end
//! userdma-connect OWN-IP PEER-IP PORT      connects, sends a message, receives the answer, and disconnects
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use userdma::{AccessFlags, ConnAttr, Connection, Cq, Device, Init, Listener, Mr, Qp, Rts, SendFlags};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        [own, port] => Side::new(own).and_then(|side| side.serve(port.parse()?)),
        [own, peer, port] => Side::new(own).and_then(|side| side.ask((peer.parse()?, port.parse()?))),
        _ => Err("usage: userdma-connect OWN-IP [PEER-IP] PORT".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("userdma-connect: {error}");
            ExitCode::from(1)
        }
    }
}

/// A device with a queue pair, which has a receive posted.
struct Side {
    device: Device,
    own: IpAddr,
    cq: Cq,
    mr: Mr,
    qp: Qp<Init>,
}

impl Side {
    fn new(own: &str) -> Result<Self, Box<dyn Error>> {
        let device = Device::open(own)?;
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(4)?);
        let mr = pd.alloc(2 * LEN, AccessFlags::LOCAL_WRITE)?;
        let qp = pd.create_qp(&cq, &cq).build()?;
        qp.post_recv(RECEIVED, &mr.slice(..LEN))?;
        Ok(Self { own: own.parse()?, device, cq, mr, qp })
    }

    fn serve(self, port: u16) -> Result<(), Box<dyn Error>> {
        let listener = Listener::bind(&self.device, (self.own, port))?;
        println!("{} listens", listener.local_addr());
        let request = listener.accept_blocking(Some(PATIENCE))?;
        println!("{} asks {:?}", request.peer_addr().ip(), text(request.private_data()));
        let attr = ConnAttr::saying("welcome");
        let made = request.accept_blocking(self.qp, &attr, Some(PATIENCE))?;
        wait(&self.cq, RECEIVED)?;
        send(&made, &self.cq, &self.mr)?;
        // The other side has what it wanted, and ends it.
        let patience = userdma::uptime() + PATIENCE;
        while !made.is_closed() {
            if userdma::uptime() > patience {
                return Err("the other side does not end the connection".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        made.disconnect_blocking()?;
        println!("closed");
        Ok(())
    }

    fn ask(self, peer: (IpAddr, u16)) -> Result<(), Box<dyn Error>> {
        let attr = ConnAttr::saying("may-I");
        let made = Connection::connect_blocking(&self.device, peer, self.qp, &attr, Some(PATIENCE))?;
        println!("{} says {:?}", made.peer_addr().ip(), text(made.private_data()));
        send(&made, &self.cq, &self.mr)?;
        wait(&self.cq, RECEIVED)?;
        made.disconnect_blocking()?;
        println!("disconnected");
        Ok(())
    }
}

fn send(qp: &Qp<Rts>, cq: &Cq, mr: &Mr) -> Result<(), Box<dyn Error>> {
    qp.post_send(SENT, &mr.slice(LEN..), SendFlags::SIGNALED)?;
    wait(cq, SENT)
}

/// Waits for a completion; the other may come before.
fn wait(cq: &Cq, wr_id: u64) -> Result<(), Box<dyn Error>> {
    loop {
        let wc = cq.wait_for(1, Some(PATIENCE))?.pop().ok_or("nothing completes")?;
        wc.check()?;
        if wc.wr_id == wr_id {
            return Ok(());
        }
    }
}

/// Private data has zeros behind it.
fn text(private_data: &[u8]) -> String {
    let len = private_data.iter().position(|byte| *byte == 0).unwrap_or(private_data.len());
    String::from_utf8_lossy(&private_data[..len]).into_owned()
}

/// Bytes of a message, as in rdma_client.
const LEN: usize = 16;
const RECEIVED: u64 = 1;
const SENT: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(20);
