//! The lock of a connection manager, what is behind it, and its thread.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use userdma_link::clock;
use userdma_mgmt::cm::{Arrival, PortId};
use userdma_mgmt::rdma::{CmError, CmId, Event, EventKind, Ids};
use userdma_verbs::Time;

use super::errand::Errands;
use super::inbox::{Inbox, Work};
use super::machine::Machine;
use super::{Devices, EventSink};
use crate::command::lock;
use crate::{Management, exit, fork, spawn_thread};

/// What the last clone of a manager ends.
pub(super) struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What calls, the thread, and the end of the process share.
pub(crate) struct Shared {
    inbox: Arc<Inbox>,
    state: Mutex<State>,
    has_thread: AtomicBool,
    /// Of the process that made it.
    generation: u64,
}

/// What is behind the lock.
pub(super) struct State {
    pub(super) ids: Ids,
    pub(super) machine: Machine,
    pub(super) sinks: HashMap<CmId, Arc<dyn EventSink>>,
    told: Told,
    /// Devices that have appeared, and who is to listen there.
    new_devices: Vec<(CmId, PortId)>,
    /// When the lock was taken.
    pub(super) now: Time,
    /// When devices that nobody needs are closed.
    tidy_at: Option<Time>,
}

/// Sinks that have got events under the lock, and are to wake somebody when it is free: each once.
#[derive(Default)]
struct Told {
    sinks: Vec<Arc<dyn EventSink>>,
    /// Where they are, by which one is known.
    addresses: HashSet<usize>,
}

impl Owner {
    /// `seed` decides which ids and sequence numbers are drawn.
    pub(super) fn new(devices: Arc<dyn Devices>, seed: u64) -> Self {
        let inbox = Arc::new(Inbox::default());
        let state = State {
            ids: Ids::new(seed),
            machine: Machine::new(devices, &inbox),
            sinks: HashMap::new(),
            told: Told::default(),
            new_devices: Vec::new(),
            now: Time::ZERO,
            tidy_at: None,
        };
        fork::watch();
        let (has_thread, generation) = (AtomicBool::new(false), fork::generation());
        let shared = Arc::new(Shared { inbox, state: Mutex::new(state), has_thread, generation });
        exit::watch_connections(&shared);
        Self { shared, thread: Mutex::new(None) }
    }

