//! The device.

use std::sync::Arc;

use userdma_ibt::Stats;
use userdma_mem::{Frame, LinkCaps, LinkId, Region, TxBatch};
use userdma_objects::{CompChannel, Cq, MrKeys, PdId, QpShared};
use userdma_verbs::{
    AccessFlags, AhAttr, AsyncEvent, BindMwError, CreateCqError, CreateQpError, DeviceAttr, LKey, ModifyQpError,
    ObjectError, PortAttr, QpAttr, QpAttrMask, QpInitAttr, Qpn, RKey, RegMrError, Time,
};

use crate::{Doorbells, GidEntry, ShardConfig};

/// A resolved address vector of a device.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AhId(pub u32);

/// Why an address vector was not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateAhError {
    /// A field has a value that is not possible.
    #[error("{field} is {value}, {allowed} is possible")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        allowed: &'static str,
    },
    /// The protection domain does not exist.
    #[error("no such protection domain")]
    NoPd,
}

/// A device without IO and clock: everything between verbs calls and packets.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    doorbells: Arc<Doorbells>,
    stats: Stats,
}

impl Shard {
    /// A device as configured, without objects.
    pub fn new(config: ShardConfig) -> Self {
        Self { config, doorbells: Arc::new(Doorbells::new()), stats: Stats::default() }
    }

    /// A new protection domain; `None` if there are too many.
    pub fn alloc_pd(&mut self) -> Option<PdId> {
        todo!()
    }

    /// Ends a protection domain that nothing uses.
    ///
    /// # Errors
    /// `Busy` while regions, windows, address vectors or queue pairs are in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ObjectError> {
        let _ = pd;
        todo!()
    }

    /// Registers memory; addresses in work requests count from `iova`.
    pub fn reg_mr(&mut self, pd: PdId, region: Region, iova: u64, access: AccessFlags) -> Result<MrKeys, RegMrError> {
        let _ = (pd, region, iova, access);
        todo!()
    }

    /// Ends a region and gives its memory back; its keys are refused from now on.
    ///
    /// # Errors
    /// `Busy` while windows are bound to it.
    pub fn dereg_mr(&mut self, lkey: LKey) -> Result<Region, ObjectError> {
        let _ = lkey;
        todo!()
    }

    /// A new type 2 memory window, unbound.
    pub fn alloc_mw(&mut self, pd: PdId) -> Result<RKey, BindMwError> {
        let _ = pd;
        todo!()
    }

    /// Ends a memory window, bound or not, named by its current key.
    pub fn dealloc_mw(&mut self, rkey: RKey) -> Result<(), ObjectError> {
        let _ = rkey;
        todo!()
    }

    /// Makes a completion queue of at least `cqe` entries.
    pub fn create_cq(&mut self, cqe: u32, channel: Option<Arc<CompChannel>>) -> Result<Arc<Cq>, CreateCqError> {
        let _ = (cqe, channel);
        todo!()
    }

    /// Ends a completion queue and forgets its events on its channel.
    ///
    /// # Errors
    /// `Busy` while queue pairs use it.
    pub fn destroy_cq(&mut self, cq: u32) -> Result<(), ObjectError> {
        let _ = cq;
        todo!()
    }

    /// Checks and resolves an address vector.
    pub fn create_ah(&mut self, pd: PdId, attr: &AhAttr) -> Result<AhId, CreateAhError> {
        let _ = (pd, attr);
        todo!()
    }

    /// Ends an address vector.
    pub fn destroy_ah(&mut self, ah: AhId) -> Result<(), ObjectError> {
        let _ = ah;
        todo!()
    }

    /// Makes a queue pair in RESET.
    pub fn create_qp(
        &mut self,
        pd: PdId,
        init: &QpInitAttr,
        send_cq: u32,
        recv_cq: u32,
    ) -> Result<Arc<QpShared>, CreateQpError> {
        let _ = (pd, init, send_cq, recv_cq);
        todo!()
    }

    /// Sets attributes and changes the state. Either all of it happens or nothing.
    pub fn modify_qp(&mut self, now: Time, qpn: Qpn, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyQpError> {
        let _ = (now, qpn, attr, mask);
        todo!()
    }

    /// The attributes of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttr, ObjectError> {
        let _ = qpn;
        todo!()
    }

    /// Ends a queue pair. What is posted is forgotten without completions; windows bound through it are unbound.
    pub fn destroy_qp(&mut self, now: Time, qpn: Qpn) -> Result<(), ObjectError> {
        let _ = (now, qpn);
        todo!()
    }

    /// What the port is.
    pub fn port_attr(&self) -> PortAttr {
        todo!()
    }

    /// The device's limits.
    pub fn device_attr(&self) -> DeviceAttr {
        DeviceAttr::LIMITS
    }

    /// The GID table.
    pub fn gids(&self) -> &[GidEntry] {
        &self.config.gids
    }

    /// The device's doorbells: rung after each post, on any thread.
    pub fn doorbells(&self) -> Arc<Doorbells> {
        Arc::clone(&self.doorbells)
    }

    /// Takes over what was posted on queue pairs whose doorbell rang.
    pub fn handle_doorbells(&mut self, now: Time) {
        let _ = now;
        todo!()
    }

    /// A packet arrived.
    pub fn handle_frame(&mut self, now: Time, frame: Frame<'_>) {
        let _ = (now, frame);
        todo!()
    }

    /// The time has come that [`Shard::poll_timeout`] named, or not yet (then nothing happens).
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
        todo!()
    }

    /// Lets acknowledgements that are owed leave with the next polls, without waiting for their delay.
    pub fn release_acks(&mut self) {
        todo!()
    }

    /// Fills `batch`, which must be empty, with packets to one queue pair, and says by which link they go. `None` if
    /// there is nothing to send. Queue pairs take turns.
    pub fn poll_transmit(&mut self, now: Time, batch: &mut TxBatch) -> Option<LinkId> {
        let _ = (now, batch);
        todo!()
    }

    /// When [`Shard::handle_timeout`] must be called, if nothing happens before. May be early, never late.
    pub fn poll_timeout(&self) -> Option<Time> {
        todo!()
    }

    /// The oldest asynchronous event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        todo!()
    }

    /// A completion channel with new events, by the host's number: its descriptor must be made readable.
    pub fn poll_channel(&mut self) -> Option<u32> {
        todo!()
    }

    /// What was counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Takes over a change of a link's limits (it stopped segmenting, say).
    pub fn set_link_caps(&mut self, link: LinkId, caps: LinkCaps) {
        if let Some(entry) = self.config.links.get_mut(usize::from(link.0)) {
            *entry = caps;
        }
    }
}
