//! What runs when a fault happens, and the entries by which the kernel reaches it.
//!
//! Everything reached from [`on_fault`] is async-signal-safe: it reads atomics and the signal's frame, and calls
//! `sigaction` and signal system calls at most.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void, sigaction, siginfo_t};

use super::chain::{self, Offered, Previous};
use crate::routine;

/// The signals by which memory says that it is not there.
pub(super) const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

type Entry = extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// How often a program can put a *different* action in front of ours before an entry's memory of the one it replaced
/// is given up.
const ENTRIES: usize = 8;

/// The entries' addresses. Only this table is asked for them: the compiler may duplicate a function.
static TABLE: [Entry; ENTRIES] = [
    on_fault::<0>,
    on_fault::<1>,
    on_fault::<2>,
    on_fault::<3>,
    on_fault::<4>,
    on_fault::<5>,
    on_fault::<6>,
    on_fault::<7>,
];

/// What each entry replaced, per signal: null while unused. Filled from the front; never freed, since a handler may
/// be reading it.
static PREVIOUS: [[AtomicPtr<Previous>; ENTRIES]; SIGNALS.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; ENTRIES] }; SIGNALS.len()];

/// Whether the action is one of our entries.
pub(super) fn is_ours(action: &sigaction) -> bool {
    TABLE.iter().any(|&entry| entry as *const () as usize == action.sa_sigaction)
}

/// The action that stands in for `previous`, with an entry that passes on to it.
///
/// An entry that replaced the same action before is used again.
pub(super) fn stand_in(signal: c_int, previous: Previous) -> sigaction {
    let (flags, mask) = previous.conditions();
    let entry = entry_for(slot(signal), previous);
    // SAFETY: all-zero is a valid value.
    let mut ours: sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = TABLE[entry] as *const () as usize;
    ours.sa_flags = flags;
    ours.sa_mask = mask;
    ours
}

/// The index of the entry that passes on to `previous`. Called under the installer's lock.
fn entry_for(slot: usize, previous: Previous) -> usize {
    for (entry, known) in PREVIOUS[slot].iter().enumerate() {
        // SAFETY: null, or a leaked box that nobody writes to.
        match unsafe { known.load(Ordering::Acquire).as_ref() } {
            Some(known) if known.stands_for(&previous) => return entry,
            Some(_) => {}
            None => {
                known.store(Box::into_raw(Box::new(previous)), Ordering::Release);
                return entry;
            }
        }
    }
    let last = ENTRIES - 1;
    PREVIOUS[slot][last].store(Box::into_raw(Box::new(previous)), Ordering::Release);
    last
}

/// The signal's row in [`PREVIOUS`].
fn slot(signal: c_int) -> usize {
    usize::from(signal == libc::SIGBUS)
}

/// The handler. "C-unwind" because the program's own handler below may throw or jump through it: nothing here has a
/// destructor.
extern "C-unwind" fn on_fault<const ENTRY: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel, or a handler that passes on what the kernel gave it, calls with a signal's frame.
    unsafe {
        if chain::recurs(signal, info) && recover(context) {
            return;
        }
        pass_on(ENTRY, signal, info, context);
    }
}

/// Continues a routine of ours at its recovery address. False if the instruction is not of ours.
///
/// # Safety
/// `context` is the signal's.
#[cfg(target_arch = "x86_64")]
unsafe fn recover(context: *mut c_void) -> bool {
    const RIP: usize = libc::REG_RIP as usize;
    // SAFETY: by contract it points to the interrupted thread's registers, which the kernel takes back from here.
    let instruction = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[RIP] };
    // The register is an address of 64 bits; the C library declares it signed.
    #[expect(clippy::cast_possible_truncation)]
    let address = instruction.cast_unsigned() as usize;
    match routine::recovery(address) {
        Some(recovery) => {
            *instruction = (recovery as u64).cast_signed();
            true
        }
        None => false,
    }
}

/// Elsewhere no routine of ours faults: the kernel copies.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn recover(_context: *mut c_void) -> bool {
    routine::recovery(0).is_some()
}

/// Hands the signal to what the entry replaced; if that already saw it, to the next older one; at last to the default.
///
/// # Safety
/// The arguments are the signal's.
unsafe fn pass_on(entry: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    for older in (0..=entry).rev() {
        let previous = PREVIOUS[slot(signal)][older].load(Ordering::Acquire);
        // SAFETY: null, or a leaked box that nobody writes to.
        let Some(previous) = (unsafe { previous.as_ref() }) else { continue };
        // SAFETY: the signal's own information, by contract.
        if !unsafe { mark(info, older) } {
            continue;
        }
        // SAFETY: by contract.
        match unsafe { previous.offer(signal, info, context) } {
            Offered::Handled => return,
            Offered::Default => break,
        }
    }
    // SAFETY: by contract.
    unsafe { chain::end_by_default(signal, info) }
}

/// Notes in the signal's information that `entry` passes it on; false if that was noted before.
///
/// The kernel fills the first part of the 128 bytes of a `siginfo_t` and clears the rest for each signal. Marks lie in
/// that rest, so they belong to one delivery, whatever the handlers jump over. Several copies of this library in one
/// process each have a mark of their own; where there are more than fit, the signal counts as unmarked.
///
/// # Safety
/// `info` is the signal's.
unsafe fn mark(info: *mut siginfo_t, entry: usize) -> bool {
    let bit = 1_u64 << entry;
    let whose = (&raw const TABLE).addr() as u64;
    // SAFETY: the marks lie inside the structure, which is on the stack of the handler's thread and aligned to 8.
    let marks = unsafe { &mut *info.cast::<u8>().add(MARKS_AT).cast::<[Mark; MARKS]>() };
    for mark in marks {
        if mark.whose == 0 {
            mark.whose = whose;
        }
        if mark.whose == whose {
            let first = mark.entries & bit == 0;
            mark.entries |= bit;
            return first;
        }
    }
    true
}

/// The entries of one copy of this library that a signal went through.
#[repr(C)]
struct Mark {
    /// The copy: its table's address; 0 if the mark is free.
    whose: u64,
    /// A bit for each entry.
    entries: u64,
}

/// Marks take the last 64 bytes of a `siginfo_t`; the kernel's own part is 48 bytes long.
const MARKS: usize = 4;
const MARKS_AT: usize = size_of::<siginfo_t>() - MARKS * size_of::<Mark>();
const _: () = assert!(MARKS_AT >= 48 && size_of::<siginfo_t>() == 128);
