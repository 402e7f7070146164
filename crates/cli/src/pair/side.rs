//! What each of the two processes has: a device, memory, a queue pair.

use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use userdma::{
    AccessFlags, Cq, Device, DeviceBuilder, Endpoint, Init, Mr, Pd, Qp, QpState, RemoteMr, RtrAttr, Rts,
    RtsAttr, Wc, WcOpcode, exchange,
};

use super::addresses::Pair;
use super::pattern::{self, Difference, Part};
use super::protocol::Opened;
use crate::failure::Failure;

/// One side.
#[derive(Debug)]
pub struct Side {
    /// The device.
    pub device: Device,
    /// The protection domain of everything below.
    pub pd: Pd,
    /// The memory.
    pub mr: Mr,
    /// Where completions come.
    pub cq: Cq,
    /// The queue pair before it is connected.
    fresh: Option<Qp<Init>>,
    /// The queue pair.
    qp: Option<Qp<Rts>>,
}

/// What connecting told.
#[derive(Clone, Debug)]
pub struct Connected {
    /// The states that the queue pair went through.
    pub states: Vec<String>,
    /// The peer.
    pub peer: Endpoint,
    /// The peer's memory.
    pub remote: RemoteMr,
}

impl Side {
    /// Opens the device on `address` and registers [`REGION_LEN`] bytes with these rights.
    ///
    /// # Errors
    /// The address is taken, or not this machine's.
    pub fn open(address: IpAddr, private_port: Option<u16>, access: AccessFlags) -> Result<Self, Failure> {
        let mut builder = Device::builder().address(address);
        if let Some(port) = private_port {
            builder = builder.private_port(port);
        }
        Self::open_with(builder, access)
    }

    /// Opens a device that is asked for more.
    ///
    /// # Errors
    /// As [`Side::open`].
    pub fn open_with(builder: DeviceBuilder, access: AccessFlags) -> Result<Self, Failure> {
        let device = builder.open()?;
        let pd = device.alloc_pd()?;
        let mr = pd.alloc(REGION_LEN, access)?;
        let cq = device.create_cq(64)?;
        Ok(Self { device, pd, mr, cq, fresh: None, qp: None })
    }

