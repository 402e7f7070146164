//! A program that ends with devices open: what it has received but not yet acknowledged is acknowledged before.
//!
//! An acknowledgement waits a moment for a reply that it can go with. An adapter sends it whatever becomes of the program; here
//! the peer of a program that calls `exit` as soon as it has its last message would send that again until it gives up. A
//! program that is killed tells nobody anything. Peers of connections that the connection manager has made are told of their end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, PoisonError, TryLockError, Weak};

use crate::cm;
use crate::shared::Shared;

/// Devices that are open, and some that were.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// Connection managers that are there, and some that were.
static MANAGERS: Mutex<Vec<Weak<cm::Shared>>> = Mutex::new(Vec::new());

/// Notes a device that was opened.
pub(crate) fn watch(device: &Arc<Shared>) {
    note(&OPEN, device);
}

/// Notes a connection manager that was made.
pub(crate) fn watch_connections(manager: &Arc<cm::Shared>) {
    note(&MANAGERS, manager);
}

fn note<T>(list: &Mutex<Vec<Weak<T>>>, one: &Arc<T>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler may run at any time at which the program may exit: it waits for no lock, and touches what
        // has static lifetime or is owned by the list. If the library has no memory for it, ends are as abrupt as a kill.
        #[allow(unsafe_code)]
        unsafe {
            libc::atexit(at_exit);
        }
    });
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|other| other.strong_count() > 0);
    list.push(Arc::downgrade(one));
}

extern "C" fn at_exit() {
    each(&MANAGERS, |manager| {
        if manager.ask_for_farewell() {
            wait_until(|| manager.has_said_farewell());
        }
    });
    each(&OPEN, |device| {
        // Without a thread there is no queue pair.
        if device.has_thread.load(Ordering::Relaxed) && device.check().is_ok() {
            say_farewell(device);
        }
    });
}

/// Looks at each that is there, without waiting for any lock.
fn each<T>(list: &Mutex<Vec<Weak<T>>>, mut look: impl FnMut(&T)) {
    let list = match list.try_lock() {
        Ok(list) => list,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // Whoever holds it makes one, and will find out soon.
        Err(TryLockError::WouldBlock) => return,
    };
    for one in list.iter().filter_map(Weak::upgrade) {
        look(&one);
    }
}

/// Has the progress thread drive once, and waits for that, a moment at most. Not the caller himself: programs call `exit` in
/// handlers of signals, too, and the thread that was interrupted may hold what a drive waits for.
fn say_farewell(device: &Shared) {
    device.is_served.store(false, Ordering::Release);
    device.wake_thread();
    wait_until(|| device.is_served.load(Ordering::Acquire));
}

/// Waits until it is so, a moment at most.
fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..PATIENCE {
        if is_so() {
            return;
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
        // SAFETY: `pause` outlives the call; what is left of it is not asked for.
        #[allow(unsafe_code)]
        unsafe {
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
        }
    }
}

/// Between two looks whether the thread has driven.
const PAUSE_NS: libc::c_long = 50_000;
/// Looks: some 50 ms.
const PATIENCE: u32 = 1000;
