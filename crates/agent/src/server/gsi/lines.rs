//! The ways by which packets are passed on to devices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{Device, Gsi};
use crate::gsi::GsiFrame;
use crate::registry::Member;
use crate::server::door::Arrived;
use crate::server::outbox::Outbox;

/// The agent's end of a device's socket pair.
#[derive(Debug)]
pub(super) struct Line {
    socket: OwnedFd,
    waiting: Outbox,
    /// Packets that found no room, since the device was told.
    lost: u32,
}

impl Line {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: Outbox::default(), lost: 0 }
    }

    /// How many packets wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl Gsi {
    /// Devices for which packets wait for room.
    pub(in crate::server) fn full_lines(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let lines = self.devices.values().filter_map(|device| device.frames.as_ref());
        lines.filter(|line| !line.waiting.is_empty()).map(|line| line.socket.as_fd())
    }

    /// Passes on what there is room for by now.
    pub(super) fn flush_lines(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let lines = self.devices.values_mut().filter_map(|device| device.frames.as_mut());
        self.waiting = lines.fold(0, |waiting, line| {
            line.waiting.flush(&line.socket);
            waiting + line.waiting()
        });
    }

    /// Passes a packet on, or has it wait. One for which there is no room is counted, and the device told with the next.
    pub(super) fn hand_over(&mut self, member: Member, arrived: &Arrived) {
        let Some(line) = self.devices.get_mut(&member).and_then(|device| device.frames.as_mut()) else {
            self.dropped += 1;
            return;
        };
        let lost = line.lost.saturating_add(arrived.lost);
        let frame = GsiFrame { remote: arrived.remote, local: arrived.local.0, lost, bytes: &arrived.bytes };
        let before = line.waiting();
        let most = if self.waiting < MAX_WAITING { MAX_WAITING_OF_ONE } else { before };
        if line.waiting.send(&line.socket, frame.encode(), most) {
            line.lost = 0;
            self.waiting += line.waiting() - before;
        } else {
            line.lost = lost.saturating_add(1);
            self.dropped += 1;
        }
    }

    /// A device tells by which way it takes packets. What waited for another way is lost with that.
    pub(super) fn attach(&mut self, member: Member, socket: Option<OwnedFd>) {
        let Some(device) = self.devices.get_mut(&member) else { return };
        self.waiting -= device.waiting();
        device.frames = socket.map(Line::new);
    }
}

impl Device {
    /// How many packets wait for the device.
    pub(super) fn waiting(&self) -> usize {
        self.frames.as_ref().map_or(0, Line::waiting)
    }
}

/// Packets that wait for one device, and for all: some 350 bytes each. A thousand requests may come at once.
const MAX_WAITING_OF_ONE: usize = 4096;
const MAX_WAITING: usize = 4 * MAX_WAITING_OF_ONE;
