//! RoCE v2 over UDP sockets.
//!
//! One socket receives: it is bound to the link's address and the RoCE port, alone or as one of a group that processes share
//! ([`shared`]), and to no other address, so links on two addresses are two hosts. Eight sockets send, each from a port of its own; a queue pair keeps to one of them for its life, so that its
//! packets take one path. They are never connected: only then does the kernel number IPv4 packets from 0, which
//! the ICRC covers.
//!
//! A batch goes out as one super-packet that the kernel cuts up (as late as it can, on the same machine never), and comes
//! in joined again. Where the kernel cannot do one or the other, packets travel alone.

mod backlog;
mod control;
mod groups;
mod gsi;
mod gso;
mod mmsg;
mod options;
mod pace;
mod probe;
mod recv;
mod send;
pub mod shared;
mod sockaddr;
mod socket;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use userdma_mem::{Frame, FrameMeta, LinkCaps, LinkId, Route, TxBatch};
use userdma_verbs::{Qpn, Time};
use userdma_wire::ROCE_V2_PORT;

use crate::{FaultInjector, FaultStats, Faults, Tap, iface};
pub use backlog::{Backlog, Neighbors};
use groups::{Groups, Place};
pub use gsi::{GsiReceiver, GsiSender};
pub use options::BufferSize;
use recv::Receiver;
pub use recv::RecvReport;
use send::{Outcome, Sender};
pub use send::{SendReport, TooLong};
use socket::Sockets;
pub use socket::{OpenError, is_unicast};

/// Transmit sockets of a link.
pub const TX_SOCKETS: usize = 8;

/// How a link is set up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UdpConfig {
    /// Port that packets come in by: 4791, or a private one (0: the kernel chooses).
    pub port: u16,
    /// Bytes wanted for packets that wait to be received.
    pub recv_buffer: usize,
    /// Bytes wanted for packets that wait to be sent, for each transmit socket.
    pub send_buffer: usize,
    /// Datagrams that one receive may bring: 1 ..= 16, each of up to 64 KiB.
    pub recv_messages: usize,
    /// Traffic class of packets whose route has the same, at no cost.
    pub traffic_class: u8,
    /// Hop limit, likewise: 1 ..= 255.
    pub hop_limit: u8,
    /// Whether the kernel may cut batches into packets, where it can.
    pub segmentation: bool,
    /// Whether the kernel may join packets that come in, where it can.
    pub coalescing: bool,
    /// Bytes of an IP packet that the link says it carries, if less than its interface does.
    pub mtu: Option<u32>,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            port: ROCE_V2_PORT,
            recv_buffer: 4 << 20,
            send_buffer: 1 << 20,
            recv_messages: 4,
            traffic_class: 0,
            hop_limit: 64,
            segmentation: true,
            coalescing: true,
            mtu: None,
        }
    }
}

/// A link over UDP from one local address.
#[derive(Debug)]
pub struct UdpLink {
    id: LinkId,
    local: IpAddr,
    scope_id: u32,
    mtu: u32,
    config: UdpConfig,
    port: u16,
    tx_ports: [u16; TX_SOCKETS],
    recv_buffer: BufferSize,
    /// Datagrams that the receive socket had dropped for others.
    drops_before: u32,
    send_buffer: BufferSize,
    sender: Sender,
    receiver: Receiver,
    faults: Option<Box<FaultInjector>>,
    tap: Option<Tap>,
    group: Option<backlog::Group>,
    /// The index of the interface; 0 if it is not known.
    interface: u32,
    /// Once one was joined.
    groups: Option<Box<Groups>>,
}

impl UdpLink {
    /// Opens a link from `local` (an IPv4 address in IPv6 form counts as IPv4). `scope_id` is the interface's index if
    /// `local` is link-local, else 0.
    ///
    /// # Errors
    /// The address's port is taken, the address is not this machine's, or the kernel refuses an option that the
    /// link cannot do without.
    pub fn open(id: LinkId, local: IpAddr, scope_id: u32, config: &UdpConfig) -> Result<Self, OpenError> {
        let local = local.to_canonical();
        Self::with_sockets(id, local, scope_id, config, Sockets::open(local, scope_id, config)?)
    }

