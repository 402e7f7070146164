//! Sending: batches in, as few system calls as possible, and what became of them.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use userdma_mem::{Route, TxBatch};

use super::gso::Defaults;
use super::mmsg::{SendArrays, send_one};
use super::sockaddr::SockAddr;
use super::{TX_SOCKETS, UdpConfig};
use crate::guard::GuardedFd;

/// What became of the batches of one send.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendReport {
    /// Batches, counted from the first, that are done with: sent, dropped or empty. They are empty now; the
    /// others are as they were and wait for another send.
    pub taken: usize,
    /// Packets that the kernel took.
    pub packets: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Packets that were dropped: their destination cannot be reached, they are too long for the way there, or they do
    /// not suit this link.
    pub dropped: usize,
    /// System calls.
    pub calls: usize,
    /// Sends that told of the ICMP answer to an earlier packet. They were repeated.
    pub icmp_errors: usize,
    /// The last of the packets that were too long.
    pub too_long: Option<TooLong>,
    /// The kernel's buffers are full: send again later.
    pub blocked: bool,
    /// The link can do less than before: it has stopped segmenting.
    pub caps_changed: bool,
}

/// A packet that was longer than the path's MTU allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooLong {
    /// Where it should have gone.
    pub remote: IpAddr,
    /// What UDP would have carried, in bytes.
    pub bytes: usize,
}

/// The sending half of a link.
#[derive(Debug)]
pub(super) struct Sender {
    sockets: [GuardedFd; TX_SOCKETS],
    arrays: SendArrays,
    defaults: Defaults,
    /// Whether the link's address is an IPv4 address.
    ipv4: bool,
    segmentation: bool,
}

/// What became of the first batches of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The kernel took this many, at least one.
    Sent(usize),
    /// The first is given up.
    Dropped,
    /// None can be sent now.
    Blocked,
}

impl Sender {
    pub(super) fn new(
        sockets: [GuardedFd; TX_SOCKETS],
        ipv4: bool,
        segmentation: bool,
        config: &UdpConfig,
    ) -> Self {
        Self { sockets, arrays: SendArrays::new(), defaults: Defaults::new(config), ipv4, segmentation }
    }

    /// Whether a batch may have several packets.
    pub(super) fn segmentation(&self) -> bool {
        self.segmentation
    }

    /// Sends the first of `batches`, and with it those that follow on the same socket.
    pub(super) fn send_some(&mut self, batches: &[TxBatch], report: &mut SendReport) -> Outcome {
        let Some((first, route)) = batches.first().and_then(|first| Some((first, first.route()?))) else {
            return Outcome::Dropped; // Nothing to lose.
        };
        let (defaults, segmentation, ipv4) = (self.defaults, self.segmentation, self.ipv4);
        if !suits(route, ipv4) {
            report.dropped += first.count();
            return Outcome::Dropped;
        }
        if first.count() > 1 && !segmentation {
            return self.send_singly(first, route, report);
        }
        let fd = self.sockets[usize::from(route.socket)].as_fd();
        let is_lone = batches.len() == 1 && first.count() == 1 && defaults.suit(route);
        let result = if is_lone {
            // Most packets are alone where latency counts: they go with the least effort.
            let addr = SockAddr::new(route.remote, route.remote_port, route.scope_id);
            send_twice(report, || send_one(fd, first.bytes(), &addr))
        } else {
            let run = run(batches, route, segmentation);
            let messages = run.map(|(batch, route)| defaults.super_packet(route, batch));
            send_twice(report, || self.arrays.send(fd, messages.clone()))
        };
        match result {
            Ok(sent) => {
                for batch in &batches[..sent] {
                    report.packets += batch.count();
                    report.bytes += batch.bytes().len();
                }
                Outcome::Sent(sent)
            }
            Err(Refusal::Full) => Outcome::Blocked,
            Err(Refusal::NoSegmentation) if first.count() > 1 => self.send_singly(first, route, report),
            Err(Refusal::TooLong) => {
                report.too_long = Some(TooLong { remote: route.remote, bytes: first.segment() });
                report.dropped += first.count();
                Outcome::Dropped
            }
            Err(Refusal::NoSegmentation | Refusal::Other) => {
                report.dropped += first.count();
                Outcome::Dropped
            }
        }
    }

    /// Sends the packets of a batch one by one, because the kernel does not segment, or refused this batch. If the
    /// packets go where the batch did not, segmentation is off for good.
    ///
    /// On IPv4 each of them has identification 0, which only the first one's ICRC was made for: a strict peer drops the
    /// others, and they are sent again as batches of one.
    fn send_singly(&mut self, batch: &TxBatch, route: &Route, report: &mut SendReport) -> Outcome {
        let fd = self.sockets[usize::from(route.socket)].as_fd();
        let mut sent = 0;
        while sent < batch.count() {
            let packets = batch.bytes().chunks(batch.segment().max(1));
            let rest = packets.skip(sent).map(|packet| self.defaults.single(route, packet));
            match send_twice(report, || self.arrays.send(fd, rest.clone())) {
                Ok(taken) => sent += taken,
                Err(Refusal::Full) if sent == 0 => return Outcome::Blocked,
                Err(Refusal::TooLong) => {
                    report.too_long = Some(TooLong { remote: route.remote, bytes: batch.segment() });
                    break;
                }
                Err(Refusal::Full | Refusal::NoSegmentation | Refusal::Other) => break,
            }
        }
        report.packets += sent;
        report.bytes += batch.packets().take(sent).map(<[u8]>::len).sum::<usize>();
        report.dropped += batch.count() - sent;
        if sent == 0 {
            return Outcome::Dropped;
        }
        if self.segmentation {
            self.segmentation = false;
            report.caps_changed = true;
        }
        Outcome::Sent(1)
    }
}

