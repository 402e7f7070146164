//! Queue pair 1 of a device, and what the host says of it: management datagrams, ports, services, wills.
//!
//! A device whose port is shared asks the agent for ports, and gets from it what comes for queue pair 1 and is meant for this
//! device; it passes its device like any packet. A device that has its port alone receives queue pair 1 on its own socket and keeps
//! its own books.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use userdma_agent::{GsiFrame, Home, Member, PortRequest, Registry, Reservation, Services, Will};
use userdma_mgmt::cm::answer_unknown;
use userdma_nic::{Management, ManagementError};
use userdma_verbs::Time;

use crate::command::lock;
use crate::drive::Core;
use crate::shared::Shared;
use crate::{Host, HostError, OpenError};

/// Why a management datagram was not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SendManagementError {
    /// The device is not usable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The device refuses it.
    #[error(transparent)]
    Refused(#[from] ManagementError),
}

/// Packets to queue pair 1 that the agent passes on.
#[derive(Debug, Default)]
pub(crate) struct PassedOn {
    /// Those that wait for a drive.
    waiting: AtomicUsize,
    /// Those that found no room, here or on their way here, and that the device has not counted yet.
    lost: AtomicU64,
}

/// What a device that has its port alone knows of its own ports.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    registry: Mutex<Registry>,
    next_id: AtomicU32,
}

impl Host {
    /// The upper ten bits of the numbers that this device's connections have in management datagrams; 0 if the device has its port
    /// alone, and any will do.
    pub fn slot(&self) -> u16 {
        self.owner.shared.slot
    }

    /// From now on management datagrams that come to the device are given to `sink`, in place of the one before; it says whether
    /// there was room. It is called by whoever drives the device, behind the gate: it may queue and wake, and must not use the
    /// device. Starts the progress thread. The first time it waits for the agent, as [`Host::attach_management`].
    ///
    /// # Errors
    /// The device is not usable, or the system has no thread.
    pub fn set_management_sink(
        &self,
        sink: impl Fn(Management) -> bool + Send + 'static,
    ) -> Result<(), OpenError> {
        self.attach_management()?;
        Ok(self.owner.command(move |core, _| core.management = Some(Box::new(sink)))?)
    }

    /// From now on management datagrams are given to nobody: what asks for an answer gets the one for what is not known.
    pub fn clear_management_sink(&self) {
        // A device that does not work any more gets none.
        let _ = self.owner.command(|core, _| core.management = None);
    }

    /// Has the agent pass on what comes for this device's queue pair 1, and waits until it does, unless that is so already.
    ///
    /// # Errors
    /// The device is not usable, or the system has no thread.
    pub fn attach_management(&self) -> Result<(), OpenError> {
        self.check()?;
        self.owner.start_thread()?;
        let shared = &self.owner.shared;
        // Held while the agent is asked: when this returns, it has been.
        let mut is_attached = lock(&shared.is_attached);
        if let Some(lease) = shared.lease.as_ref().filter(|_| !*is_attached) {
            let weak = Arc::downgrade(shared);
            // Not the last user of the device: its end waits until nobody calls this.
            let pass_on = move |frame: GsiFrame<'_>| {
                if let Some(shared) = weak.upgrade() {
                    shared.take_passed_on(&frame);
                }
            };
            lease
                .set_gsi(shared.thread_bell.as_fd(), Box::new(pass_on))
                .map_err(|source| OpenError::System { what: "line to the agent", source })?;
        }
        *is_attached = true;
        Ok(())
    }

    /// Sends a management datagram from one of our addresses to queue pair 1 of another. It may be lost like any datagram. Not to
    /// be called by a management sink.
    ///
    /// # Errors
    /// It was not sent.
    pub fn send_management(
        &self,
        from: IpAddr,
        to: IpAddr,
        mad: &[u8; 256],
    ) -> Result<(), SendManagementError> {
        let mad = *mad;
        Ok(self.control(move |shard, _| shard.send_management(from, to, &mad))??)
    }

    /// Reserves a port of one of our addresses, or of all: as the kernel's `cma.c cma_get_port()`, except that ports below 1024 are
    /// anybody's. Addresses are hosts of their own: another device's port on another address is another port.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`: the port is taken, or the address not ours. `ETIMEDOUT`: the process that has the agent is
    /// stopped. Nothing is reserved.
    pub fn reserve_port(&self, request: &PortRequest) -> io::Result<Reservation> {
        let shared = self.usable()?;
        if let Some(lease) = &shared.lease {
            return lease.reserve(request);
        }
        // The upper half.
        let random = (crate::host::random() >> 32) as u32;
        let id = shared.alone.next_id.fetch_add(1, Ordering::Relaxed);
        let port = lock(&shared.alone.registry).reserve(OURSELVES, &self.home(), id, request, random)?;
        Ok(Reservation { id, port })
    }

    /// Before listening on a port that was reserved with `reuse_address`: nobody else may have it.
    ///
    /// # Errors
    /// As [`Host::reserve_port`].
    pub fn begin_listening(&self, id: u32) -> io::Result<()> {
        let shared = self.usable()?;
        match &shared.lease {
            Some(lease) => lease.begin_listening(id),
            None => Ok(lock(&shared.alone.registry).begin_listening(OURSELVES, id)?),
        }
    }

    /// Gives a port back. Does not wait.
    pub fn release_port(&self, id: u32) {
        let Ok(shared) = self.usable() else { return };
        match &shared.lease {
            Some(lease) => lease.release_port(id),
            None => lock(&shared.alone.registry).release(OURSELVES, id),
        }
    }

    /// From now on requests to services come to this device: those whose numbers, under `mask`, are `service_id`, on one of our
    /// addresses or all. The same twice is counted.
    ///
    /// # Errors
    /// As [`Host::reserve_port`].
    pub fn listen(&self, service_id: u64, mask: u64, on: Option<IpAddr>) -> io::Result<()> {
        let shared = self.usable()?;
        let service = Services { id: service_id, mask };
        match &shared.lease {
            Some(lease) => lease.listen(service, on),
            None => Ok(lock(&shared.alone.registry).listen(OURSELVES, &self.home(), service, on)?),
        }
    }

    /// Ends what [`Host::listen`] began. Does not wait.
    pub fn unlisten(&self, service_id: u64, mask: u64, on: Option<IpAddr>) {
        let Ok(shared) = self.usable() else { return };
        let service = Services { id: service_id, mask };
        match &shared.lease {
            Some(lease) => lease.unlisten(service, on),
            None => lock(&shared.alone.registry).unlisten(OURSELVES, &self.home(), service, on),
        }
    }

    /// What the agent is to send for the connection with our number `comm_id` if this process dies without having taken it back. A
    /// device that has its port alone has nobody to send it. Waits some microseconds until the agent has it, 20 ms at most.
    pub fn set_will(&self, comm_id: u32, will: Option<&Will>) {
        if let Ok(Shared { lease: Some(lease), .. }) = self.usable() {
            lease.set_will(comm_id, will);
        }
    }

    /// A connection has ended, and the peer has been told so once, with this: the agent tells it again until it knows, also if this
    /// process ends. Does not wait.
    pub fn open_will(&self, comm_id: u32, will: &Will) {
        if let Ok(Shared { lease: Some(lease), .. }) = self.usable() {
            lease.open_will(comm_id, will);
        }
    }

    fn usable(&self) -> io::Result<&Shared> {
        self.check().map_err(io::Error::other)?;
        Ok(&self.owner.shared)
    }

    fn home(&self) -> Home {
        let gids = self.gids();
        Home {
            udp_port: gids.first().map_or(0, |gid| gid.port),
            addresses: gids.iter().map(|gid| gid.local.to_canonical()).collect(),
        }
    }
}