    /// Opens a link from `local` that receives by `member`, a socket that [`shared::bind_member`] bound to `local` and
    /// `config.port`. Packets that waited in it are dropped.
    ///
    /// # Errors
    /// The kernel refuses an option that the link cannot do without.
    pub fn open_member(
        id: LinkId,
        local: IpAddr,
        member: OwnedFd,
        config: &UdpConfig,
    ) -> Result<Self, OpenError> {
        let local = local.to_canonical();
        Self::with_sockets(id, local, 0, config, Sockets::open_member(local, member, config)?)
    }

    fn with_sockets(
        id: LinkId,
        local: IpAddr,
        scope_id: u32,
        config: &UdpConfig,
        sockets: Sockets,
    ) -> Result<Self, OpenError> {
        let Sockets { receive, receive_port, receive_buffer, transmit, transmit_ports, transmit_buffer } =
            sockets;
        let interface = iface::interface_of(local, scope_id).map_err(|source| OpenError::Io {
            ip: local,
            port: config.port,
            what: "list of interfaces",
            source,
        })?;
        // The address can be bound to, so some interface has it; if it cannot be seen, the least that IPv6 allows.
        let mtu = interface.as_ref().map_or(LEAST_MTU, |interface| interface.mtu);
        let interface = interface.map_or(0, |interface| interface.index);
        let mtu = config.mtu.map_or(mtu, |most| most.min(mtu));
        for socket in &transmit {
            // A system without groups has no such option, and sends nothing to them.
            let _ = groups::send_by(socket.as_fd(), local, interface);
        }
        let segmentation = probe::segmentation(transmit[0].as_fd(), config);
        let coalescing = probe::coalescing(receive.as_fd(), config);
        let drops_before = options::drops(receive.as_fd()).unwrap_or(0);
        Ok(Self {
            id,
            local,
            scope_id,
            mtu,
            config: *config,
            port: receive_port,
            tx_ports: transmit_ports,
            recv_buffer: receive_buffer,
            drops_before,
            send_buffer: transmit_buffer,
            sender: Sender::new(transmit, local.is_ipv4(), segmentation, config),
            receiver: Receiver::new(receive, id, (local, receive_port), coalescing, config),
            faults: None,
            tap: None,
            group: None,
            interface,
            groups: None,
        })
    }

    /// Its index in the device's table.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// The address it was opened with.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// The port that packets come in by.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The ports of the transmit sockets.
    pub fn tx_ports(&self) -> [u16; TX_SOCKETS] {
        self.tx_ports
    }

    /// What it can do now.
    pub fn caps(&self) -> LinkCaps {
        LinkCaps {
            max_batch_bytes: if self.local.is_ipv4() { MAX_BATCH_BYTES_V4 } else { MAX_BATCH_BYTES_V6 },
            max_batch_packets: if self.sender.segmentation() { MAX_BATCH_PACKETS } else { 1 },
            mtu: self.mtu,
        }
    }

    /// Whether the kernel coalesces packets that come in crowds. While they come alone it is told not to: that is cheaper.
    pub fn can_coalesce(&self) -> bool {
        self.receiver.can_coalesce()
    }

    /// What the receive socket's buffer came to.
    pub fn recv_buffer(&self) -> BufferSize {
        self.recv_buffer
    }

    /// What a transmit socket's buffer came to.
    pub fn send_buffer(&self) -> BufferSize {
        self.send_buffer
    }

    /// Datagrams that were lost because the receive buffer was full, since the link was opened, modulo 2^32.
    ///
    /// # Errors
    /// What the kernel says to the question.
    pub fn recv_drops(&self) -> io::Result<u32> {
        options::drops(self.as_fd()).map(|drops| drops.wrapping_sub(self.drops_before))
    }

    /// The way to a peer by transmit socket `socket` (taken modulo 8), with the link's usual traffic class and
    /// hop limit.
    pub fn route(&self, remote: IpAddr, remote_port: u16, socket: u8) -> Route {
        let socket = socket % TX_SOCKETS_U8;
        Route {
            link: self.id,
            local: self.local,
            remote: remote.to_canonical(),
            scope_id: self.scope_id,
            socket,
            local_port: self.tx_ports[usize::from(socket)],
            remote_port,
            traffic_class: self.config.traffic_class,
            hop_limit: self.config.hop_limit,
        }
    }

