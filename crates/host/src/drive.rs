//! One drive of the device: what every thread does that comes through the gate.

use std::sync::Arc;

use userdma_link::clock::RecentClock;
use userdma_link::{Backlog, Link, RecvReport};
use userdma_mem::{LinkCaps, Route};
use userdma_nic::{Management, Shard};
use userdma_objects::Cq;
use userdma_verbs::{Qpn, Time};

use crate::channel::Descriptor;
use crate::shared::Shared;
use crate::sleep::{FOREVER, NOW};
use crate::transmit::{Budget, Sent, TxPool, backlog};

/// What is behind the gate: the device and its links.
pub(crate) struct Core {
    pub(crate) shard: Shard,
    pub(crate) links: Vec<Link>,
    clock: RecentClock,
    pool: TxPool,
    /// How often each link had nothing to receive, since it last had something.
    quiet: Vec<u32>,
    /// Completion channels by number.
    pub(crate) channels: Vec<Option<Arc<Descriptor>>>,
    /// Who takes management datagrams.
    pub(crate) management: Option<Box<dyn Fn(Management) -> bool + Send>>,
    /// The deadline that was published last: not later than the device's.
    deadline: u64,
    /// Glances since the last whole drive.
    glances: u32,
    /// Whole drives of polls that found nothing, since something came.
    empty_polls: u32,
    /// The program has posted since the last acknowledgement that waited in vain for that.
    answers: bool,
}

/// What a drive got from the links.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// Nothing more is there.
    all: bool,
    /// Something came.
    any: bool,
}

/// What a glance at the socket found.
enum Glance {
    /// There is more to do than to look for packets.
    Busy,
    /// No packet.
    Nothing,
    /// Packets, at this time.
    Received(Time),
}

