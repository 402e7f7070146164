//! What happened, for people: devices that were opened, states of queue pairs, and what a completion's error means.
//!
//! A completion tells a status and an identifier. The queue pair keeps the request that failed, so that it can be said which key,
//! which address, which peer; the rest is where to look.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use userdma_host::{Host, call};
use userdma_objects::{Failure, QpShared};
use userdma_verbs::{QpAttr, QpState, RemoteAddr, SendOp, Sge, Wc, WcOpcode, WcStatus};

use crate::context::ContextState;
use crate::devices::lock;
use crate::log::{self, Level};
use crate::qp::QpObject;

/// Tells of a device that was opened.
pub(crate) fn tell_device(name: &str, host: &Host) {
    if !log::is_on(Level::Info) {
        return;
    }
    let addresses: Vec<_> =
        host.gids().iter().map(|gid| format!("{} port {}", gid.local, gid.port)).collect();
    log::tell(Level::Info, format_args!("device {name} is open: {}", addresses.join(", ")));
}

impl QpObject {
    /// Tells that the state is another than `from`, if it is.
    pub(crate) fn tell_state(&self, from: QpState) {
        let to = self.shared.state();
        if to == from {
            return;
        }
        // A new life: what ends this one is told again.
        self.is_flush_told.store(false, Ordering::Relaxed);
        if log::is_on(Level::Info) {
            let qpn = self.shared.qpn();
            let peer = match (to, attributes(self.host(), &self.shared)) {
                (QpState::Rtr, Some(attr)) => format!(", {}", peer(&attr)),
                _ => String::new(),
            };
            log::tell(Level::Info, format_args!("QP {qpn}: {from:?} to {to:?}{peer}"));
        }
    }

    /// The queue pair and a request of it, as lines have them.
    pub(crate) fn with_request(&self, wr_id: u64) -> String {
        format!("QP {}: wr_id {wr_id}", self.shared.qpn())
    }
}

/// Tells what a completion with an error means. What is flushed is told once for each queue pair.
#[cold]
pub(crate) fn tell_completion(state: &ContextState, wc: &Wc) {
    // A handler of a signal that has interrupted the driver cannot wait for it, nor for a table.
    if !log::is_on(Level::Warn) || call::is_nested() {
        return;
    }
    let found = qp_of(state, wc);
    let mut line = format!("completion wr_id {} QP {}: {}", wc.wr_id, wc.qpn, wc.status);
    match (&found, wc.status) {
        (Some(qp), WcStatus::WrFlushErr) => {
            if qp.was_flush_told {
                return;
            }
            line.push_str(
                ": it went to ERR before; so does everything else that is posted to it (told once)",
            );
        }
        (Some(qp), _) => {
            let is_recv = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
            let case =
                Case { host: state.host(), qp: &qp.shared, failure: qp.shared.failure(wc.wr_id, is_recv) };
            // A string takes everything.
            let _ = write!(line, ": {}", case.explain(wc.status));
        }
        (None, _) => {}
    }
    log::tell(Level::Warn, format_args!("{line}"));
}

/// A queue pair as a completion is told of.
struct Found {
    shared: Arc<QpShared>,
    was_flush_told: bool,
}

fn qp_of(state: &ContextState, wc: &Wc) -> Option<Found> {
    let table = lock(&state.qps);
    let element = *table.get(&wc.qpn.get())?;
    // SAFETY: a queue pair in the table exists while the table is locked.
    let qp = unsafe { QpObject::of(std::ptr::with_exposed_provenance_mut(element)) };
    let is_flush = wc.status == WcStatus::WrFlushErr;
    let was_flush_told = is_flush && qp.is_flush_told.swap(true, Ordering::Relaxed);
    Some(Found { shared: Arc::clone(&qp.shared), was_flush_told })
}

fn attributes(host: &Host, qp: &QpShared) -> Option<QpAttr> {
    // A handler that has interrupted the driver cannot wait for it.
    if call::is_nested() {
        return None;
    }
    let qpn = qp.qpn();
    host.control(move |shard, _| shard.query_qp(qpn)).ok()?.ok()
}

fn peer(attr: &QpAttr) -> String {
    format!("the peer is QP {} at {}", attr.dest_qp_num, attr.ah_attr.grh.dgid.ip())
}

/// A request that ended in error.
struct Case<'a> {
    host: &'a Host,
    qp: &'a QpShared,
    failure: Option<Failure>,
}

