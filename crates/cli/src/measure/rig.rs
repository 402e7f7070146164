//! What a side has for measurements: two connected queue pairs, one for small and one for large messages, memory for
//! them, and a TCP connection.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Socket, Type};
use userdma::{AccessFlags, Cq, Mr, Qp, RemoteMr, RtrAttr, Rts, RtsAttr, Wc, WcOpcode, WcStatus, exchange};

use super::stream::Streams;
use super::udp::UdpSockets;
use super::{Kind, Order, Setup};
use crate::failure::Failure;
use crate::pair::pattern::{self, Difference};
use crate::pair::side::Side;

/// A side's part in measurements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// It begins, and takes the time.
    Leader,
    /// It answers.
    Follower,
}

/// A side, ready to measure.
#[derive(Debug)]
pub struct Rig {
    role: Role,
    pub(super) setup: Setup,
    pub(super) mr: Mr,
    pub(super) remote: RemoteMr,
    pub(super) small: Lane,
    pub(super) large: Lane,
    pub(super) tcp: TcpStream,
    pub(super) udp: UdpSockets,
    pub(super) streams: Streams,
}

/// A queue pair and its completion queue.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) qp: Qp<Rts>,
    pub(super) cq: Cq,
}

impl Rig {
    /// The rig of the following side, whose address is `address`, connected over `stream` at the same time as the leading one.
    ///
    /// # Errors
    /// Those of the device and of the connection.
    pub fn follow(
        side: &Side,
        setup: Setup,
        address: IpAddr,
        stream: &mut TcpStream,
    ) -> Result<Self, Failure> {
        let own = setup.open(address)?;
        let tcp = connect_tcp(address, stream)?;
        Self::new(own.as_ref().unwrap_or(side), Role::Follower, setup, stream, tcp)
    }

    /// The rig of the leading side, whose address is `address`.
    ///
    /// # Errors
    /// Those of the device and of the connection.
    pub fn lead(side: &Side, setup: Setup, address: IpAddr, stream: &mut TcpStream) -> Result<Self, Failure> {
        let own = setup.open(address)?;
        let tcp = accept_tcp(address, stream)?;
        Self::new(own.as_ref().unwrap_or(side), Role::Leader, setup, stream, tcp)
    }

    fn new(
        side: &Side,
        role: Role,
        setup: Setup,
        stream: &mut TcpStream,
        tcp: TcpStream,
    ) -> Result<Self, Failure> {
        let rtr = setup.rtr()?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let mr = side.pd.alloc(LARGE + MAX_LEN, access)?;
        let small = lane(side, &rtr, stream, &|qp| {
            (0..SLOTS).try_for_each(|slot| qp.post_recv(slot as u64, &mr.slice(slot_range(slot))))
        })?;
        let large = lane(side, &rtr, stream, &|qp| {
            (0..LARGE_RECVS).try_for_each(|_| qp.post_recv(0, &mr.slice(LARGE..LARGE + MAX_LEN)))
        })?;
        let remote = exchange(stream, &mr.remote())?;
        tcp.set_nodelay(true)?;
        let udp =
            UdpSockets::open(tcp.local_addr()?.ip(), tcp.peer_addr()?.ip(), setup.recv_buffer, |ports| {
                exchange_ports(stream, ports)
            })?;
        let streams = Streams::connect(side, setup, stream, &tcp)?;
        Ok(Self { role, setup, mr, remote, small, large, tcp, udp, streams })
    }

