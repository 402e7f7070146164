//! The objects of one side: device, memory, queue pair, and the way to RTS.

use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use userdma::{
    AccessFlags, AsyncEvent, Cq, Device, Mr, Mw, Pd, QpState, RKey, RtrAttr, RtsAttr, SendFlags, Wc, WcStatus,
};

use crate::Setup;
use crate::end::{End, Start};
use crate::options::Options;
use crate::pattern::{GUARD, Role, bytes};
use crate::peer::{self, Peer};

/// The device of all connections, and what it has reported.
#[derive(Debug)]
pub(crate) struct Adapter {
    device: Device,
    events: Mutex<Vec<AsyncEvent>>,
}

/// One side of a connection in RTS.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    pub(crate) qp: End,
    cq: Cq,
    /// The region that the peer may touch.
    pub(crate) region: Mr,
    /// Where receives, READs and atomics land.
    pub(crate) landing: Mr,
    /// The other side's values.
    pub(crate) peer: Peer,
    /// Ours, windows included.
    windows: Vec<(Mw, RKey)>,
    polls: bool,
    adapter: &'a Adapter,
}

impl Adapter {
    /// Opens the device as the options want it.
    pub(crate) fn open(options: &Options) -> Result<Self, userdma::Error> {
        let mut builder = Device::builder().name(&options.device);
        if let Some(path) = &options.capture {
            builder = builder.capture(path);
        }
        if let Some(faults) = &options.faults {
            builder = builder.faults(faults);
        }
        Ok(Self { device: builder.open()?, events: Mutex::default() })
    }

    /// Whether the device has reported this. What it reported of other connections is kept for them.
    fn saw(&self, wanted: AsyncEvent) -> Result<bool, userdma::Error> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.device.poll_event()? {
            events.push(event);
        }
        Ok(events.contains(&wanted))
    }

    /// Prints what the device counted, except zeros.
    pub(crate) fn print_counters(&self) -> Setup<()> {
        let stats = self.device.stats()?;
        let counted: Vec<String> = stats
            .iter()
            .filter(|&(_, value)| value != 0)
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        println!("  counters: {}", counted.join(", "));
        Ok(())
    }
}

impl<'a> Side<'a> {
    /// Makes everything, swaps `struct peer` twice, and has receives posted (unless later) and windows bound.
    pub(crate) fn connect(options: &Options, adapter: &'a Adapter) -> Setup<(Self, TcpStream)> {
        let mut stream = peer::open(options)?;
        let pd = adapter.device.alloc_pd()?;
        let cq = adapter.device.create_cq(1024)?;
        let region = pd.register(bytes(0, options.region_len, role(options)), region_rights(options))?;
        let landing = pd.alloc(landing_len(options), AccessFlags::LOCAL_WRITE)?;
        let builder = pd
            .create_qp(&cq, &cq)
            .service(options.service)
            .max_send_wr(128)
            .max_recv_wr(256)
            .max_send_sge(2)
            .max_recv_sge(2)
            .psn(options.psn);
        let qp = Start::new(options, builder)?;
        let mut ours = Peer { endpoint: qp.endpoint(options), region: region.remote(), window: RKey::new(0) };
        let peer = ours.swap(&mut stream)?;
        let (rtr, rts) = attributes(options);
        let qp = qp.connect(&pd, &peer.endpoint, &rtr, &rts)?;
        let mut side =
            Self { qp, cq, region, landing, peer, windows: Vec::new(), polls: options.polls, adapter };
        if options.server.is_none() {
            crate::server::post_first(options, &side)?;
            side.bind_windows(options, &pd)?;
            ours.window = side.window_keys().next().unwrap_or(ours.window);
        }
        side.peer = ours.swap(&mut stream)?;
        println!("  ours {} theirs {}", side.describe(&ours), side.describe(&side.peer));
        Ok((side, stream))
    }