    /// Opens the first process's side: on the addresses that the user named, or on a pair that is free.
    ///
    /// # Errors
    /// As [`Side::open`]; no pair is free.
    pub fn open_first(named: Option<[IpAddr; 2]>, access: AccessFlags) -> Result<(Pair, Self), Failure> {
        let mut attempts = 0;
        loop {
            let pair = Pair::choose(named)?;
            match Self::open(pair.a, pair.private_port, access) {
                Ok(side) => return Ok((pair, side)),
                // Another program may have been faster.
                Err(_) if named.is_none() && attempts < 20 => attempts += 1,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// What there is to tell about it.
    pub fn opened(&self) -> Opened {
        Opened {
            pid: std::process::id(),
            device: self.device.name().to_owned(),
            addr: self.mr.addr(),
            len: self.mr.len(),
            lkey: self.mr.lkey().get(),
            rkey: self.mr.rkey().get(),
            access: access_names(self.mr.access()),
        }
    }

    /// Makes a queue pair; the one before is destroyed, and its completions are taken away.
    ///
    /// # Errors
    /// Those of the device.
    pub fn create_qp(&mut self) -> Result<Endpoint, Failure> {
        (self.fresh, self.qp) = (None, None);
        while self.cq.poll_one()?.is_some() {}
        let qp = self.pd.create_qp(&self.cq, &self.cq).max_send_sge(8).max_recv_sge(8).build()?;
        let endpoint = qp.endpoint();
        self.fresh = Some(qp);
        Ok(endpoint)
    }

    /// Exchanges endpoints and memory with the other side, which does the same at the same time, and goes to RTS.
    ///
    /// # Errors
    /// There is no new queue pair, the connection is gone, or the device refuses.
    pub fn connect(&mut self, stream: &mut TcpStream) -> Result<Connected, Failure> {
        let qp = self.fresh.take().ok_or_else(|| Failure::new("no queue pair to connect"))?;
        let ours = (qp.endpoint(), self.mr.remote());
        let (peer, remote) = exchange(stream, &ours)
            .map_err(|error| Failure::new(format!("exchange of endpoints: {error}")))?;
        let mut states = vec![state_name(qp.state()).to_owned()];
        let qp = qp.to_rtr(&peer, &RtrAttr::default()).map_err(userdma::Error::from)?;
        states.push(state_name(qp.state()).to_owned());
        let qp = qp.to_rts(&RtsAttr::default()).map_err(userdma::Error::from)?;
        states.push(state_name(qp.state()).to_owned());
        self.qp = Some(qp);
        Ok(Connected { states, peer, remote })
    }

    /// The connected queue pair.
    ///
    /// # Errors
    /// There is none.
    pub fn qp(&self) -> Result<&Qp<Rts>, Failure> {
        self.qp.as_ref().ok_or_else(|| Failure::new("no queue pair is connected"))
    }

    /// Posts a receive, connected or not.
    ///
    /// # Errors
    /// Those of the queue pair.
    pub fn post_recv(&self, wr_id: u64, list: &[(usize, usize)]) -> Result<(), Failure> {
        let slices: Vec<_> = list.iter().map(|(offset, len)| self.mr.slice(*offset..offset + len)).collect();
        match (&self.qp, &self.fresh) {
            (Some(qp), _) => qp.post_recv(wr_id, &slices)?,
            (None, Some(qp)) => qp.post_recv(wr_id, &slices)?,
            (None, None) => return Err(Failure::new("no queue pair to post to")),
        }
        Ok(())
    }

    /// Waits for `count` completions.
    ///
    /// # Errors
    /// Fewer come within [`COMPLETION_TIMEOUT`].
    pub fn completions(&self, count: usize) -> Result<Vec<Wc>, Failure> {
        let found = self.cq.wait_for(count, Some(COMPLETION_TIMEOUT))?;
        if found.len() == count {
            return Ok(found);
        }
        let seconds = COMPLETION_TIMEOUT.as_secs();
        Err(Failure::new(format!("{} of {count} completions came within {seconds} s", found.len())))
    }

    /// Makes the region what `parts` say, zero elsewhere.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn fill(&self, parts: &[Part]) -> Result<(), Failure> {
        self.mr.write(0, &pattern::region(self.mr.len(), parts))?;
        Ok(())
    }

    /// Compares the whole region with what `parts` say, zero elsewhere. `plant_fault` damages a byte first: the first one of
    /// the first part.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn check(&self, parts: &[Part], plant_fault: bool) -> Result<Option<Difference>, Failure> {
        if plant_fault {
            let at = parts.first().map_or(0, |part| part.offset);
            let damaged: Vec<u8> = self.mr.to_vec(at..at + 1)?.iter().map(|byte| byte ^ 1).collect();
            self.mr.write(at, &damaged)?;
        }
        Ok(pattern::difference(&pattern::region(self.mr.len(), parts), &self.mr.to_vec(..)?))
    }
}

/// Rights in words.
pub fn access_names(access: AccessFlags) -> String {
    let names = [
        (AccessFlags::LOCAL_WRITE, "local write"),
        (AccessFlags::REMOTE_WRITE, "remote write"),
        (AccessFlags::REMOTE_READ, "remote read"),
        (AccessFlags::REMOTE_ATOMIC, "remote atomic"),
    ];
    let names: Vec<_> =
        names.iter().filter(|(flag, _)| access.contains(*flag)).map(|(_, name)| *name).collect();
    if names.is_empty() { "local read".to_owned() } else { names.join(", ") }
}

/// A state as the standard writes it.
pub fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}

/// A completion's opcode as the standard writes it.
pub fn opcode_name(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send => "SEND",
        WcOpcode::RdmaWrite => "RDMA_WRITE",
        WcOpcode::RdmaRead => "RDMA_READ",
        WcOpcode::CompSwap => "COMP_SWAP",
        WcOpcode::FetchAdd => "FETCH_ADD",
        WcOpcode::BindMw => "BIND_MW",
        WcOpcode::LocalInv => "LOCAL_INV",
        WcOpcode::Recv => "RECV",
        WcOpcode::RecvRdmaWithImm => "RECV_RDMA_WITH_IMM",
    }
}

/// Bytes of each side's region.
pub const REGION_LEN: usize = 2 << 20;
/// How long a completion may take; loopback needs microseconds.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(5);
