//! Who has a slot, whatever the books say: each slot has a lock, which its owner keeps as long as he lives.
//!
//! An agent's are names in the kernel's abstract space: whoever is the agent finds them. Anybody may take such a name, so a
//! service has *lines* instead: socket pairs of which the owner has one end and the service the other. When the owner dies
//! the line hangs up, and whoever shows the owner's end is the owner.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use userdma_link::clock::timespec;

use crate::names;

/// The locks of all slots.
#[derive(Debug)]
pub(crate) enum Locks {
    /// Names.
    Names,
    /// Lines, by address, port and slot.
    Lines(HashMap<(IpAddr, u16, u16), Line>),
}

/// A line to the owner of a slot.
#[derive(Debug)]
pub(crate) struct Line {
    /// Our end.
    pub(crate) end: OwnedFd,
    /// The number of the owner's end in the file system. Nothing else has it while the line is open.
    pub(crate) far_inode: u64,
}

impl Locks {
    /// What only the owner of a slot has; `None` if somebody has it.
    pub(crate) fn lock(&mut self, ip: IpAddr, port: u16, slot: u16) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Names => names::lock_slot(ip, port, slot),
            Self::Lines(lines) => {
                if lines.get(&(ip, port, slot)).is_some_and(Line::is_open) {
                    return Ok(None);
                }
                let (end, far) =
                    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
                let far_inode = rustix::fs::fstat(&far)?.st_ino;
                lines.insert((ip, port, slot), Line { end, far_inode });
                Ok(Some(far))
            }
        }
    }

    /// Whether somebody has the lock of a slot. What cannot be asked is not there.
    pub(crate) fn is_locked(&self, ip: IpAddr, port: u16, slot: u16) -> bool {
        match self {
            Self::Names => matches!(names::lock_slot(ip, port, slot), Ok(None)),
            Self::Lines(lines) => lines.get(&(ip, port, slot)).is_some_and(Line::is_open),
        }
    }

    /// The line of a slot, if it has one.
    pub(crate) fn line(&self, ip: IpAddr, port: u16, slot: u16) -> Option<&Line> {
        match self {
            Self::Names => None,
            Self::Lines(lines) => lines.get(&(ip, port, slot)),
        }
    }
}

impl Line {
    /// Whether the owner has his end.
    pub(crate) fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.end, PollFlags::empty())];
        !poll(&mut fds, Some(&timespec(0))).is_ok_and(|ready| ready > 0)
    }

    /// Whether `shown` is the owner's end.
    pub(crate) fn is_to(&self, shown: &OwnedFd) -> bool {
        let (Ok(ours), Ok(shown)) = (rustix::fs::fstat(&self.end), rustix::fs::fstat(shown)) else {
            return false;
        };
        // Files elsewhere may have the same number.
        (shown.st_dev, shown.st_ino) == (ours.st_dev, self.far_inode) && self.is_open()
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: (IpAddr, u16, u16) = (IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4791, 7);

    #[test]
    fn a_line_is_open_while_somebody_has_its_end_and_only_that_proves_it() {
        let mut locks = Locks::Lines(HashMap::new());
        let (ip, port, slot) = SLOT;
        let end = locks.lock(ip, port, slot).unwrap().unwrap();
        assert!(locks.is_locked(ip, port, slot) && !locks.is_locked(ip, port, 8));
        assert!(locks.lock(ip, port, slot).unwrap().is_none());
        let other = locks.lock(ip, port, 8).unwrap().unwrap();
        let line = locks.line(ip, port, slot).unwrap();
        assert!(line.is_to(&end.try_clone().unwrap()) && !line.is_to(&other));
        // What the owner writes ends nothing.
        rustix::io::write(&end, &[1]).unwrap();
        assert!(line.is_open());
        drop(end);
        assert!(!locks.is_locked(ip, port, slot));
        assert!(locks.lock(ip, port, slot).unwrap().is_some());
    }
}
