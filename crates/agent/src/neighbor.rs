//! How a device gets the sockets of the others on its address: it asks the thread that keeps its slot, which has the parks.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use userdma_link::guard::GuardedFd;
use userdma_link::{Neighbors, clock};

use crate::message::Request;
use crate::park::Park;
use crate::{packet, wait};

/// Where a link asks for the sockets of its group.
#[derive(Debug)]
pub(crate) struct Neighbor {
    line: Arc<Mutex<GuardedFd>>,
    address: u8,
}

/// The keeper's end.
#[derive(Debug)]
pub(crate) struct Answerer {
    line: OwnedFd,
}

/// Both ends of a line.
pub(crate) fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl Neighbor {
    /// Asks by `line` for sockets of the group on the address of that number in the GID table.
    pub(crate) fn new(line: &Arc<Mutex<GuardedFd>>, address: u8) -> Self {
        Self { line: Arc::clone(line), address }
    }
}

impl Neighbors for Neighbor {
    fn socket(&mut self, slot: u16) -> Option<OwnedFd> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let question = encode(self.address, slot);
        packet::send(&*line, &question, &[]).ok()?;
        let end = clock::now().plus_nanos(PATIENCE_NS);
        loop {
            let left = end.nanos().saturating_sub(clock::now().nanos());
            if !wait::until_readable(&*line, left) {
                return None;
            }
            let mut room = question;
            let (len, sockets) = packet::receive(&*line, &mut room, RecvFlags::empty()).ok()?;
            if len == 0 {
                return None;
            }
            // An answer to an earlier question, which came too late, is let go.
            if room == question {
                return sockets.into_iter().next();
            }
        }
    }
}

impl Answerer {
    pub(crate) fn new(line: OwnedFd) -> Self {
        Self { line }
    }

    /// Answers what is asked; `parks` are those of each address. Whether more may be asked.
    pub(crate) fn answer(&self, parks: &[Vec<OwnedFd>]) -> bool {
        let (address, slot) = match self.question() {
            Ok(Some(question)) => question,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let ends = parks.get(usize::from(address));
        // If it is not there, the answer is that.
        let socket = ends.and_then(|ends| Park::socket_among(ends, slot).ok());
        self.hand_over(address, slot, socket.as_slice());
        true
    }

    /// Asks the service what is asked. Whether more may be asked.
    pub(crate) fn pass_on(&self, service: &OwnedFd) -> bool {
        match self.question() {
            Ok(Some((address, slot))) => {
                // If it has gone, there is no answer.
                let _ = packet::send(service, &Request::Neighbor { address, slot }.encode(), &[]);
                true
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Answers with the socket, or with none.
    pub(crate) fn hand_over(&self, address: u8, slot: u16, socket: &[OwnedFd]) {
        let socket: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
        // If there is no room for the answer, nobody waits for it any more.
        let _ = packet::send(&self.line, &encode(address, slot), &socket);
    }

    /// What is asked, if anything is.
    fn question(&self) -> io::Result<Option<(u8, u16)>> {
        let mut question = [0; QUESTION_LEN];
        match packet::receive(&self.line, &mut question, RecvFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Ok((QUESTION_LEN, _)) => Ok(Some(decode(question))),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Answerer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.line.as_fd()
    }
}

fn encode(address: u8, slot: u16) -> [u8; QUESTION_LEN] {
    let [high, low] = slot.to_be_bytes();
    [address, high, low]
}

fn decode([address, high, low]: [u8; QUESTION_LEN]) -> (u8, u16) {
    (address, u16::from_be_bytes([high, low]))
}

const QUESTION_LEN: usize = 3;
/// How long an answer may take: much longer than a thread takes to wake, and short for a device that waits.
const PATIENCE_NS: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::group::Group;

    fn ends(line: (OwnedFd, OwnedFd)) -> (Neighbor, Answerer) {
        (Neighbor::new(&Arc::new(Mutex::new(line.0.into())), 0), Answerer::new(line.1))
    }

    #[test]
    fn the_socket_of_a_slot_is_handed_over_and_one_that_is_not_there_is_none() {
        let ip = IpAddr::from([127, 61, 61, 2]);
        let mut group = Group::create(ip, 4791).unwrap();
        group.reach(300).unwrap();
        let parks = group.parks().iter().map(|park| park.end().try_clone_to_owned().unwrap()).collect();
        let (mut neighbor, answerer) = ends(line().unwrap());
        let thread = std::thread::spawn(move || {
            let parks = [parks];
            while wait::until_readable(&answerer, 10_000_000_000) && answerer.answer(&parks) {}
        });
        for slot in [1, 252, 253, 300] {
            // On a busy machine the thread may take longer than a device waits.
            let socket = std::iter::repeat_with(|| neighbor.socket(slot)).take(1000).flatten().next();
            let socket = UdpSocket::from(socket.expect("a socket"));
            let sender = UdpSocket::bind((ip, 0)).unwrap();
            let packet = [[0; 4], (u32::from(slot) << 14).to_be_bytes()].concat();
            sender.send_to(&packet, (ip, 4791)).unwrap();
            assert!(wait::until_readable(&socket, 10_000_000_000), "slot {slot} is another's");
            assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 8);
        }
        assert!(neighbor.socket(1022).is_none(), "the group is not that large");
        drop(neighbor);
        thread.join().unwrap();
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_another() {
        let group = Group::create(IpAddr::from([127, 61, 61, 3]), 4791).unwrap();
        let parks = [vec![group.parks()[0].end().try_clone_to_owned().unwrap()]];
        let (mut neighbor, answerer) = ends(line().unwrap());
        assert!(neighbor.socket(1).is_none(), "nobody answers");
        assert!(answerer.answer(&parks));
        let late = std::thread::spawn(move || neighbor.socket(1022));
        while !wait::is_readable(&answerer) {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(answerer.answer(&parks));
        assert!(late.join().unwrap().is_none(), "slot 1's socket was taken for that of slot 1022");
    }
}
