//! What waits for room in a socket: who does not read makes nobody wait, and what is for him is not lost at once.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use crate::packet;

/// Messages for one socket, the oldest first. How many may wait is for the caller to say.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Vec<u8>>,
}

impl Outbox {
    /// How many messages wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none does.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a message, behind those that wait. `false` if `most` do already, or the other end has gone: then it is lost.
    pub(super) fn send(&mut self, socket: &impl AsFd, bytes: Vec<u8>, most: usize) -> bool {
        if self.waiting.is_empty() {
            match packet::send_now(socket, &bytes, &[]) {
                Ok(false) => {}
                sent => return sent.is_ok(),
            }
        }
        let has_room = self.waiting.len() < most;
        if has_room {
            self.waiting.push_back(bytes);
        }
        has_room
    }

    /// Sends what there is room for.
    pub(super) fn flush(&mut self, socket: &impl AsFd) {
        while let Some(bytes) = self.waiting.front() {
            match packet::send_now(socket, bytes, &[]) {
                Ok(true) => drop(self.waiting.pop_front()),
                Ok(false) => return,
                // Nobody will read it.
                Err(_) => return self.waiting.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap()
    }

    #[test]
    fn who_reads_late_gets_everything_in_order() {
        let (ours, theirs) = pair();
        let mut outbox = Outbox::default();
        // More than a socket takes.
        for number in 0..5000u32 {
            assert!(outbox.send(&ours, number.to_be_bytes().to_vec(), 5000));
        }
        assert!(!outbox.is_empty());
        let mut room = [0; 4];
        for number in 0..5000u32 {
            let (len, _) = packet::receive(&theirs, &mut room, RecvFlags::empty()).unwrap();
            assert_eq!((len, u32::from_be_bytes(room)), (4, number));
            outbox.flush(&ours);
        }
        assert_eq!(outbox.len(), 0);
    }

    #[test]
    fn what_has_no_room_is_lost_and_so_is_everything_if_nobody_reads() {
        let (ours, theirs) = pair();
        let mut outbox = Outbox::default();
        while outbox.send(&ours, vec![0; 400], 3) {}
        assert_eq!(outbox.len(), 3);
        drop(theirs);
        outbox.flush(&ours);
        assert!(outbox.is_empty());
        assert!(!outbox.send(&ours, vec![0], 3));
    }
}
