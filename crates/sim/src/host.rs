//! A device with memory of its own, and short ways to do what tests do all the time.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use userdma_mem::{Buffer, LinkCaps, LinkId, Region, TxBatch};
use userdma_nic::{Doorbells, GidEntry, Shard, ShardConfig};
use userdma_objects::{Cq, MrKeys, PdId, QpShared, Srq};
use userdma_verbs::{
    AccessFlags, AsyncEvent, Gid, PostError, QpInitAttr, Qpn, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr,
    Sge, SrqInitAttr, Time, Wc,
};

use crate::ConnectOptions;

/// A host of the simulated network.
#[derive(Debug)]
pub struct Host {
    /// Its device.
    pub shard: Shard,
    /// The protection domain that everything here is in.
    pub pd: PdId,
    /// Its address.
    pub address: IpAddr,
    /// Asynchronous events, oldest first.
    pub events: VecDeque<AsyncEvent>,
    /// Completion channels that notified, oldest first.
    pub channels: VecDeque<u32>,
    pub(crate) batch: TxBatch,
    doorbells: Arc<Doorbells>,
}

/// Registered memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The bytes.
    pub buffer: Arc<Buffer>,
    /// The region's keys.
    pub keys: MrKeys,
    /// The address of the first byte in work requests.
    pub iova: u64,
}

/// One side of a connection.
#[derive(Clone, Debug)]
pub struct QpEnd {
    /// The queue pair.
    pub qp: Arc<QpShared>,
    /// Where its sends complete.
    pub send_cq: Arc<Cq>,
    /// Where its receives complete.
    pub recv_cq: Arc<Cq>,
}

impl Host {
    /// A host with one address on a link; `config` says the rest.
    pub(crate) fn new(address: IpAddr, caps: LinkCaps, config: ShardConfig) -> Self {
        let gid = GidEntry {
            gid: Gid::from(address),
            link: LinkId(0),
            local: address,
            scope_id: 0,
            tx_ports: std::array::from_fn(|socket| 50_000 + u16::try_from(socket).unwrap_or(0)),
            port: 4791,
        };
        let mut shard = Shard::new(ShardConfig { gids: vec![gid], ..config });
        let pd = shard.alloc_pd().expect("the first protection domain");
        let doorbells = shard.doorbells();
        Self {
            shard,
            pd,
            address,
            events: VecDeque::new(),
            channels: VecDeque::new(),
            batch: TxBatch::new(&caps),
            doorbells,
        }
    }

    /// A queue pair in RESET with completion queues of its own.
    pub fn create(&mut self, options: &ConnectOptions) -> QpEnd {
        self.create_on(options, None)
    }

    /// The same with receives from a shared receive queue, if there is one.
    pub fn create_on(&mut self, options: &ConnectOptions, srq: Option<&Srq>) -> QpEnd {
        let send_cq = self.shard.create_cq(options.cqe, None).expect("a completion queue");
        let recv_cq = self.shard.create_cq(options.cqe, None).expect("a completion queue");
        let init = QpInitAttr { qp_type: options.service, cap: options.cap, sq_sig_all: options.sq_sig_all };
        let srqn = srq.map(Srq::srqn);
        let made = self.shard.create_qp_on(self.pd, &init, send_cq.number(), recv_cq.number(), srqn);
        QpEnd { qp: made.expect("a queue pair"), send_cq, recv_cq }
    }

    /// A shared receive queue of `max_wr` receives with lists of 4 elements.
    pub fn create_srq(&mut self, max_wr: u32) -> Arc<Srq> {
        self.shard.create_srq(self.pd, &SrqInitAttr { max_wr, max_sge: 4 }).expect("a shared receive queue")
    }

    /// New memory of `len` zero bytes, registered with these rights.
    pub fn memory(&mut self, len: usize, access: AccessFlags) -> Memory {
        let buffer = Arc::new(Buffer::new(len).expect("memory"));
        let iova = buffer.addr() as u64;
        self.register(buffer, iova, access)
    }

