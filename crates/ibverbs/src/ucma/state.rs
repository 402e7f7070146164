//! What a process has of connections: the manager, the table, and a thread that sleeps until the program closes a channel.
//!
//! It is made when a channel is opened for the first time, and never freed. A child of `fork` makes one of its own; channels of
//! its parent are closed to it.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::thread::Builder;

use userdma_host::cm::{CmId, Event, EventSink, Manager};
use userdma_link::guard::GuardedFd;

use super::known::{self, Key};
use super::signal::{Signal, last_error};
use super::table::{Id, Table};
use crate::answer::Refused;
use crate::devices::{self, lock};

pub(super) struct State {
    process: u32,
    pub(super) manager: Manager,
    table: Mutex<Table>,
    /// An epoll with our end of each channel's pipe.
    closing: GuardedFd,
    has_thread: AtomicBool,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// This process's, if it has opened a channel.
pub(super) fn current() -> Result<&'static State, Refused> {
    // SAFETY: null, or a state that is never freed.
    let state = unsafe { STATE.load(Ordering::Acquire).as_ref() };
    state.filter(|state| state.process == std::process::id()).ok_or(FORKED)
}

/// This process's, made if it is not there.
pub(super) fn make() -> Result<&'static State, Refused> {
    static WATCH_FORKS: Once = Once::new();
    // SAFETY: the handler stores to an atomic. Without memory for it, a child's calls fail.
    WATCH_FORKS.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(forget)) });
    if let Ok(state) = current() {
        return Ok(state);
    }
    // Copies to and from the program's memory may find nothing there.
    userdma_mem::install_fault_handler().map_err(error_of)?;
    let state = Box::into_raw(Box::new(State::new()?));
    let null = std::ptr::null_mut();
    if STATE.compare_exchange(null, state, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // Another thread was faster.
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(state) });
    }
    current()
}

/// A child has none. Its parent's stays where it is: somebody may have been about to change it.
extern "C" fn forget() {
    STATE.store(std::ptr::null_mut(), Ordering::Relaxed);
    known::forget_changes();
}

impl State {
    fn new() -> Result<Self, Refused> {
        // SAFETY: takes a number; what it makes is nobody's yet.
        let closing = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                fd if fd < 0 => return Err(last_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        Ok(Self {
            process: std::process::id(),
            manager: Manager::new(Arc::new(devices::Table)),
            table: Mutex::default(),
            closing: closing.into(),
            has_thread: AtomicBool::new(false),
        })
    }

    /// Starts the thread, if it does not run.
    fn start(&'static self) -> Result<(), Refused> {
        if self.has_thread.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let thread = Builder::new().name("userdma-cm-close".to_owned()).stack_size(STACK_BYTES);
        let started = userdma_host::spawn_thread(thread, || self.close_what_is_closed());
        self.has_thread.store(started.is_ok(), Ordering::Release);
        started.map(drop).map_err(error_of)
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Opens a channel; the program's descriptor.
    pub(super) fn open(&'static self, flags: c_int) -> Result<c_int, Refused> {
        self.start()?;
        let (signal, theirs) = Signal::new(flags)?;
        let mut table = self.table();
        let key = known::insert(theirs.as_raw_fd()).ok_or(Refused(libc::EMFILE))?;
        let watched = self.watch(&signal, key);
        if watched.is_err() {
            known::remove(key);
            return watched.map(|()| -1);
        }
        table.add_channel(key, signal);
        Ok(theirs.into_raw_fd())
    }

    /// Has the thread told when nobody can read any more, which is always told.
    fn watch(&self, signal: &Signal, key: Key) -> Result<(), Refused> {
        let mut event = libc::epoll_event { events: 0, u64: key.get() };
        let (epoll, fd) = (self.closing.as_raw_fd(), signal.as_fd().as_raw_fd());
        // SAFETY: descriptors of ours, and an event that outlives the call.
        let result = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if result == 0 { Ok(()) } else { Err(last_error()) }
    }

    fn close_what_is_closed(&self) {
        let mut event = MaybeUninit::<libc::epoll_event>::uninit();
        loop {
            // SAFETY: room for one event, which is read only if there is one. The thread blocks every signal.
            let key = unsafe {
                match libc::epoll_wait(self.closing.as_raw_fd(), event.as_mut_ptr(), 1, -1) {
                    1 => Key::new(event.assume_init().u64),
                    _ => continue,
                }
            };
            self.close(key);
        }
    }

    /// Destroys what was on a channel that the program has closed. As `ucma.c ucma_close()`.
    fn close(&self, key: Key) {
        let (signal, ended) = self.table().remove_channel(key);
        if let Some(signal) = signal {
            let (epoll, fd) = (self.closing.as_raw_fd(), signal.as_fd().as_raw_fd());
            // A child of `fork` may have a copy of our end, so closing ours would not do.
            // SAFETY: descriptors of ours; no event is needed.
            unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
        }
        for (id, connection) in ended {
            self.destroy(id, connection, None);
        }
        let _table = self.table();
        known::remove(key);
    }

    /// Destroys an identifier that nobody finds any more, and requests that wait for it; how many of its events the program
    /// has taken.
    pub(super) fn destroy(&self, id: Id, connection: CmId, fd: Option<c_int>) -> u32 {
        // It is there: who ends an identifier is the only one that destroys it.
        let _ = self.manager.destroy(connection);
        let (reported, requests) = self.table().forget(id, fd);
        for (id, connection) in requests {
            let _ = self.manager.destroy(connection);
            // Nothing waits for what was only a request.
            self.table().forget(id, None);
        }
        reported
    }
}

/// Where events go: all to the one table, which knows the channels.
pub(super) struct Sink(pub(super) &'static State);

impl EventSink for Sink {
    fn push(&self, event: Event) -> bool {
        self.0.table().push(&event)
    }
}

fn error_of(error: io::Error) -> Refused {
    Refused(error.raw_os_error().unwrap_or(libc::EAGAIN))
}

/// What the parent opened is the parent's.
const FORKED: Refused = Refused(libc::EIO);
/// Of a thread that destroys.
const STACK_BYTES: usize = 256 * 1024;