    /// Starts the thread, unless it is there.
    pub(super) fn start_thread(&self) -> Result<(), CmError> {
        self.check()?;
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = Builder::new().name("userdma-cm".into()).stack_size(STACK_BYTES);
            let spawned = spawn_thread(builder, move || shared.serve());
            let none = |error: std::io::Error| CmError::System(error.raw_os_error().unwrap_or(libc::EAGAIN));
            *thread = Some(spawned.map_err(none)?);
            self.shared.has_thread.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Runs a call under the lock, and then what comes of it.
    pub(super) fn enter<R>(&self, call: impl FnOnce(&mut State) -> R) -> Result<R, CmError> {
        self.check()?;
        Ok(self.shared.enter(call))
    }

    /// Runs a call that may ask for what takes its time, which is done without the lock.
    pub(super) fn run<R>(&self, call: impl FnMut(&mut State) -> Result<R, CmError>) -> Result<R, CmError> {
        self.check()?;
        self.shared.run(call)
    }

    /// Listens.
    pub(super) fn listen(&self, id: CmId) -> Result<(), CmError> {
        self.check()?;
        self.shared.listen(id)
    }

    /// A child must not touch what its parent has locked, perhaps.
    fn check(&self) -> Result<(), CmError> {
        if self.shared.is_ours() { Ok(()) } else { Err(CmError::System(libc::EIO)) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.check().is_err() {
            // The thread is the parent's: there is nothing to wait for.
            std::mem::forget(thread);
            return;
        }
        self.shared.has_thread.store(false, Ordering::Release);
        self.shared.inbox.stop();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.shared.enter(State::end);
    }
}

impl Shared {
    /// Runs a call under the lock, and then what comes of it. When the lock is free, whoever waits for events is woken: that may run
    /// anything, also calls of this manager; and devices that nobody needs end.
    pub(super) fn enter<R>(&self, call: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        state.now = clock::now();
        let result = call(&mut state);
        state.flush();
        let due = [state.ids.poll_timeout(), state.tidy_at].into_iter().flatten().min();
        // Under the lock, so that the last one to set it knows the most.
        self.inbox.set_due(due);
        let (told, closed) = (std::mem::take(&mut state.told), state.machine.take_closed());
        drop(state);
        told.sinks.iter().for_each(|sink| sink.wake());
        drop(closed);
        result
    }

    /// Runs a call that may ask for what takes its time, which is done without the lock.
    pub(super) fn run<R>(
        &self,
        mut call: impl FnMut(&mut State) -> Result<R, CmError>,
    ) -> Result<R, CmError> {
        let mut errands = Errands::default();
        for _ in 0..MAX_ERRANDS {
            let result = self.enter(|state| {
                std::mem::swap(&mut state.machine.errands, &mut errands);
                let result = call(state);
                std::mem::swap(&mut state.machine.errands, &mut errands);
                result
            });
            match errands.next() {
                Some(errand) => errands.run(errand),
                None => return result,
            }
        }
        // Each port that the first device gave out was taken on another.
        Err(CmError::NoPort)
    }

    /// The thread.
    fn serve(self: &Arc<Self>) {
        loop {
            match self.inbox.wait() {
                Work::Serve(arrived) => {
                    let new = self.enter(|state| {
                        state.handle(&arrived);
                        std::mem::take(&mut state.new_devices)
                    });
                    self.listen_on_new(new);
                }
                Work::Farewell => {
                    self.enter(|state| state.ids.abandon(state.now));
                    self.inbox.note_farewell();
                }
                Work::Stop => return,
            }
        }
    }

    /// Whether this process has made it.
    fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// The process ends: asks the thread to tell all peers, if there is one and it can be asked without waiting.
    pub(crate) fn ask_for_farewell(&self) -> bool {
        self.is_ours() && self.has_thread.load(Ordering::Acquire) && self.inbox.ask_for_farewell()
    }

    /// Whether they have been told.
    pub(crate) fn has_said_farewell(&self) -> bool {
        self.inbox.has_said_farewell()
    }
}

impl Told {
    fn note(&mut self, sink: &Arc<dyn EventSink>) {
        if self.addresses.insert(Arc::as_ptr(sink).addr()) {
            self.sinks.push(Arc::clone(sink));
        }
    }
}

impl State {
    /// Takes what has arrived, and does what is due.
    fn handle(&mut self, arrived: &VecDeque<(PortId, Management)>) {
        for (port, Management { from, to, mad }) in arrived {
            let (port, from, to) = (*port, *from, *to);
            self.ids.handle_mad(self.now, Arrival { port, from, to, mad });
            // Answers are known before the next question is looked at.
            self.flush();
        }
        self.ids.handle_timeout(self.now);
        if self.tidy_at.is_some_and(|at| at <= self.now) {
            self.tidy();
        }
    }

    /// Tells events, sends datagrams, and hands over wills, until there are none.
    fn flush(&mut self) {
        loop {
            // Before the message that names the queue pair, and before the event that says that timewait is over.
            while let Some(change) = self.ids.poll_number() {
                self.machine.guard_number(change);
            }
            if let Some(event) = self.ids.poll_event() {
                self.tell(event);
                continue;
            }
            while let Some(change) = self.ids.poll_will() {
                self.machine.set_will(&change);
            }
            let Some(out) = self.ids.poll_transmit() else { break };
            if !self.machine.send(&out) {
                self.ids.remove_port(out.port);
                self.machine.close(out.port);
            }
        }
        if self.tidy_at.is_none() {
            self.tidy_at = self.next_tidy();
        }
    }

    fn tell(&mut self, event: Event) {
        let (id, kind) = (event.id, event.kind);
        let Some(sink) = self.sinks.get(&event.listener.unwrap_or(id)).cloned() else { return };
        let is_taken = sink.push(event);
        self.told.note(&sink);
        if kind == EventKind::Disconnected && sink.answers_disconnect() {
            // If this side has ended it, there is nothing to answer.
            let _ = self.ids.disconnect(self.now, id);
        }
        if kind != EventKind::ConnectRequest {
            return;
        }
        if is_taken {
            self.sinks.insert(id, sink);
        } else {
            self.ids.refuse(id);
        }
    }

    /// When devices are to be looked at, if that is needed.
    fn next_tidy(&self) -> Option<Time> {
        (self.ids.has_ports() || self.ids.listens_on_all()).then(|| self.now + LINGER)
    }

    /// Lets go of devices that work no more, of which nothing may have been asked for long; listens on those that are new; closes
    /// those that nobody needs; and looks again later.
    fn tidy(&mut self) {
        for port in self.machine.failed() {
            self.ids.remove_port(port);
            self.machine.close(port);
        }
        if self.ids.listens_on_all() {
            self.machine.refresh(self.now);
            self.new_devices.extend(self.ids.poll_new_devices(&self.machine));
        }
        for port in self.ids.idle_ports() {
            self.ids.close_port(port);
            self.machine.close(port);
        }
        self.tidy_at = self.next_tidy();
    }

    /// Ends everything.
    fn end(&mut self) {
        let ids: Vec<_> = self.ids.iter().collect();
        for id in ids {
            // It is there: nobody else has the lock.
            let _ = self.ids.destroy(&mut self.machine, self.now, id);
        }
        self.sinks.clear();
        self.flush();
        // Each peer has been told once, and nobody is left here who hears its answer.
        self.ids.unanswered().iter().for_each(|ended| self.machine.open_will(ended));
        let ports = self.ids.remove_ports();
        ports.into_iter().for_each(|port| self.machine.close(port));
    }
}

/// Things that a call may ask for: ports that are tried, on many devices.
const MAX_ERRANDS: usize = 4096;
/// How often devices are looked at.
const LINGER: Duration = Duration::from_secs(5);
/// It calls sinks and drives devices.
pub(super) const STACK_BYTES: usize = 256 << 10;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Nobody;

    impl EventSink for Nobody {
        fn push(&self, _: Event) -> bool {
            true
        }
    }

    #[test]
    fn a_sink_is_woken_once_for_all_that_it_was_told() {
        let mut told = Told::default();
        let sinks = [(); 3].map(|()| Arc::new(Nobody) as Arc<dyn EventSink>);
        for at in [1, 0, 1, 1, 2, 0] {
            told.note(&sinks[at]);
        }
        let is_it = |(told, at): (&Arc<dyn EventSink>, usize)| Arc::ptr_eq(told, &sinks[at]);
        assert!(told.sinks.iter().zip([1, 0, 2]).all(is_it), "in the order in which they were told first");
        assert_eq!(told.sinks.len(), 3);
    }
}