    /// Which part this side has.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Makes memory what a measurement starts with: the pattern where it comes from, zero where it goes to.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn prepare(&mut self, order: Order) -> Result<(), Failure> {
        match order.kind {
            Kind::WriteLatency => self.mr.store(MAILBOX, 0)?,
            Kind::WriteRate | Kind::WriteBatchRate => self.mr.store(RATE_TARGET, 0)?,
            Kind::WriteBandwidth | Kind::WritePolledBandwidth | Kind::SendBandwidth | Kind::ReadBandwidth => {
                let is_source = order.kind.result_at() != Some(self.role);
                let seed = if is_source { order.seed } else { 0 };
                self.mr.write(LARGE, &pattern::bytes(seed, order.len))?;
            }
            Kind::SendLatency
            | Kind::EventLatency
            | Kind::TcpSpinLatency
            | Kind::TcpBlockingLatency
            | Kind::TcpBandwidth
            | Kind::TcpRate
            | Kind::TcpBatchRate
            | Kind::MessageLatency
            | Kind::UdpSpinLatency
            | Kind::UdpUnconnectedLatency
            | Kind::UdpBlockingLatency
            | Kind::UdpRate
            | Kind::UdpBandwidth
            | Kind::UdpOwnIcrcBandwidth
            | Kind::UdpNoIcrcBandwidth
            | Kind::StreamLatency
            | Kind::TokioTcpLatency
            | Kind::StreamBandwidth
            | Kind::TokioTcpBandwidth
            | Kind::StreamRate
            | Kind::TokioTcpRate => {}
        }
        Ok(())
    }

    /// Compares the large buffer with the pattern of the order.
    pub(super) fn compare(&self, order: Order) -> Result<Option<Difference>, Failure> {
        let found = self.mr.to_vec(LARGE..LARGE + order.len)?;
        Ok(pattern::difference(&pattern::bytes(order.seed, order.len), &found))
    }
}

/// Refuses a completion that is none of success.
pub(super) fn check_wc(wc: &Wc) -> Result<(), Failure> {
    if wc.status == WcStatus::Success {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} ended with {}",
        crate::pair::side::opcode_name(wc.opcode),
        wc.status.as_str()
    )))
}

/// Whether a completion is of the receive queue.
pub(super) fn is_receive(wc: &Wc) -> bool {
    matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
}

/// An empty place for a completion.
pub(super) const NO_WC: Wc = Wc::new(0, WcStatus::Success, WcOpcode::Send, userdma::Qpn::new(0));

fn lane(
    side: &Side,
    rtr: &RtrAttr,
    stream: &mut TcpStream,
    post_recvs: &dyn Fn(&Qp<userdma::Init>) -> Result<(), userdma::Error>,
) -> Result<Lane, Failure> {
    let cq = side.device.create_cq(1024)?;
    let qp = side.pd.create_qp(&cq, &cq).max_send_wr(512).max_recv_wr(128).build()?;
    post_recvs(&qp)?;
    let peer = exchange(stream, &qp.endpoint())?;
    let qp = qp.connect_with(&peer, rtr, &RtsAttr::default())?;
    // Neither side may send before the other one receives.
    exchange_ready(stream)?;
    Ok(Lane { qp, cq })
}

fn exchange_ready(stream: &mut TcpStream) -> Result<(), Failure> {
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])?;
    Ok(())
}

fn exchange_ports(stream: &mut TcpStream, ports: [u16; 3]) -> std::io::Result<[u16; 3]> {
    let mut bytes = [0; 6];
    stream.write_all(&ports.map(u16::to_be_bytes).concat())?;
    stream.read_exact(&mut bytes)?;
    let [a, b, c, d, e, f] = bytes;
    Ok([[a, b], [c, d], [e, f]].map(u16::from_be_bytes))
}

fn accept_tcp(address: IpAddr, stream: &mut TcpStream) -> Result<TcpStream, Failure> {
    let listener = TcpListener::bind((address, 0))?;
    stream.write_all(&listener.local_addr()?.port().to_be_bytes())?;
    Ok(listener.accept()?.0)
}

/// Connects from `address`, so that the connection runs between the same addresses as everything else.
fn connect_tcp(address: IpAddr, stream: &mut TcpStream) -> Result<TcpStream, Failure> {
    let mut port = [0; 2];
    stream.read_exact(&mut port)?;
    let peer = SocketAddr::new(stream.peer_addr()?.ip(), u16::from_be_bytes(port));
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(address, 0).into())?;
    socket.connect(&peer.into())?;
    Ok(socket.into())
}

/// Where small message number `slot` lands.
pub(super) fn slot_range(slot: usize) -> std::ops::Range<usize> {
    8 * slot..8 * slot + 8
}

/// Receives posted for small messages.
pub(super) const SLOTS: usize = 64;
/// Where the other side WRITEs 8 bytes for the latency of WRITE.
pub(super) const MAILBOX: usize = 1024;
/// Where it WRITEs many of them.
pub(super) const RATE_TARGET: usize = 2048;
/// Where large messages come from and go to.
pub(super) const LARGE: usize = 4096;
/// Bytes of the largest message.
pub(super) const MAX_LEN: usize = 4 << 20;
/// Receives posted for large messages.
pub(super) const LARGE_RECVS: usize = 32;