/// The batches that can go with the first, on the same socket.
fn run<'a>(
    batches: &'a [TxBatch],
    first: &'a Route,
    segmentation: bool,
) -> impl Iterator<Item = (&'a TxBatch, &'a Route)> + Clone {
    batches.iter().map_while(move |batch| {
        let route = batch.route()?;
        let joins = route.socket == first.socket && suits(route, first.remote.is_ipv4());
        (joins && (segmentation || batch.count() == 1)).then_some((batch, route))
    })
}

/// Whether a batch with this route can be sent from an address of this family.
fn suits(route: &Route, ipv4: bool) -> bool {
    route.remote.is_ipv4() == ipv4 && usize::from(route.socket) < TX_SOCKETS
}

/// Why the kernel did not take a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// No room now.
    Full,
    /// Longer than the path allows.
    TooLong,
    /// Perhaps it cannot segment: the way out has no checksum offload, or there is no such option.
    NoSegmentation,
    /// No way there, not allowed, …
    Other,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Self::Full,
            Some(libc::EMSGSIZE) => Self::TooLong,
            Some(libc::EIO | libc::EINVAL) => Self::NoSegmentation,
            _ => Self::Other,
        }
    }
}

/// Sends; an error that a second try does not meet again belonged to an earlier packet.
fn send_twice(
    report: &mut SendReport,
    mut send: impl FnMut() -> io::Result<usize>,
) -> Result<usize, Refusal> {
    report.calls += 1;
    let first = match send() {
        Ok(sent) => return Ok(sent),
        Err(error) => Refusal::from(error),
    };
    if first != Refusal::Other {
        return Err(first);
    }
    report.calls += 1;
    let sent = send()?;
    report.icmp_errors += 1;
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use userdma_mem::LinkId;
    use userdma_verbs::Time;

    use super::*;
    use crate::UdpLink;
    use crate::udp::options::set;

    /// The kernel refuses to segment for a socket without checksums, as it does for a way out without checksum
    /// offload.
    #[test]
    fn a_refusal_to_segment_ends_segmentation_and_the_packets_go_alone() {
        let config = UdpConfig { port: 0, ..UdpConfig::default() };
        let open = || UdpLink::open(LinkId(0), "127.0.0.1".parse().unwrap(), 0, &config).unwrap();
        let (mut tx, mut rx) = (open(), open());
        let route = tx.route(rx.local(), rx.port(), 6);
        set(tx.sender.sockets[6].as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let mut batches = [TxBatch::new(&tx.caps()), TxBatch::new(&tx.caps())];
        for batch in &mut batches {
            for index in 0..40 {
                batch.push(&route, 100).unwrap().1.fill(index);
            }
        }
        let report = tx.send(Time::ZERO, &mut batches);
        assert!(report.caps_changed);
        assert_eq!((report.taken, report.packets, report.bytes, report.dropped), (2, 80, 8000, 0));
        assert_eq!(tx.caps().max_batch_packets, 1);
        let mut first_bytes = Vec::new();
        while first_bytes.len() < 80 {
            let report = rx.recv(Time::ZERO, &mut |frame| first_bytes.push(frame.bytes[0]));
            let mut fds = [PollFd::new(&rx, PollFlags::IN)];
            let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert!(report.messages > 0 || poll(&mut fds, Some(&limit)).unwrap() == 1);
        }
        assert!(first_bytes.iter().copied().eq((0..40).chain(0..40)));

        batches[0].set_max_packets(1);
        batches[0].push(&route, 100).unwrap();
        assert_eq!(batches[0].push(&route, 100), None);
        let report = tx.send(Time::ZERO, &mut batches);
        assert_eq!((report.packets, report.calls, report.caps_changed), (1, 1, false));
    }

    /// A socket that wants to hear of them is told of ICMP answers by its next send, which then does nothing else.
    #[test]
    fn a_send_that_tells_of_an_earlier_packet_is_repeated() {
        let config = UdpConfig { port: 0, ..UdpConfig::default() };
        let mut tx = UdpLink::open(LinkId(0), "127.0.0.1".parse().unwrap(), 0, &config).unwrap();
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let route = tx.route(nobody.ip(), nobody.port(), 0);
        set(tx.sender.sockets[0].as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1).unwrap();
        let mut batch = [TxBatch::new(&tx.caps())];
        for icmp_errors in [0, 1, 1] {
            batch[0].push(&route, 10).unwrap();
            let report = tx.send(Time::ZERO, &mut batch);
            assert_eq!((report.packets, report.dropped, report.icmp_errors), (1, 0, icmp_errors));
        }
    }

    #[test]
    fn errors_mean_what_the_kernel_means_by_them() {
        let refusal = |errno| Refusal::from(io::Error::from_raw_os_error(errno));
        assert_eq!(refusal(libc::EAGAIN), Refusal::Full);
        assert_eq!(refusal(libc::ENOBUFS), Refusal::Full);
        assert_eq!(refusal(libc::EMSGSIZE), Refusal::TooLong);
        assert_eq!(refusal(libc::EIO), Refusal::NoSegmentation);
        assert_eq!(refusal(libc::EINVAL), Refusal::NoSegmentation);
        assert_eq!(refusal(libc::ECONNREFUSED), Refusal::Other);
        assert_eq!(refusal(libc::ENETUNREACH), Refusal::Other);
    }
}
