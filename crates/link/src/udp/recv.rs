//! Receiving: super-packets in, packets with what the socket knows of them out.

use std::net::IpAddr;
use std::os::fd::AsFd;

use userdma_mem::{FrameMeta, LinkId};

use super::mmsg::{Incoming, RecvArrays};
use super::pace::Pace;
use super::{UdpConfig, probe};
use crate::guard::GuardedFd;

/// What one receive brought.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecvReport {
    /// Packets given to the sink.
    pub packets: usize,
    /// Datagrams that the socket gave, each one packet or several coalesced ones.
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
    socket: GuardedFd,
    arrays: RecvArrays,
    pace: Pace,
    /// Whether the kernel coalesces packets when it is asked to.
    can_coalesce: bool,
    /// Of the last packet that told it.
    traffic_class: u8,
    link: LinkId,
    local: (IpAddr, u16),
}

impl Receiver {
    pub(super) fn new(
        socket: GuardedFd,
        link: LinkId,
        local: (IpAddr, u16),
        can_coalesce: bool,
        config: &UdpConfig,
    ) -> Self {
        let arrays = RecvArrays::new(config.recv_messages);
        let pace = Pace::new(arrays.capacity());
        Self { socket, arrays, pace, can_coalesce, traffic_class: 0, link, local }
    }

    pub(super) fn socket(&self) -> &GuardedFd {
        &self.socket
    }

    /// Whether the kernel coalesces packets when they come in crowds.
    pub(super) fn can_coalesce(&self) -> bool {
        self.can_coalesce
    }

    /// Something was sent.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.pace.on_sent();
    }

    /// One system call; each packet that it brings goes to `take`. If `is_whole`, the traffic class is each packet's own.
    pub(super) fn recv(
        &mut self,
        is_whole: bool,
        report: &mut RecvReport,
        take: impl FnMut(&[u8], FrameMeta),
    ) {
        let fd = self.socket.as_fd();
        let is_brief = self.pace.is_brief() && !is_whole && !self.pace.is_sample();
        let (asked, result) = match self.pace.ask() {
            _ if is_brief => (1, self.arrays.recv_brief(fd)),
            ask => (ask, self.arrays.recv(fd, ask)),
        };
        match result {
            Ok(came) => {
                report.messages += came;
                report.more = came == asked;
                let are_plain = self.deliver(came, is_brief, report, take);
                if self.pace.on_messages(came, are_plain) {
                    self.end_brief();
                }
            }
            // An error is told once; what lies behind it is fetched by the next call.
            Err(error) if error.raw_os_error() != Some(libc::EAGAIN) => {
                report.errors += 1;
                report.more = true;
            }
            Err(_) if self.pace.on_lull() => self.try_brief(),
            Err(_) => {}
        }
    }

    /// Gives the packets of the messages that came to `take`. Whether each message was plain: a packet, or two, since an
    /// acknowledgement behind the answer that it goes with makes no crowd; and none that a router may have marked.
    #[inline]
    fn deliver(
        &mut self,
        came: usize,
        is_brief: bool,
        report: &mut RecvReport,
        mut take: impl FnMut(&[u8], FrameMeta),
    ) -> bool {
        let mut are_plain = true;
        for message in self.arrays.messages(came) {
            let Some((meta, segment)) = self.meta(&message, is_brief) else {
                report.dropped += 1;
                continue;
            };
            self.traffic_class = meta.traffic_class;
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
        are_plain
    }

    /// Switches coalescing off and receives briefly, if nothing is queued. The kernel tells the size of a coalesced
    /// message's packets only while coalescing is on (`udp.c udp_recvmsg()`),
    /// so none may be there when it is switched off. One that another processor is about to queue just then is lost: its
    /// ICRC does not fit, and its packets are sent again.
    #[cold]
    fn try_brief(&mut self) {
        if !self.can_coalesce {
            return self.pace.begin_brief();
        }
        if probe::set_coalescing(self.socket.as_fd(), false).is_err() {
            return self.pace.stay_whole();
        }
        if crate::is_readable(&self.socket) {
            self.end_brief();
        } else {
            self.pace.begin_brief();
        }
    }

    #[cold]
    fn end_brief(&mut self) {
        // If it is refused, packets come alone from now on.
        self.can_coalesce = self.can_coalesce && probe::set_coalescing(self.socket.as_fd(), true).is_ok();
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

/// A control message's value that is a number.
fn number(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

/// The congestion bits of a traffic class.
const ECN_MASK: u8 = 0b11;
/// Sent without them: no router marks it (RFC 3168 §5).
const NOT_ECT: u8 = 0b00;