/// Who drives, and so what there is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role<'a> {
    /// A caller that has posted, to this queue pair or to those whose doorbells ring: transmits, and does not look for
    /// packets.
    Post(Option<Qpn>),
    /// A caller that found its completion queue empty.
    Poll(&'a Cq),
    /// The progress thread.
    Thread,
    /// A thread that waits for events of this channel.
    Waiter(&'a Descriptor),
    /// A caller that wants a command executed.
    Control,
}

impl Core {
    pub(crate) fn new(shard: Shard, links: Vec<Link>) -> Self {
        let caps = least_caps(&links);
        let quiet = vec![0; links.len()];
        Self {
            shard,
            links,
            clock: RecentClock::new(),
            pool: TxPool::new(&caps),
            quiet,
            channels: Vec::new(),
            management: None,
            deadline: FOREVER,
            glances: 0,
            empty_polls: 0,
            answers: false,
        }
    }

    /// How full the receiver of a packet by `route` to `dest_qpn` is: see [`Link::backlog`]. A socket of ours on any of our
    /// addresses shares a group with those of others.
    pub(crate) fn backlog(&mut self, now: Time, route: &Route, dest_qpn: Qpn) -> Option<Backlog> {
        backlog(&mut self.links, now, route, dest_qpn)
    }

    /// One drive. The clock is read once, unless it was read a moment ago.
    pub(crate) fn progress(&mut self, shared: &Shared, role: Role<'_>) {
        match role {
            Role::Poll(_) => match self.glance(shared) {
                Glance::Nothing => {}
                Glance::Received(now) => self.finish(now, shared, role, Received { all: true, any: true }),
                Glance::Busy => self.drive(shared, role),
            },
            Role::Post(_) | Role::Thread | Role::Waiter(_) | Role::Control => self.drive(shared, role),
        }
    }

    /// Looks for packets, if a poll has nothing else to do: most polls are of this kind, and what they cost decides how
    /// soon a packet is seen. Timers are left to every sixteenth poll.
    #[inline]
    fn glance(&mut self, shared: &Shared) -> Glance {
        let Self { shard, links, clock, glances, pool, .. } = self;
        let [link] = &mut links[..] else { return Glance::Busy };
        *glances += 1;
        let is_idle = pool.is_empty() && shard.is_idle();
        if !is_idle || link.needs_time() || *glances > GLANCES {
            *glances = 0;
            return Glance::Busy;
        }
        shared.polls.forget_posts();
        // Before a packet is there: afterwards it would have to wait for this.
        let mut now = clock.early();
        let report = link.recv(Time::ZERO, &mut |frame| {
            shard.handle_frame(*now.get_or_insert_with(|| clock.read()), frame);
        });
        match now {
            Some(now) if report.packets > 0 => {
                shared.polls.add_packets();
                Glance::Received(now)
            }
            Some(_) | None => Glance::Nothing,
        }
    }

    fn drive(&mut self, shared: &Shared, role: Role<'_>) {
        // A capture tells the time of each packet.
        let is_timed = self.links.iter().any(Link::needs_time);
        let now = if is_timed { self.clock.read() } else { self.clock.now() };
        if is_timed {
            self.follow_ports(now);
        }
        // A handler of a signal may post and poll, and what it has interrupted may be the C library's allocator: these two execute
        // no commands, which allocate and release.
        if !matches!(role, Role::Post(_) | Role::Poll(_)) {
            while let Some(command) = shared.commands.next() {
                command(self, now);
            }
        }
        self.shard.handle_doorbells();
        if let Role::Post(Some(qpn)) = role {
            self.shard.handle_post(qpn);
        }
        if !matches!(role, Role::Post(_)) {
            shared.polls.forget_posts();
        }
        let received = match role {
            Role::Post(_) => Received { all: true, any: false },
            Role::Poll(_) => self.receive(now, QUIET_POLLS, || shared.polls.add_packets()),
            Role::Thread | Role::Waiter(_) | Role::Control => self.receive(now, 0, || ()),
        };
        // After the packets: what an overdue timer waits for may have been in the socket. A post that looks for none leaves
        // the timers to those who do.
        if self.deadline <= now.nanos() && !matches!(role, Role::Post(_)) {
            self.answers &= !self.shard.handle_timeout(now);
        }
        self.finish(now, shared, role, received);
    }

    /// Takes over whether links are down. The first address' link is the port's.
    #[cold]
    fn follow_ports(&mut self, now: Time) {
        for (place, link) in self.links.iter_mut().enumerate() {
            if let (0, Some(is_down)) = (place, link.poll_down(now)) {
                self.shard.set_port_down(is_down);
            }
        }
    }

    /// What follows once packets were received: answers leave, whoever waits is told.
    fn finish(&mut self, now: Time, shared: &Shared, role: Role<'_>, received: Received) {
        // Before anything leaves: what nobody takes is answered with it.
        self.tell_management();
        let sent = self.transmit(now, role, received.any);
        self.tell(shared, role);
        let due = match sent {
            Sent::All if received.all => FOREVER,
            Sent::All | Sent::Some => NOW,
            Sent::Blocked => now.plus_nanos(BLOCKED_NS).nanos(),
        };
        self.publish(now, shared, role, due);
    }

    /// Receives once from each link, or some 50 packets of a backlog of small messages. A link that has long been quiet is looked at only every sixteenth time,
    /// unless `patience` is 0.
    fn receive(&mut self, now: Time, patience: u32, something_came: impl Fn()) -> Received {
        let Self { shard, links, quiet, .. } = self;
        let mut received = Received { all: true, any: false };
        // With one link there is nothing to save.
        let patience = if links.len() > 1 { patience } else { 0 };
        for (link, quiet) in links.iter_mut().zip(quiet) {
            if patience > 0 && *quiet > patience && !quiet.is_multiple_of(16) {
                *quiet = quiet.wrapping_add(1).max(patience);
                continue;
            }
            let (mut packets, mut any) = (0, false);
            let more = loop {
                let report = link.recv(now, &mut |frame| shard.handle_frame(now, frame));
                packets += report.packets;
                any |= report.messages > 0;
                if !is_backlog(&report, packets) {
                    break report.more;
                }
            };
            if any {
                *quiet = 0;
                received.any = true;
                something_came();
            } else {
                *quiet = quiet.wrapping_add(1).max(1);
            }
            received.all &= !more;
        }
        received
    }

    fn transmit(&mut self, now: Time, role: Role<'_>, something_came: bool) -> Sent {
        match role {
            _ if something_came => self.empty_polls = 0,
            Role::Poll(_) => self.empty_polls = self.empty_polls.saturating_add(1),
            Role::Post(_) => self.answers = true,
            Role::Thread | Role::Waiter(_) | Role::Control => {}
        }
        let (batches, acks) = match role {
            // An acknowledgement goes after the data that was posted.
            Role::Post(_) => (POST_BATCHES, true),
            // A caller that has got something, in its queue or in its memory, is about to answer it: the acknowledgement goes
            // with the answer, or with a poll that finds nothing once more, or when its time has come.
            Role::Poll(cq) => (DRIVE_BATCHES, self.empty_polls >= PATIENT_POLLS && cq.is_empty()),
            Role::Waiter(channel) => (DRIVE_BATCHES, channel.is_empty()),
            // A program that waits at its memory answers at once, if it answers: then the acknowledgement goes with that. One
            // that leaves before sends a peer who waits for it, as they do who poll for each completion, to his memory
            // before the answer is there; so his thread must take that, and so on, a wake-up for every message.
            Role::Thread => (DRIVE_BATCHES, !self.answers),
            Role::Control => (DRIVE_BATCHES, true),
        };
        let Self { shard, links, pool, .. } = self;
        pool.transmit(shard, links, now, Budget { batches, acks })
    }

    /// Makes channels with new events readable and queues asynchronous events.
    fn tell(&mut self, shared: &Shared, role: Role<'_>) {
        while let Some(id) = self.shard.poll_channel() {
            let channel = self.channels.get(id as usize).and_then(Option::as_ref);
            match (channel, role) {
                // Its waiter is awake: it drives just now.
                (Some(channel), Role::Waiter(own)) if std::ptr::eq(&**channel, own) => {}
                (Some(channel), _) => channel.signal(),
                (None, _) => {}
            }
        }
        while let Some(event) = self.shard.poll_event() {
            shared.events.push(event);
        }
    }

    /// Says when the device must be driven next, and wakes somebody if all sleep longer.
    fn publish(&mut self, now: Time, shared: &Shared, role: Role<'_>, due: u64) {
        let timers = self.links.iter().filter_map(Link::next_deadline).chain(self.shard.poll_timeout());
        let deadline = timers.map(Time::nanos).fold(due, u64::min).min(FOREVER);
        let spins = matches!(role, Role::Post(_) | Role::Poll(_)) && shared.watch.seems_leased();
        if must_tell(self.deadline, deadline, now.nanos(), spins) {
            self.deadline = deadline;
            shared.wake(shared.watch.set_deadline(deadline));
        }
    }
}

/// Whether a new deadline is told. One that only moves later, as one does with most packets, is not while the program
/// `spins` and the progress thread is away: telling takes a fence, and nobody sleeps who would look too early.
fn must_tell(told: u64, deadline: u64, now: u64, spins: bool) -> bool {
    deadline < told || deadline != told && (!spins || told <= now)
}

/// Whether to receive again before anything is sent, after `packets` of this drive. A drive may send a MiB of READ
/// responses: if it took no more than a few lone packets in return, requests would wait behind thousands of others. A
/// lone packet is not made to wait for a second look.
fn is_backlog(report: &RecvReport, packets: usize) -> bool {
    report.more && report.messages > 1 && packets < BACKLOG_PACKETS
}

/// The most that every link can do.
fn least_caps(links: &[Link]) -> LinkCaps {
    let all = || links.iter().map(Link::caps);
    LinkCaps {
        max_batch_bytes: all().map(|c| c.max_batch_bytes).min().unwrap_or(1),
        max_batch_packets: all().map(|c| c.max_batch_packets).min().unwrap_or(1),
        mtu: all().map(|c| c.mtu).min().unwrap_or(0),
    }
}

/// Packets that a drive receives of a backlog: fewer than four full messages hold, which are enough at once.
const BACKLOG_PACKETS: usize = 48;
/// Polls in a row that only look for packets.
const GLANCES: u32 = 15;
/// Polls that find nothing before acknowledgements leave alone. The kernel cuts what was sent together into packets that come
/// one by one, so behind one packet the next may be on its way: an acknowledgement, say, for which this caller waits, to answer
/// then. One that leaves in between tells a peer that waits for it and then looks at its memory only that its turn has come,
/// while what it waits for there is still to be sent.
const PATIENT_POLLS: u32 = 3;
/// Batches that a post sends before it leaves the rest to others: about 256 KiB.
const POST_BATCHES: usize = 4;
/// Batches that any other drive sends.
const DRIVE_BATCHES: usize = TxPool::LEN;
/// Polls without a packet after which a link counts as quiet.
const QUIET_POLLS: u32 = 64;
/// When to try again after the kernel's buffers were full.
const BLOCKED_NS: u64 = 20_000;

#[cfg(all(test, not(loom)))]
mod tests;