impl Shared {
    /// A packet to queue pair 1 that the agent has received for us. Called by the thread that keeps the slot, which must not drive,
    /// and rings the bell of the progress thread afterwards.
    fn take_passed_on(&self, frame: &GsiFrame<'_>) {
        self.passed_on.lost.fetch_add(frame.lost.into(), Ordering::Relaxed);
        if self.passed_on.waiting.fetch_add(1, Ordering::AcqRel) >= MAX_PASSED_ON {
            // Nobody drives, or the network is faster: lost, as it would be in a full socket.
            self.passed_on.waiting.fetch_sub(1, Ordering::AcqRel);
            self.passed_on.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (remote, local, bytes) = (frame.remote, frame.local, frame.bytes.to_vec());
        let passed_on = Arc::clone(&self.passed_on);
        let command = move |core: &mut Core, now: Time| {
            passed_on.waiting.fetch_sub(1, Ordering::AcqRel);
            core.shard.note_lost_management(passed_on.lost.swap(0, Ordering::Relaxed));
            core.inject(now, &bytes, remote, local);
        };
        if self.commands.push(Box::new(command)).is_ok() {
            self.call_thread();
        }
    }
}

impl Core {
    /// A packet that came in elsewhere: as if the link of its address had received it.
    fn inject(&mut self, now: Time, bytes: &[u8], remote: (IpAddr, u16), local: IpAddr) {
        let Self { shard, links, .. } = self;
        let gid = shard.gids().iter().find(|gid| gid.local.to_canonical() == local);
        let link = gid.and_then(|gid| links.get_mut(usize::from(gid.link.0)));
        if let Some(link) = link {
            link.inject(now, bytes, remote, &mut |frame| shard.handle_frame(now, frame));
        }
    }

    /// Gives management datagrams to who takes them.
    #[inline]
    pub(crate) fn tell_management(&mut self) {
        if self.shard.has_management() {
            self.hand_up();
        }
    }

    #[cold]
    fn hand_up(&mut self) {
        match &self.management {
            Some(sink) => {
                while let Some(datagram) = self.shard.poll_management() {
                    let is_taken = sink(datagram);
                    self.shard.note_lost_management(u64::from(!is_taken));
                }
            }
            None => self.answer_for_nobody(),
        }
    }

    /// What nobody takes gets the answer that who knows of nothing gives. A peer that ends a connection would ask for a minute
    /// otherwise.
    fn answer_for_nobody(&mut self) {
        while let Some(Management { from, to, mad }) = self.shard.poll_management() {
            let answer = answer_unknown(&mad);
            let is_answered =
                answer.is_some_and(|answer| self.shard.send_management(to, from, &answer).is_ok());
            self.shard.note_lost_management(u64::from(!is_answered));
        }
    }
}

/// In books that are one device's.
const OURSELVES: Member = Member(0);
/// How many packets that were passed on may wait for a drive: those of a thousand connections that are made at once.
const MAX_PASSED_ON: usize = 4096;

#[cfg(all(test, not(loom)))]
mod tests;
