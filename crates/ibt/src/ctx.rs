//! What a machine may touch while it handles one input.

use userdma_objects::{Cq, MrTable, Pushed, QpShared};
use userdma_verbs::{AsyncEvent, Time, Wc, WcOpcode, WcStatus};

use crate::{Paces, Stats, Window};

/// Everything that a queue pair's machine reads and changes besides itself.
#[derive(Debug)]
pub struct Ctx<'a> {
    /// The time.
    pub now: Time,
    /// The device's regions and windows.
    pub mrs: &'a mut MrTable,
    /// The half of the queue pair that callers post to.
    pub qp: &'a QpShared,
    /// Where sends complete.
    pub send_cq: &'a Cq,
    /// Where receives complete.
    pub recv_cq: &'a Cq,
    /// The window towards the destination, shared by the queue pairs that go there.
    pub window: &'a mut Window,
    /// How fast those may send that nobody answers, by destination.
    pub paces: &'a mut Paces,
    /// What must be told outside.
    pub effects: &'a mut Effects,
    /// The device's counters.
    pub stats: &'a mut Stats,
}

impl Ctx<'_> {
    /// The completion of a request that was flushed.
    pub(crate) fn flushed(&self, wr_id: u64, opcode: WcOpcode) -> Wc {
        Wc::new(wr_id, WcStatus::WrFlushErr, opcode, self.qp.qpn())
    }
}

/// What a machine wants to be told outside: to channels, to whoever reads events, to the device.
#[derive(Debug, Default)]
pub struct Effects {
    /// Completion channels with a new event, by the host's number; each at most once until taken.
    pub channels: Vec<u32>,
    /// Asynchronous events, oldest first.
    pub events: Vec<AsyncEvent>,
    /// Completion queues that refused a completion just now: the device takes their queue pairs to the error state.
    pub overflows: Vec<u32>,
}

impl Effects {
    /// Writes a completion and notes what follows from it.
    pub fn complete(&mut self, cq: &Cq, wc: Wc, solicited: bool) {
        match cq.push(wc, solicited) {
            Pushed::Quiet => {}
            // The event was told, but a queue pair may have been connected again since.
            Pushed::Lost => self.note_overflow(cq),
            Pushed::Notify => {
                if let Some(channel) = cq.channel()
                    && !self.channels.contains(&channel.id())
                {
                    self.channels.push(channel.id());
                }
            }
            Pushed::Overflow => {
                self.note_overflow(cq);
                self.events.push(AsyncEvent::CqError { cq: cq.number() });
            }
        }
    }

    fn note_overflow(&mut self, cq: &Cq) {
        if !self.overflows.contains(&cq.number()) {
            self.overflows.push(cq.number());
        }
    }
}