    /// The index of the interface that has the address; 0 if it is not known.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// Receives what is sent to a group (multicast) from now on, wherever it comes from, the link itself included; from the link's
    /// interface, whose network is told. Twice is once. `group` may be of the other address family.
    ///
    /// # Errors
    /// The kernel refuses: no descriptor is left, or it has no such groups. Nothing was joined.
    pub fn join(&mut self, group: IpAddr) -> Result<(), OpenError> {
        let Self { id, interface, port, config, .. } = *self;
        let place = Place { link: id, interface, port, config: &config };
        let no_set = |source| OpenError::Io { ip: group, port, what: "epoll", source };
        let groups = match &mut self.groups {
            Some(groups) => groups,
            none => none.insert(Box::new(Groups::new().map_err(no_set)?)),
        };
        groups.join(place, group.to_canonical())
    }

    /// Receives no more of what is sent to a group; whether it did. What has come and was not received is dropped.
    pub fn leave(&mut self, group: IpAddr) -> bool {
        self.groups.as_mut().is_some_and(|groups| groups.leave(group.to_canonical()))
    }

    /// What becomes readable when a datagram to a group arrives; the same for ever from the first [`UdpLink::join`] on.
    pub fn groups(&self) -> Option<BorrowedFd<'_>> {
        self.groups.as_ref().map(|groups| groups.as_fd())
    }

    /// From `start` on what is received suffers these faults; `None`, or faults that do nothing to packets, for none.
    /// Packets that an earlier injector held back are lost.
    pub fn set_faults(&mut self, faults: Option<&Faults>, start: Time) {
        let faults = faults.filter(|faults| faults.is_of_network());
        self.faults = faults.map(|faults| Box::new(FaultInjector::new(faults, start)));
    }

    /// What the injector has done, if there is one.
    pub fn fault_stats(&self) -> Option<FaultStats> {
        self.faults.as_ref().map(|injector| injector.stats())
    }

    /// From now on packets are recorded, or no longer.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    /// Where the sockets are to be had that share the link's address and port, for [`UdpLink::backlog`].
    pub fn set_neighbors(&mut self, neighbors: Box<dyn Neighbors>) {
        self.group = Some(backlog::Group::new(neighbors));
    }

    /// How full the socket is that a packet by `route` to `dest_qpn` will come to. It is known of destinations that share
    /// this link's own address and port, and somebody has their slot; `None` otherwise. A receiver that is stopped stays full.
    ///
    /// One system call, except the first time for each slot, which may wait for some milliseconds.
    pub fn backlog(&mut self, now: Time, route: &Route, dest_qpn: Qpn) -> Option<Backlog> {
        let is_ours = route.remote == self.local && route.remote_port == self.port;
        self.group.as_mut().filter(|_| is_ours)?.backlog(now, dest_qpn)
    }

    /// Sends batches in their order, those of one socket in one system call; never blocks. What is done with is
    /// cleared, the rest stays as it is for another send. `now` is for faults and tap.
    ///
    /// A batch that is too long for its path is dropped and reported. A kernel that refuses to segment makes the link
    /// give it up for good: then the report says so and [`UdpLink::caps`] are less.
    pub fn send(&mut self, now: Time, batches: &mut [TxBatch]) -> SendReport {
        if let Some(faults) = self.faults.as_mut().filter(|faults| faults.is_down(now)) {
            faults.lose_sent(batches.iter().map(|batch| batch.packets().count() as u64).sum());
            batches.iter_mut().for_each(TxBatch::clear);
            return SendReport { taken: batches.len(), ..SendReport::default() };
        }
        let mut report = SendReport::default();
        while let Some(rest) = batches.get_mut(report.taken..).filter(|rest| !rest.is_empty()) {
            if rest[0].is_empty() {
                report.taken += 1;
                continue;
            }
            let done = match self.sender.send_some(rest, &mut report) {
                Outcome::Sent(count) => {
                    self.receiver.on_sent();
                    if let Some(tap) = &self.tap {
                        rest[..count].iter().for_each(|batch| tap.sent(now, batch));
                    }
                    count
                }
                Outcome::Dropped => 1,
                Outcome::Blocked => {
                    report.blocked = true;
                    return report;
                }
            };
            rest[..done].iter_mut().for_each(TxBatch::clear);
            report.taken += done;
        }
        report
    }

    /// Receives what is there, by one system call, or some more if groups are joined; never blocks. Each packet goes to `sink`, in the order of
    /// arrival, and is not checked in any way: its bytes may be anything. `now` is for faults and tap.
    pub fn recv(&mut self, now: Time, sink: &mut impl FnMut(Frame<'_>)) -> RecvReport {
        let Self { receiver, groups, faults, tap, .. } = self;
        // What is recorded must be true of each packet.
        let is_whole = tap.is_some();
        let mut report = RecvReport::default();
        let mut packets = 0;
        let mut deliver = |bytes: &[u8], meta: FrameMeta| {
            let frame = Frame { bytes, meta };
            if let Some(tap) = tap {
                tap.received(now, &frame);
            }
            packets += 1;
            sink(frame);
        };
        match faults {
            None => receive(receiver, groups, is_whole, &mut report, &mut deliver),
            Some(faults) => {
                receive(receiver, groups, is_whole, &mut report, &mut |bytes: &[u8], meta| {
                    faults.apply(now, bytes, meta, &mut deliver);
                });
                faults.poll(now, &mut deliver);
            }
        }
        report.packets = packets;
        if let Some(tap) = &self.tap {
            tap.flush_if_due(now);
        }
        report
    }

    /// A packet of ours that somebody else has received and passed on. What follows is as if it had come by the socket.
    pub fn inject(
        &mut self,
        now: Time,
        bytes: &[u8],
        (remote, remote_port): (IpAddr, u16),
        sink: &mut impl FnMut(Frame<'_>),
    ) {
        let Self { faults, tap, .. } = self;
        let meta = FrameMeta {
            link: self.id,
            remote,
            remote_port,
            local: self.local,
            local_port: self.port,
            traffic_class: 0,
            segment: 0,
        };
        let mut deliver = |bytes: &[u8], meta: FrameMeta| {
            let frame = Frame { bytes, meta };
            if let Some(tap) = tap {
                tap.received(now, &frame);
            }
            sink(frame);
        };
        match faults {
            None => deliver(bytes, meta),
            Some(faults) => faults.apply(now, bytes, meta, &mut deliver),
        }
    }

    /// Whether [`UdpLink::recv`] looks at the time that it is given: while it captures or injects faults.
    #[inline]
    pub fn needs_time(&self) -> bool {
        self.faults.is_some() || self.tap.is_some()
    }

    /// When [`UdpLink::recv`] should be called even if nothing arrives: when a packet is due that the injector
    /// held back, when the link goes down or comes back, when captured packets should be in their file.
    pub fn next_deadline(&self) -> Option<Time> {
        let faults = self.faults.as_ref().and_then(|faults| faults.next_deadline());
        faults.into_iter().chain(self.tap.as_ref().and_then(Tap::next_deadline)).min()
    }

    /// Whether the link has gone down (`true`) or come back (`false`) since this was asked last.
    pub fn poll_down(&mut self, now: Time) -> Option<bool> {
        self.faults.as_mut().and_then(|faults| faults.poll_change(now))
    }
}

/// Receives once from the link's own socket, and from those of its groups.
#[inline]
fn receive(
    receiver: &mut Receiver,
    groups: &mut Option<Box<Groups>>,
    is_whole: bool,
    report: &mut RecvReport,
    take: &mut impl FnMut(&[u8], FrameMeta),
) {
    receiver.recv(is_whole, report, &mut *take);
    if let Some(groups) = groups {
        groups.recv(is_whole, report, take);
    }
}

impl AsFd for UdpLink {
    /// The receive socket: readable when packets arrive.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.socket().as_fd()
    }
}

const TX_SOCKETS_U8: u8 = 8;
const _: () = assert!(TX_SOCKETS_U8 as usize == TX_SOCKETS);
/// Packets per batch that every kernel with segmentation takes; newer ones take 128.
const MAX_BATCH_PACKETS: usize = 64;
/// A batch with all its headers (Ethernet 14, VLAN tag 4, IP, UDP 8) must stay below 64 KiB. UDP itself would carry 65,507
/// bytes on IPv4 and 65,527 on IPv6, but from 65,536 bytes with headers on an interface takes packets one by one: at
/// that point the same bytes arrive as 64 datagrams instead of one.
const MAX_BATCH_BYTES_V4: usize = (1 << 16) - 1 - 14 - 4 - 20 - 8;
const MAX_BATCH_BYTES_V6: usize = (1 << 16) - 1 - 14 - 4 - 40 - 8;
/// The least MTU that an IPv6 interface may have.
const LEAST_MTU: u32 = 1280;