impl Case<'_> {
    fn explain(&self, status: WcStatus) -> String {
        match status {
            WcStatus::LocProtErr => self.local_protection(),
            WcStatus::LocLenErr => format!(
                "the message that came is longer than the receive{}",
                self.failure.as_ref().map_or_else(String::new, |f| format!(" of {} bytes", bytes(&f.sgl)))
            ),
            WcStatus::RemAccessErr => self.remote_access(),
            WcStatus::RemInvReqErr => format!(
                "the peer found {} invalid: longer than its receive, not granted by its QP (qp_access_flags), or more READs and \
                 atomics than its max_dest_rd_atomic",
                self.request()
            ),
            WcStatus::RemOpErr => format!(
                "the peer could not execute {}: its receive's memory or key is not what it was",
                self.request()
            ),
            WcStatus::RetryExcErr => self.nobody(),
            WcStatus::RnrRetryExcErr => {
                let tries = self.attr().map_or(0, |attr| attr.rnr_retry);
                format!(
                    "the peer had no receive posted after {tries} more tries: it must post them before, or rnr_retry be 7, which \
                     is for ever"
                )
            }
            WcStatus::MwBindErr => self.bind(),
            WcStatus::BadRespErr => {
                "the peer answered what does not fit: it is no RC queue pair of ours".to_owned()
            }
            WcStatus::LocAccessErr => "the peer's WRITE hit memory that its key does not open".to_owned(),
            WcStatus::Success
            | WcStatus::LocQpOpErr
            | WcStatus::WrFlushErr
            | WcStatus::RemAbortErr
            | WcStatus::FatalErr
            | WcStatus::RespTimeoutErr
            | WcStatus::GeneralErr => format!("it was {}", self.request()),
        }
    }

    fn attr(&self) -> Option<QpAttr> {
        attributes(self.host, self.qp)
    }

    /// `WRITE of 8 bytes to 0x7f0000001000 with rkey 0x12345678`.
    fn request(&self) -> String {
        let Some(Failure { op: Some(op), len, .. }) = &self.failure else { return "the request".to_owned() };
        let name = format!("{:?}", op.opcode());
        match remote(op) {
            Some(to) => format!("{name} of {len} bytes at {:#x} with rkey {}", to.addr, to.rkey),
            None => format!("{name} of {len} bytes"),
        }
    }

    fn local_protection(&self) -> String {
        let Some(failure) = self.failure.as_ref().filter(|_| !call::is_nested()) else {
            return "a scatter/gather element is not covered by its lkey's region".to_owned();
        };
        let writes = failure.op.is_none_or(|op| op.opcode().writes_locally());
        let (pd, list) = (self.qp.pd(), failure.sgl.clone());
        let judged = self.host.control(move |shard, _| {
            let fault = |sge: &Sge| shard.check_local(pd, sge, writes).err();
            list.iter().enumerate().find_map(|(place, sge)| fault(sge).map(|fault| (place, *sge, fault)))
        });
        match judged {
            Ok(Some((place, sge, fault))) => format!(
                "scatter/gather element {place}: {} bytes at {:#x} with lkey {}: {fault}",
                sge.length, sge.addr, sge.lkey
            ),
            Ok(None) | Err(_) => {
                format!(
                    "memory of {} is not there any more, or not as it was registered",
                    elements(&failure.sgl)
                )
            }
        }
    }

    fn remote_access(&self) -> String {
        let right = match self.failure.as_ref().and_then(|failure| failure.op) {
            Some(SendOp::Read(_)) => "IBV_ACCESS_REMOTE_READ",
            Some(SendOp::Atomic(..)) => "IBV_ACCESS_REMOTE_ATOMIC",
            Some(_) | None => "IBV_ACCESS_REMOTE_WRITE",
        };
        format!(
            "the peer refused {}: no region or window of its PD has the key, the range is not inside it, or it lacks {right}",
            self.request()
        )
    }

    fn nobody(&self) -> String {
        let Some(attr) = self.attr() else { return "nobody answered".to_owned() };
        let timeout =
            attr.timeout.duration().map_or_else(|| "for ever".to_owned(), |time| format!("{time:?}"));
        format!(
            "nobody answered {} at {}, QP {}, {} times with {timeout} each: is that the peer's address and QPN, is its QP in RTR, \
             does UDP port 4791 pass?",
            self.request(),
            attr.ah_attr.grh.dgid.ip(),
            attr.dest_qp_num,
            u32::from(attr.retry_cnt) + 1,
        )
    }

    fn bind(&self) -> String {
        let Some(Failure { op: Some(SendOp::BindMw(bind)), .. }) = &self.failure else {
            return "the window could not be bound".to_owned();
        };
        format!(
            "window rkey {} to {} bytes at {:#x} of the region with lkey {}: the region must be of the same PD, have \
             IBV_ACCESS_MW_BIND, and hold the range and the rights; the new key must differ in its last byte only",
            bind.mw, bind.length, bind.addr, bind.mr
        )
    }
}

fn remote(op: &SendOp) -> Option<RemoteAddr> {
    match *op {
        SendOp::Write(to) | SendOp::WriteWithImm(to, _) | SendOp::Read(to) | SendOp::Atomic(to, _) => {
            Some(to)
        }
        SendOp::Send
        | SendOp::SendWithImm(_)
        | SendOp::SendWithInv(_)
        | SendOp::LocalInv(_)
        | SendOp::BindMw(_) => None,
    }
}

fn bytes(sgl: &[Sge]) -> u64 {
    sgl.iter().map(|sge| u64::from(sge.length)).sum()
}

fn elements(sgl: &[Sge]) -> String {
    let one = |sge: &Sge| format!("{} bytes at {:#x} (lkey {})", sge.length, sge.addr, sge.lkey);
    sgl.iter().map(one).collect::<Vec<_>>().join(", ")
}
