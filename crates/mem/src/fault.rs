//! Copies that survive memory which vanishes: the process's SIGSEGV and SIGBUS handler.
//!
//! A real NIC pins the pages of a registered region; memory that the program unmaps stays there for the NIC. We
//! reach it through the program's own page tables, so an access may fault at any time. Our handler looks at the
//! instruction that faulted: inside one of our routines (`routine.rs`) it continues at that routine's recovery
//! address, and the access returns an error. **Every other fault goes to whoever handled it before us**, with the
//! signal mask, stack and flags that he asked the kernel for: we register with his.
//!
//! Programs install handlers of their own after us, and may remember ours to pass faults on to it. So there is not
//! one handler but a few *entries*, each with the action it replaced. Putting ourselves back in front uses the next
//! entry; what the program remembered is the older one, and its faults reach what was there before it. A handler
//! that nevertheless passes a fault back to the entry that called it is noticed by a mark in the signal's own
//! `siginfo_t`, and the fault goes on to the next older action: nothing goes round in a circle.
//!
//! Limit: the kernel kills a process that faults while the thread blocks the signal; no handler is asked. Threads
//! of ours that block signals must leave these two open: [`unblock`]. A program's thread that blocks them and then
//! drives a device whose memory it unmapped dies.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

mod chain;
mod handler;

use chain::Previous;

/// Installs the handler that turns a fault inside our copy routines into an error and passes every other fault on
/// to whoever handled it before. Safe to call often: it puts itself back in front if the program replaced it.
///
/// Not async-signal-safe. Costs two system calls when there is nothing to do.
///
/// # Errors
/// What `sigaction` says, which on Linux is nothing for these two signals.
pub fn install() -> io::Result<()> {
    if handler::SIGNALS
        .iter()
        .all(|&signal| chain::query(signal).is_ok_and(|action| handler::is_ours(&action)))
    {
        return Ok(());
    }
    let _one_at_a_time = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);
    for &signal in &handler::SIGNALS {
        put_in_front(signal)?;
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// As [`install`] for the first time, and nothing after that.
pub(crate) fn install_once() {
    if !INSTALLED.load(Ordering::Acquire) {
        // Cannot fail on Linux; if it did, `Region::probe` reports it before a region is used.
        let _ = install();
    }
}

/// Unblocks SIGSEGV and SIGBUS in the calling thread, for threads that block all other signals: a fault in a copy
/// of such a thread would otherwise end the process.
///
/// # Errors
/// What `pthread_sigmask` says.
pub fn unblock() -> io::Result<()> {
    // SAFETY: the set is a local that `sigemptyset` initialises; zeroes are a valid value before.
    let error = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in &handler::SIGNALS {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Makes an entry of ours the signal's action and notes what it replaced. Under the lock.
fn put_in_front(signal: libc::c_int) -> io::Result<()> {
    let mut previous = chain::query(signal)?;
    if handler::is_ours(&previous) {
        return Ok(());
    }
    let mut expected = previous;
    loop {
        let ours = handler::stand_in(signal, Previous::new(&previous));
        let replaced = chain::replace(signal, &ours)?;
        if chain::same(&replaced, &expected) {
            return Ok(());
        }
        // Another thread changed the action between the two calls: what it put there is the one to pass on to.
        if handler::is_ours(&replaced) {
            chain::replace(signal, &replaced)?;
            return Ok(());
        }
        (previous, expected) = (replaced, ours);
    }
}

static INSTALL: Mutex<()> = Mutex::new(());
static INSTALLED: AtomicBool = AtomicBool::new(false);