    /// The next completion; `None` if there is none within `timeout`.
    pub(crate) fn next_wc(&self, timeout: Duration) -> Result<Option<Wc>, userdma::Error> {
        if !self.polls {
            let mut out = [Wc::new(0, WcStatus::GeneralErr, userdma::WcOpcode::Send, self.qp.qpn())];
            return Ok((self.cq.wait(&mut out, Some(timeout))? == 1).then_some(out[0]));
        }
        let end = userdma_link::clock::now() + timeout;
        loop {
            let wc = self.cq.poll_one()?;
            if wc.is_some() || userdma_link::clock::now() >= end {
                return Ok(wc);
            }
        }
    }

    /// A completion that is there already.
    pub(crate) fn ready_wc(&self) -> Result<Option<Wc>, userdma::Error> {
        self.cq.poll_one()
    }

    /// The keys of the windows that are bound here.
    pub(crate) fn window_keys(&self) -> impl Iterator<Item = RKey> + '_ {
        self.windows.iter().map(|&(_, key)| key)
    }

    /// Whether the queue pair is in the error state, as it must be after an operation has failed.
    pub(crate) fn is_in_error(&self) -> bool {
        self.qp.state() == QpState::Err
    }

    /// Whether the device reported that the peer wanted what it has no right to.
    pub(crate) fn saw_access_error(&self) -> Result<bool, userdma::Error> {
        self.adapter.saw(AsyncEvent::QpAccessError { qpn: self.qp.qpn() })
    }

    /// Binds windows over the whole region.
    fn bind_windows(&mut self, options: &Options, pd: &Pd) -> Setup<()> {
        for _ in 0..options.windows {
            let End::Connection(qp) = &self.qp else { return Err("datagrams have no windows".into()) };
            let mw = pd.alloc_mw()?;
            let rights = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
            let part = self.region.slice(..);
            let bound = qp.post_bind_mw(BIND_ID, &mw, &part, rights, SendFlags::SIGNALED)?;
            match self.next_wc(Duration::from_secs(5))? {
                Some(wc) if wc.wr_id == BIND_ID && wc.status == WcStatus::Success => {}
                other => return Err(format!("the bind of a window ended with {other:?}").into()),
            }
            self.windows.push((mw, bound.rkey));
        }
        Ok(())
    }

    fn describe(&self, peer: &Peer) -> String {
        format!(
            "{} qpn {} psn {} rkey {:#010x}",
            peer.endpoint.gid,
            peer.endpoint.qpn,
            peer.endpoint.psn,
            peer.region.rkey.get()
        )
    }
}

/// Work request number of binds; operations and receives have others.
const BIND_ID: u64 = 77;

/// Which side the options make us.
pub(crate) fn role(options: &Options) -> Role {
    if options.server.is_some() { Role::Client } else { Role::Server }
}

/// Bytes from one receive to the next.
pub(crate) fn stride(options: &Options) -> usize {
    (options.receive_len + 2 * GUARD).next_multiple_of(64)
}

fn landing_len(options: &Options) -> usize {
    match role(options) {
        Role::Client => options.region_len + 2 * GUARD,
        Role::Server => stride(options) * options.receives,
    }
}

fn region_rights(options: &Options) -> AccessFlags {
    let window = if options.windows > 0 { AccessFlags::MW_BIND } else { AccessFlags::empty() };
    AccessFlags::LOCAL_WRITE | options.rights | window
}

fn attributes(options: &Options) -> (RtrAttr, RtsAttr) {
    let rtr = RtrAttr {
        path_mtu: Some(options.mtu),
        max_dest_rd_atomic: options.depth,
        min_rnr_timer: options.min_rnr_timer,
        ..RtrAttr::default()
    };
    let rts = RtsAttr {
        timeout: options.timeout,
        retry_cnt: options.retry_cnt,
        rnr_retry: options.rnr_retry,
        max_rd_atomic: options.depth,
    };
    (rtr, rts)
}
