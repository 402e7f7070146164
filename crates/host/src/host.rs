//! The device of a process.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use userdma_agent::{Claimed, FellBack};
use userdma_ibt::Stats;
use userdma_link::guard::GuardedFd;
use userdma_link::{Backlog, Capture, FaultStats, Link, clock};
use userdma_mem::{Region, Route};
use userdma_nic::{GidEntry, Shard};
use userdma_objects::{Arm, Cq, MrKeys, PdId, QpShared};
use userdma_verbs::{
    AccessFlags, AsyncEvent, CreateQpError, ModifyQpError, ObjectError, QpAttr, QpAttrMask, QpInitAttr,
    QpState, Qpn, RecvWr, RegMrError, SendWr, Srqn, Time, Wc,
};

use crate::bell::Bell;
use crate::channel::Descriptor;
use crate::command::{Commands, lock};
use crate::drive::Core;
use crate::events::{EventQueue, Events};
use crate::gate::{Gated, Visit};
use crate::management::Alone;
use crate::owner::Owner;
use crate::shared::{Polls, Shared};
use crate::sleep::Watch;
use crate::waiters::Waiters;
use crate::{Channel, HostConfig, HostError, OpenError, PostFailure, crowd, exit, fork, wait};

mod setup;

pub(crate) use setup::random;

/// An open device. Clones are the same device; it closes with the last.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) owner: Arc<Owner>,
}

impl Host {
    /// Opens the device with these addresses.
    ///
    /// # Errors
    /// An address that is taken or not this machine's is named.
    pub fn open(config: &HostConfig) -> Result<Self, OpenError> {
        fork::watch();
        userdma_mem::install_fault_handler().map_err(system("fault handler"))?;
        let Claimed { slot, first_index, name, mut links, lease, fell_back } = setup::claim(config)?;
        links.iter_mut().for_each(|link| link.set_faults(Some(&config.faults), clock::now()));
        let gids: Vec<_> = links.iter().map(setup::gid_entry).collect();
        let shard = Shard::new(setup::shard_config(config, (slot, first_index), &gids, &links));
        let sockets: Vec<GuardedFd> = links
            .iter()
            .map(|link| Ok(link.as_fd().try_clone_to_owned()?.into()))
            .collect::<Result<_, _>>()
            .map_err(system("descriptor of a socket"))?;
        let shared_slot = if lease.is_some() { slot } else { 0 };
        let shared = Shared {
            doorbells: shard.doorbells(),
            core: Gated::new(Core::new(shard, links.into_iter().map(Link::Udp).collect())),
            commands: Commands::default(),
            watch: Watch::new(),
            events: Events::new().map_err(system("descriptor of events"))?,
            polls: Polls::default(),
            thread_bell: Bell::new().map_err(system("bell"))?,
            waiter_bell: Bell::new().map_err(system("bell"))?,
            waiters: Waiters::default(),
            has_thread: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            groups: sockets.iter().map(|_| OnceLock::new()).collect(),
            sockets,
            capture: Mutex::new(None),
            channels: Mutex::default(),
            gids,
            name,
            generation: fork::generation(),
            fell_back,
            slot: shared_slot,
            passed_on: Arc::default(),
            is_attached: Mutex::default(),
            alone: Alone::default(),
            lease,
        };
        let host = Self { owner: Arc::new(Owner::new(shared)) };
        exit::watch(&host.owner.shared);
        if let Some(path) = &config.capture {
            host.start_capture(path)?;
        }
        Ok(host)
    }

    /// The device's name, as `roce_lo`.
    pub fn name(&self) -> &str {
        &self.owner.shared.name
    }

    /// Why the device has its fallback port, if it has.
    pub fn fell_back(&self) -> Option<&FellBack> {
        self.owner.shared.fell_back.as_ref()
    }

    /// The GID table.
    pub fn gids(&self) -> &[GidEntry] {
        &self.owner.shared.gids
    }

    /// Whether the device can be used by this process.
    ///
    /// # Errors
    /// It cannot, and why.
    #[inline]
    pub fn check(&self) -> Result<(), HostError> {
        self.owner.shared.check()
    }

    /// Whether both are the same open device.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }

    /// Runs a verbs call on the device: at once if nobody drives it, else by whoever does, while the caller waits.
    /// The call must not use this host itself.
    ///
    /// # Errors
    /// The device is not usable; the call has not run, or not to its end.
    pub fn control<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Shard, Time) -> R + Send + 'static,
    ) -> Result<R, HostError> {
        self.owner.command(|core, now| call(&mut core.shard, now))
    }

    /// Registers memory. Pages are made present before the device is stopped for it.
    ///
    /// # Errors
    /// The outer: the device is not usable. The inner: the registration was refused.
    pub fn reg_mr(
        &self,
        pd: PdId,
        region: Region,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Result<MrKeys, RegMrError>, HostError> {
        // Touches the pages while others drive. The device proves it again, and says what is wrong.
        let _ = region.probe(access.is_writing());
        self.control(move |shard, _| shard.reg_mr(pd, region, iova, access))
    }

    /// Makes a queue pair in RESET, with receives from `srq` if there is one, and with the first one the progress thread.
    ///
    /// # Errors
    /// The outer: the device is not usable, or the system has no thread. The inner: the queue pair was refused.
    pub fn create_qp(
        &self,
        pd: PdId,
        init: QpInitAttr,
        send_cq: u32,
        recv_cq: u32,
        srq: Option<Srqn>,
    ) -> Result<Result<Arc<QpShared>, CreateQpError>, HostError> {
        self.check()?;
        self.owner.start_thread()?;
        self.control(move |shard, _| shard.create_qp_on(pd, &init, send_cq, recv_cq, srq))
    }

    /// Sets attributes of a queue pair and changes its state. Acknowledgements that it owes leave before RESET forgets them: an
    /// adapter has sent them when it had the packet, and the peer would ask in vain.
    ///
    /// # Errors
    /// The outer: the device is not usable. The inner: nothing has changed.
    pub fn modify_qp(
        &self,
        qpn: Qpn,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<Result<(), ModifyQpError>, HostError> {
        if mask.contains(QpAttrMask::STATE) && attr.qp_state == QpState::Reset {
            // The drive that executes this also transmits.
            self.control(|shard, _| shard.release_acks())?;
        }
        let attr = *attr;
        self.control(move |shard, now| shard.modify_qp(now, qpn, &attr, mask))
    }

    /// Ends a queue pair. Acknowledgements that it owes leave before.
    ///
    /// # Errors
    /// The outer: the device is not usable. The inner: there is no such queue pair.
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<Result<(), ObjectError>, HostError> {
        // The drive that executes the first command also transmits.
        self.control(|shard, _| shard.release_acks())?;
        self.control(move |shard, now| shard.destroy_qp(now, qpn))
    }

    /// Posts a send and starts it.
    ///
    /// # Errors
    /// Nothing was posted.
    #[inline]
    pub fn post_send(&self, qp: &QpShared, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        self.check()?;
        qp.post_send(wr)?;
        self.doorbell_send(qp);
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// Nothing was posted.
    #[inline]
    pub fn post_recv(&self, qp: &QpShared, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        self.check()?;
        qp.post_recv(wr)?;
        self.doorbell_recv(qp);
        Ok(())
    }

    /// Starts what was posted to a send queue, after [`Host::check`] and the queue's own `post_send`. What does not leave at
    /// once, the next empty poll sends, or the progress thread.
    #[inline]
    pub fn doorbell_send(&self, qp: &QpShared) {
        self.owner.shared.post(qp.qpn());
    }

    /// Notes that something was posted to a send queue, and leaves it to the next drive to start it.
    #[inline]
    pub fn mark_send(&self, qp: &QpShared) {
        self.owner.shared.doorbells.ring(qp.qpn());
    }

    /// As [`Host::doorbell_send`] from a handler that may have interrupted a call of its own thread: the progress thread is called
    /// to start what was posted.
    #[cold]
    pub fn doorbell_from_handler(&self, qp: &QpShared) {
        self.owner.shared.doorbells.ring(qp.qpn());
        self.owner.shared.wake_thread();
    }

    /// Tells the device of receives where it needs to know: in the error state, where they are flushed.
    #[inline]
    pub fn doorbell_recv(&self, qp: &QpShared) {
        if qp.state() == QpState::Err {
            self.doorbell_send(qp);
        }
    }

    /// Takes completions; if there are none, drives the device once and looks again.
    ///
    /// # Errors
    /// The device is not usable.
    #[inline]
    pub fn poll_cq(&self, cq: &Cq, out: &mut [Wc]) -> Result<usize, HostError> {
        if self.prepare_poll(cq)? { Ok(cq.poll(out)) } else { Ok(0) }
    }

    /// The first half of [`Host::poll_cq`]: whether there are completions to take, after driving the device if there were
    /// none.
    ///
    /// # Errors
    /// The device is not usable.
    #[inline]
    pub fn prepare_poll(&self, cq: &Cq) -> Result<bool, HostError> {
        let shared = &*self.owner.shared;
        shared.check()?;
        shared.polls.add();
        if cq.is_empty() {
            if shared.poll(cq) == Visit::Elsewhere {
                crowd::turned_away();
            }
            return Ok(!cq.is_empty());
        }
        Ok(true)
    }

    /// As [`Host::prepare_poll`] from a handler that may have interrupted a call of its own thread: if there are no completions the
    /// progress thread is called to look for packets.
    ///
    /// # Errors
    /// The device is not usable.
    #[cold]
    pub fn prepare_poll_from_handler(&self, cq: &Cq) -> Result<bool, HostError> {
        let shared = &*self.owner.shared;
        shared.check()?;
        if cq.is_empty() {
            shared.wake_thread();
        }
        Ok(!cq.is_empty())
    }

    /// Asks for one event on the queue's channel.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn req_notify(&self, cq: &Cq, arm: Arm) -> Result<(), HostError> {
        self.check()?;
        cq.arm(arm);
        self.owner.shared.polls.arm();
        Ok(())
    }

    /// A new completion channel.
    ///
    /// # Errors
    /// The system has no descriptor, or the device is not usable.
    pub fn create_channel(&self) -> Result<Channel, OpenError> {
        let made = self.owner.command(|core, _| {
            let free = core.channels.iter().position(Option::is_none);
            let id = free.unwrap_or(core.channels.len());
            // A table of 2^32 channels would not fit the memory.
            let descriptor = Arc::new(Descriptor::new(u32::try_from(id).unwrap_or(u32::MAX))?);
            if id == core.channels.len() {
                core.channels.push(None);
            }
            core.channels[id] = Some(Arc::clone(&descriptor));
            Ok(descriptor)
        })?;
        let made = made.map_err(system("completion channel"))?;
        self.owner.shared.add_channel(&made);
        Ok(Channel::new(&self.owner, made))
    }

    /// The oldest asynchronous event.
    ///
    /// # Errors
    /// The process is a child of the device's.
    pub fn poll_event(&self) -> Result<Option<AsyncEvent>, HostError> {
        match self.check() {
            Ok(()) | Err(HostError::Failed) => Ok(self.owner.shared.events.take()),
            Err(error) => Err(error),
        }
    }

    /// Waits for an asynchronous event; `None` if `timeout` has passed or a signal handler ran. The waiting thread does not
    /// drive.
    ///
    /// # Errors
    /// The process is a child of the device's.
    pub fn wait_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, HostError> {
        if let Some(event) = self.poll_event()? {
            return Ok(Some(event));
        }
        wait::until_readable(&self.owner.shared.events, timeout);
        self.poll_event()
    }

    /// A further queue of asynchronous events, which gets each from now on. For several users of one device.
    ///
    /// # Errors
    /// The system has no descriptor, or the device is not usable.
    pub fn subscribe_events(&self) -> Result<Arc<EventQueue>, OpenError> {
        self.check()?;
        self.owner.shared.events.subscribe().map_err(system("descriptor of events"))
    }

    /// What the device has counted.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn stats(&self) -> Result<Stats, HostError> {
        self.control(|shard, _| *shard.stats())
    }

    /// What the injected faults have done, summed over the links.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn fault_stats(&self) -> Result<FaultStats, HostError> {
        self.owner.command(|core, _| {
            let links = core.links.iter().map(|Link::Udp(link)| link.fault_stats().unwrap_or_default());
            links.fold(FaultStats::default(), |a, b| FaultStats {
                packets: a.packets + b.packets,
                lost: a.lost + b.lost,
                duplicated: a.duplicated + b.duplicated,
                reordered: a.reordered + b.reordered,
                delayed: a.delayed + b.delayed,
                corrupted: a.corrupted + b.corrupted,
            })
        })
    }

    /// How full the receive buffer is that a packet by `route` to `dest_qpn` will come to. It is known of devices of the same
    /// user on an address of this device. Bytes as the kernel counts them: see [`Backlog`].
    ///
    /// # Errors
    /// The device is not usable.
    pub fn backlog(&self, route: Route, dest_qpn: Qpn) -> Result<Option<Backlog>, HostError> {
        self.owner.command(move |core, now| core.backlog(now, &route, dest_qpn))
    }

    /// Writes every packet from now on to a pcapng file.
    ///
    /// # Errors
    /// The file could not be made, or the device is not usable.
    pub fn start_capture(&self, path: &Path) -> Result<(), OpenError> {
        let failed = |source| OpenError::Capture { path: path.to_owned(), source };
        self.attach_capture(&Capture::create(path).map_err(failed)?).map_err(|error| match error {
            OpenError::System { source, .. } => failed(source),
            error @ (OpenError::Claim(_) | OpenError::Capture { .. } | OpenError::Host(_)) => error,
        })
    }

    /// Writes every packet from now on to a capture, which other devices may write to as well.
    ///
    /// # Errors
    /// The file could not be written, or the device is not usable.
    pub fn attach_capture(&self, capture: &Capture) -> Result<(), OpenError> {
        let addresses = self.gids().iter().map(|gid| gid.local.to_string());
        let taps = addresses.map(|a| capture.tap(&a)).collect::<Result<Vec<_>, _>>();
        let taps = taps.map_err(system("capture file"))?;
        self.owner.command(move |core, _| {
            for (Link::Udp(link), tap) in core.links.iter_mut().zip(taps) {
                link.set_tap(Some(tap));
            }
        })?;
        *lock(&self.owner.shared.capture) = Some(capture.clone());
        Ok(())
    }

    /// Ends the capture and completes the file; whether there was one. An error of writing is told here.
    ///
    /// # Errors
    /// The file is not complete, or the device is not usable.
    pub fn stop_capture(&self) -> Result<bool, OpenError> {
        self.owner.command(|core, _| {
            core.links.iter_mut().for_each(|Link::Udp(link)| link.set_tap(None));
        })?;
        match lock(&self.owner.shared.capture).take() {
            Some(capture) => capture
                .flush()
                .map(|()| true)
                .map_err(|source| OpenError::System { what: "complete capture file", source }),
            None => Ok(false),
        }
    }
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> OpenError {
    move |source| OpenError::System { what, source }
}

#[cfg(all(test, not(loom)))]
mod tests;