    /// Registers memory once more, with addresses that count from `iova`.
    pub fn register(&mut self, buffer: Arc<Buffer>, iova: u64, access: AccessFlags) -> Memory {
        let keys = self.shard.reg_mr(self.pd, Region::from_buffer(&buffer), iova, access).expect("a region");
        Memory { buffer, keys, iova: if access.contains(AccessFlags::ZERO_BASED) { 0 } else { iova } }
    }

    /// Posts a send and rings.
    pub fn post_send(&self, end: &QpEnd, wr: &SendWr<'_>) -> Result<(), PostError> {
        end.qp.post_send(wr)?;
        self.doorbells.ring(end.qp.qpn());
        Ok(())
    }

    /// Posts a receive and rings.
    pub fn post_recv(&self, end: &QpEnd, wr: &RecvWr<'_>) -> Result<(), PostError> {
        end.qp.post_recv(wr)?;
        self.doorbells.ring(end.qp.qpn());
        Ok(())
    }

    /// Posts a signaled send of one element (or of none, if it has no bytes).
    pub fn send(&self, end: &QpEnd, wr_id: u64, op: SendOp, sge: Sge) {
        let sgl = [sge];
        let sgl = if sge.length == 0 { &sgl[..0] } else { &sgl };
        let wr = SendWr { wr_id, op, flags: SendFlags::SIGNALED, sgl, inline: &[] };
        self.post_send(end, &wr).expect("room in the send queue");
    }

    /// Posts a signaled WRITE.
    pub fn write(&self, end: &QpEnd, wr_id: u64, from: Sge, to: RemoteAddr) {
        self.send(end, wr_id, SendOp::Write(to), from);
    }

    /// Posts a receive of one element.
    pub fn recv(&self, end: &QpEnd, wr_id: u64, sge: Sge) {
        self.post_recv(end, &RecvWr { wr_id, sgl: &[sge] }).expect("room in the receive queue");
    }

    /// Rings a doorbell.
    pub fn ring(&self, qpn: Qpn) {
        self.doorbells.ring(qpn);
    }

    /// Whether a doorbell rang that nobody has looked at.
    pub(crate) fn is_rung(&self) -> bool {
        !self.doorbells.is_empty()
    }

    pub(crate) fn collect(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.shard.poll_event()));
        self.channels.extend(std::iter::from_fn(|| self.shard.poll_channel()));
    }

    /// Fills the batch; what it held before was sent.
    pub(crate) fn poll_transmit(&mut self, now: Time) -> bool {
        self.shard.handle_sent(now);
        self.batch.clear();
        self.shard.poll_transmit(now, &mut self.batch).is_some()
    }
}

impl Memory {
    /// `len` bytes at `offset`, for local work requests.
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: self.iova + offset, length: len, lkey: self.keys.lkey }
    }

    /// The place at `offset`, for a peer.
    pub fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.iova + offset, rkey: self.keys.rkey }
    }

    /// Writes from the start.
    pub fn fill(&self, bytes: &[u8]) {
        self.put(0, bytes);
    }

    /// Writes at `offset`.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.buffer.write(offset, bytes).expect("memory of our own");
    }

    /// The `len` bytes at `offset`.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.read(offset, &mut bytes).expect("memory of our own");
        bytes
    }
}

impl QpEnd {
    /// Completions of sends, oldest first.
    pub fn poll_send(&self) -> Vec<Wc> {
        poll(&self.send_cq)
    }

    /// Completions of receives, oldest first.
    pub fn poll_recv(&self) -> Vec<Wc> {
        poll(&self.recv_cq)
    }
}

/// Everything that is in a completion queue, oldest first.
fn poll(cq: &Cq) -> Vec<Wc> {
    let mut all = Vec::new();
    let empty = Wc::new(0, userdma_verbs::WcStatus::GeneralErr, userdma_verbs::WcOpcode::Send, Qpn::new(0));
    let mut some = [empty; 16];
    loop {
        let count = cq.poll(&mut some);
        if count == 0 {
            return all;
        }
        all.extend_from_slice(&some[..count]);
    }
}
