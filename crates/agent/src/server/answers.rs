//! What devices are told of their connections: answers, and what one of them keeps for the next agent.

use std::os::fd::OwnedFd;

use userdma_link::clock;

use super::{Agent, Client};
use crate::message::{GsiRequest, Reply};
use crate::{packet, wait};

impl Agent {
    /// Has another process keep the wills of our own, as long as its socket is nearly empty: what asks for an answer goes first.
    pub(super) fn tell_deputy(&mut self) {
        while let Some((deputy, bequest)) = self.gsi.next_bequest() {
            let client = self.clients.iter().find(|client| client.member == deputy);
            let Some(client) = client.filter(|client| wait::is_writable(&client.socket)) else { return };
            let is_void = bequest.is_void;
            let bytes = Reply::Keep(bequest).encode();
            match packet::send_now(&client.socket, &bytes, &[]) {
                Ok(true) => self.gsi.bequest_told(is_void),
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// A device asks for something, or says something.
    pub(super) fn handle_gsi(&mut self, at: usize, request: GsiRequest, descriptors: Vec<OwnedFd>) {
        let Client { member, .. } = self.clients[at];
        if matches!(request, GsiRequest::Sync { .. }) {
            // Our own process wants to know that its wills would outlive us.
            self.tell_deputy();
        }
        if let Some(reply) = self.gsi.handle(member, request, descriptors, clock::now()) {
            let Client { socket, answers, .. } = &mut self.clients[at];
            // Who asks more than that without listening does not wait for ever.
            answers.send(socket, Reply::Gsi(reply).encode(), MAX_ANSWERS);
        }
    }

    /// Sends answers for which there is room by now.
    pub(super) fn flush_answers(&mut self) {
        let waiting = self.clients.iter_mut().filter(|client| !client.answers.is_empty());
        waiting.for_each(|Client { socket, answers, .. }| answers.flush(socket));
    }
}

/// Answers that wait for a client: a dozen bytes each.
const MAX_ANSWERS: usize = 1 << 14;

#[cfg(test)]
mod tests;
