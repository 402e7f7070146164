//! Receiving: super-packets in, packets with what the socket knows of them out.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use userdma_mem::{FrameMeta, LinkId};

use super::mmsg::{Incoming, RecvArrays};
use super::pace::{Change, Pace};
use super::{UdpConfig, options};

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
    pace: Pace,
    /// Whether the kernel joins packets when it is asked to.
    can_join: bool,
    /// Of the last packet that told it.
    traffic_class: u8,
    link: LinkId,
    local: (IpAddr, u16),
}

impl Receiver {
    pub(super) fn new(
        socket: OwnedFd,
        link: LinkId,
        local: (IpAddr, u16),
        can_join: bool,
        config: &UdpConfig,
    ) -> Self {
        let arrays = RecvArrays::new(config.recv_messages);
        let pace = Pace::new(arrays.capacity());
        Self { socket, arrays, pace, can_join, traffic_class: 0, link, local }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether the kernel joins packets when they come in crowds.
    pub(super) fn can_join(&self) -> bool {
        self.can_join
    }

    /// Something was sent.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.pace.on_sent();
    }

    /// One system call; each packet that it brings goes to `take`.
    pub(super) fn recv(&mut self, report: &mut RecvReport, mut take: impl FnMut(&[u8], FrameMeta)) {
        let fd = self.socket.as_fd();
        let is_brief = self.pace.is_brief();
        let result =
            if is_brief { self.arrays.recv_brief(fd) } else { self.arrays.recv(fd, self.pace.ask()) };
        let came = match result {
            Ok(came) => came,
            Err(error) => {
                // An error is told once; what lies behind it is fetched by the next call.
                let nothing = error.raw_os_error() == Some(libc::EAGAIN);
                report.errors += usize::from(!nothing);
                report.more = !nothing;
                return self.pace.on_lull();
            }
        };
        report.messages += came;
        let mut are_plain = true;
        for message in self.arrays.messages(came) {
            let Some((meta, segment)) = self.meta(&message, is_brief) else {
                report.dropped += 1;
                continue;
            };
            self.traffic_class = meta.traffic_class;
            // An acknowledgement behind the answer that it goes with makes no crowd.
            are_plain &= 2 * segment >= message.bytes.len() && meta.traffic_class & ECN_MASK == NOT_ECT;
            if segment >= message.bytes.len() {
                // Where latency counts, packets come alone.
                take(message.bytes, meta);
            } else {
                // 64 KiB have less than 2^16 segments: one has a byte at least.
                for (index, packet) in (0u16..).zip(message.bytes.chunks(segment)) {
                    take(packet, FrameMeta { segment: index, ..meta });
                }
            }
        }
        let (more, change) = self.pace.on_messages(came, are_plain);
        report.more = more;
        if change != Change::None {
            self.set_joining(change == Change::Join);
        }
    }

    #[cold]
    fn set_joining(&mut self, joins: bool) {
        if !self.can_join {
            return;
        }
        if options::set(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, joins.into()).is_err() {
            // Refused to part: it goes on joining, and must be asked. Refused to join: packets come alone from now on.
            self.can_join = !joins;
            if !joins {
                self.pace.stay_whole();
            }
        }
    }

    /// What the socket says of a message, and the size of the packets in it; `None` if it cannot be used.
    fn meta(&self, message: &Incoming<'_>, is_brief: bool) -> Option<(FrameMeta, usize)> {
        // Without all control messages it is not known where one packet ends and the next begins.
        let cut = message.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        let (remote, remote_port) = message.addr.decode(message.addr_len)?;
        if cut || message.bytes.is_empty() {
            return None;
        }
        let mut traffic_class = if is_brief { self.traffic_class } else { 0 };
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

/// The congestion bits of a traffic class.
const ECN_MASK: u8 = 0b11;
/// Sent without them: no router marks it (RFC 3168 §5).
const NOT_ECT: u8 = 0b00;

/// A control message's value that is a number.
fn number(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}
