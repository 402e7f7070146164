//! A reliable connection: requester, responder and completer of one queue pair.

use userdma_mem::{Route, TxBatch};
use userdma_verbs::{QpAttr, QpAttrMask, QpCap, QpState, Time};
use userdma_wire::{Packet, Pseudo};

use crate::Ctx;

/// Where a connection's packets go: the route and what its ICRCs start with.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The route.
    pub route: Route,
    /// The masked headers of packets that we send.
    pub pseudo: Pseudo,
}

/// How far a fill came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fill {
    /// Nothing more to send now.
    Done,
    /// More to send, in another batch.
    More,
}

/// The machine of a reliable connection.
#[derive(Debug)]
pub struct Rc {
    state: QpState,
}

impl Rc {
    /// A machine in RESET for a queue pair of these sizes.
    pub fn new(cap: &QpCap) -> Self {
        let _ = cap;
        todo!()
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Goes to `to` with attributes that the device has checked (legal transition, mandatory attributes there, values
    /// in range). `path` is given whenever `mask` has `AV`. To ERR: everything posted is flushed. To RESET:
    /// everything is forgotten without completions.
    pub fn modify(&mut self, ctx: &mut Ctx<'_>, to: QpState, attr: &QpAttr, mask: QpAttrMask, path: Option<Path>) {
        let _ = (ctx, to, attr, mask, path);
        todo!()
    }

    /// The attributes as a query gives them.
    pub fn attr(&self) -> QpAttr {
        todo!()
    }

    /// The path, from RTR on.
    pub fn path(&self) -> Option<&Path> {
        todo!()
    }

    /// Something was posted: takes sends over; in ERR flushes sends and receives.
    pub fn handle_doorbell(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
        todo!()
    }

    /// A packet for this connection arrived: right QPN, service, partition and source, ICRC good.
    pub fn handle_packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let _ = (ctx, packet);
        todo!()
    }

    /// Appends packets to `batch` until it is full, another size must begin a new one, or nothing is left. Owed
    /// acknowledgements join if requests or other responses left in this call, or if `acks`.
    pub fn fill(&mut self, ctx: &mut Ctx<'_>, batch: &mut TxBatch, acks: bool) -> Fill {
        let _ = (ctx, batch, acks);
        todo!()
    }

    /// Whether a fill would send something without owed acknowledgements.
    pub fn has_work(&self, ctx: &Ctx<'_>) -> bool {
        let _ = ctx;
        todo!()
    }

    /// Whether the last fill stopped because the window was full: try again when the window has room.
    pub fn is_window_blocked(&self) -> bool {
        todo!()
    }

    /// Since when an acknowledgement is owed.
    pub fn ack_owed_since(&self) -> Option<Time> {
        todo!()
    }

    /// When `handle_timeout` must be called, if nothing happens before: retransmission or end of an RNR wait.
    pub fn deadline(&self) -> Option<Time> {
        todo!()
    }

    /// The time has come, or not yet (then nothing happens).
    pub fn handle_timeout(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
        todo!()
    }
}
