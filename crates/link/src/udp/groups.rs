//! Groups (multicast) that a link has joined: a socket for each.
//!
//! Such a socket is bound to the group's address, so it takes nothing else, and what it takes was sent there: the ICRC covers
//! the address, and the socket need not tell it. Any number of sockets, of any user, may be bound to one group
//! (`SO_REUSEADDR`), and each gets a copy of every datagram to it, as the kernel gives them to all that match (`udp.c
//! __udp4_lib_mcast_deliver()`). So groups need no slots.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{Timespec, epoll};
use socket2::{InterfaceIndexOrAddress, SockRef, Socket};
use userdma_mem::{FrameMeta, LinkId};

use super::options::{self, Role};
use super::recv::Receiver;
use super::socket::{Local, OpenError};
use super::{RecvReport, UdpConfig, probe};
use crate::guard::GuardedFd;

/// The groups of a link.
#[derive(Debug)]
pub(super) struct Groups {
    /// Readable while one of the sockets is.
    epoll: GuardedFd,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    group: IpAddr,
    receiver: Receiver,
}

/// Where a link receives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) link: LinkId,
    /// The interface's index; 0 for one of the kernel's choice.
    pub(super) interface: u32,
    pub(super) port: u16,
    pub(super) config: &'a UdpConfig,
}

impl Groups {
    /// None joined yet.
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll: epoll.into(), members: Vec::new() })
    }

    /// Becomes readable when a datagram to a group has come.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Joins a group, unless it is joined.
    pub(super) fn join(&mut self, place: Place<'_>, group: IpAddr) -> Result<(), OpenError> {
        if self.members.iter().any(|member| member.group == group) {
            return Ok(());
        }
        let local = Local::group(group, place.interface);
        let io = |what| move |source| local.io(place.port, what, source);
        let socket: GuardedFd = OwnedFd::from(open(local, place, group)?).into();
        let coalescing = probe::coalescing(socket.as_fd(), place.config);
        let data = epoll::EventData::new_u64(key(socket.as_raw_fd()));
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)
            .map_err(|errno| io("epoll")(errno.into()))?;
        let receiver = Receiver::new(socket, place.link, (group, place.port), coalescing, place.config);
        self.members.push(Member { group, receiver });
        Ok(())
    }

    /// Leaves a group; whether it was joined. What has come and was not received is gone.
    pub(super) fn leave(&mut self, group: IpAddr) -> bool {
        let Some(at) = self.members.iter().position(|member| member.group == group) else { return false };
        let member = self.members.swap_remove(at);
        // A forked child may have a copy, with which the socket would stay in the set.
        let _ = epoll::delete(&self.epoll, member.receiver.socket());
        true
    }

    /// Receives once from each socket that has something; each packet goes to `take`.
    pub(super) fn recv(
        &mut self,
        is_whole: bool,
        report: &mut RecvReport,
        take: &mut impl FnMut(&[u8], FrameMeta),
    ) {
        let mut ready = [epoll::Event { flags: epoll::EventFlags::empty(), data: NO_DATA }; READY];
        let count = epoll::wait(&self.epoll, &mut ready[..], Some(&NO_TIME)).unwrap_or(0);
        for event in &ready[..count] {
            let data = event.data.u64();
            let is_it = |member: &&mut Member| key(member.receiver.socket().as_raw_fd()) == data;
            let Some(member) = self.members.iter_mut().find(is_it) else { continue };
            let mut own = RecvReport::default();
            member.receiver.recv(is_whole, &mut own, &mut *take);
            report.messages += own.messages;
            report.dropped += own.dropped;
            report.errors += own.errors;
            report.more |= own.more;
        }
        report.more |= count == READY;
    }
}

/// Datagrams to groups leave a socket by this interface, and by no other.
pub(super) fn send_by(socket: BorrowedFd<'_>, local: IpAddr, interface: u32) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    match local {
        // By the address: where an interface has several, it is one of them that packets come from.
        IpAddr::V4(local) => socket.set_multicast_if_v4(&local),
        IpAddr::V6(_) => socket.set_multicast_if_v6(interface),
    }
}

fn open(local: Local, place: Place<'_>, group: IpAddr) -> Result<Socket, OpenError> {
    let port = place.port;
    let io = |what| move |source| local.io(port, what, source);
    let socket = local.plain_socket(Role::Receive, port, place.config)?;
    options::set_buffers(&socket, Role::Receive, place.config.recv_buffer).map_err(io("buffer size"))?;
    socket.set_reuse_address(true).map_err(io("SO_REUSEADDR"))?;
    if group.is_ipv6() && place.interface != 0 {
        // Of IPv6 the kernel asks for the group only, whatever interface the datagram came by (`mcast.c inet6_mc_check()`).
        let index = place.interface.cast_signed();
        options::set(socket.as_fd(), libc::SOL_SOCKET, SO_BINDTOIFINDEX, index)
            .map_err(io("SO_BINDTOIFINDEX"))?;
    }
    socket.bind(&local.at(port).into()).map_err(|error| local.bind_error(port, error))?;
    match group {
        IpAddr::V4(group) => {
            let interface = match place.interface {
                0 => InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED),
                index => InterfaceIndexOrAddress::Index(index),
            };
            socket.join_multicast_v4_n(&group, &interface).map_err(io("IP_ADD_MEMBERSHIP"))?;
        }
        IpAddr::V6(group) => {
            socket.join_multicast_v6(&group, place.interface).map_err(io("IPV6_JOIN_GROUP"))?;
        }
    }
    Ok(socket)
}

fn key(fd: RawFd) -> u64 {
    // Open descriptors are not negative.
    u64::from(fd.unsigned_abs())
}

const NO_DATA: epoll::EventData = epoll::EventData::new_u64(0);
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Sockets that are received from at once.
const READY: usize = 8;
const SO_BINDTOIFINDEX: i32 = 62;
