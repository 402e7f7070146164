//! Receiving: super-packets in, packets with what the socket knows of them out.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use userdma_mem::{FrameMeta, LinkId};

use super::UdpConfig;
use super::mmsg::{Incoming, RecvArrays};

/// What one receive brought.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecvReport {
    /// Packets given to the sink.
    pub packets: usize,
    /// Datagrams that the socket gave, each one packet or several joined ones.
    pub messages: usize,
    /// Datagrams that were dropped: cut short, empty, or of no address.
    pub dropped: usize,
    /// Errors of the socket other than "nothing there".
    pub errors: usize,
    /// Everything that was asked for came, so there may be more: receive again before sleeping.
    pub more: bool,
}

/// The receiving half of a link.
#[derive(Debug)]
pub(super) struct Receiver {
    socket: OwnedFd,
    arrays: RecvArrays,
    /// Messages to ask for next: doubled while all that was asked for comes, one after a lull and for the first few.
    /// Asking for what is not there costs time, which a lone packet has to wait for.
    ask: usize,
    /// Messages since the last lull.
    row: usize,
    link: LinkId,
    local: (IpAddr, u16),
}

impl Receiver {
    pub(super) fn new(socket: OwnedFd, link: LinkId, local: (IpAddr, u16), config: &UdpConfig) -> Self {
        Self { socket, arrays: RecvArrays::new(config.recv_messages), ask: 1, row: 0, link, local }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// One system call; each packet that it brings goes to `take`.
    pub(super) fn recv(&mut self, report: &mut RecvReport, mut take: impl FnMut(&[u8], FrameMeta)) {
        let came = match self.arrays.recv(self.socket.as_fd(), self.ask) {
            Ok(came) => came,
            Err(error) => {
                // An error is told once; what lies behind it is fetched by the next call.
                let nothing = error.kind() == io::ErrorKind::WouldBlock;
                report.errors += usize::from(!nothing);
                report.more = !nothing;
                (self.ask, self.row) = (1, 0);
                return;
            }
        };
        report.messages += came;
        report.more = came == self.ask;
        self.row = if report.more { self.row.saturating_add(came) } else { 0 };
        self.ask = if self.row < LONE { 1 } else { (self.ask * 2).min(self.arrays.capacity()) };
        for message in self.arrays.messages(came) {
            match self.meta(&message) {
                Some((meta, segment)) => {
                    // 64 KiB have less than 2^16 segments: one has a byte at least.
                    for (index, packet) in (0u16..).zip(message.bytes.chunks(segment)) {
                        take(packet, FrameMeta { segment: index, ..meta });
                    }
                }
                None => report.dropped += 1,
            }
        }
    }

    /// What the socket says of a message, and the size of the packets in it; `None` if it cannot be used.
    fn meta(&self, message: &Incoming<'_>) -> Option<(FrameMeta, usize)> {
        // Without all control messages it is not known where one packet ends and the next begins.
        let cut = message.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        let (remote, remote_port) = message.addr.decode(message.addr_len)?;
        if cut || message.bytes.is_empty() {
            return None;
        }
        let mut traffic_class = 0;
        let mut segment = message.bytes.len();
        for (level, kind, value) in message.control.messages(message.control_len) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => traffic_class = value.first().copied().unwrap_or(0),
                // An i32 of 0 ..= 255.
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    traffic_class = number(value).and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    segment = number(value).and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0)?;
                }
                _ => {}
            }
        }
        let (local, local_port) = self.local;
        let meta =
            FrameMeta { link: self.link, remote, remote_port, local, local_port, traffic_class, segment: 0 };
        Some((meta, segment))
    }
}

/// Messages in a row that may each have come alone.
const LONE: usize = 3;

/// A control message's value that is a number.
fn number(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}
