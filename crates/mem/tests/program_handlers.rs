//! The program's own SIGSEGV and SIGBUS handlers keep what is theirs, whenever they are installed, and ours keeps
//! what is ours. Each case is a process of its own.

#![cfg(target_arch = "x86_64")] // Elsewhere no routine of ours faults.
#![allow(clippy::unwrap_used, reason = "also in functions that tests share")]

mod common;

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use common::{Mapping, assert_killed_by, assert_success, child, is_child, text};
use libc::{PROT_NONE, PROT_READ, PROT_WRITE, SIGBUS, SIGSEGV, c_int, c_void, siginfo_t};
use userdma_mem::{MemError, Region, install_fault_handler, unblock_fault_signals};

// ---- What a program does -------------------------------------------------------------------------------------

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

static CALLS: AtomicUsize = AtomicUsize::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);
/// Signals that were blocked inside the handler: SIGUSR1 is bit 0, SIGSEGV bit 1.
static BLOCKED: AtomicI32 = AtomicI32::new(-1);
/// A local's address inside the handler.
static STACK: AtomicUsize = AtomicUsize::new(0);
/// What the program's second handler passes on to.
static OLDER: AtomicUsize = AtomicUsize::new(0);

/// A page that the program's handlers make accessible, as a garbage collector does.
static GUARDED: AtomicUsize = AtomicUsize::new(0);

fn action_of(signal: c_int) -> libc::sigaction {
    // SAFETY: fills a local.
    unsafe {
        let mut action = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
        action
    }
}

/// Installs a handler as C programs do; returns the one before.
fn sigaction(signal: c_int, handler: usize, flags: c_int, mask: &[c_int]) -> libc::sigaction {
    // SAFETY: the handler is one of this file, or a default.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        for &blocked in mask {
            libc::sigaddset(&mut action.sa_mask, blocked);
        }
        let mut before = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, &action, &mut before), 0);
        before
    }
}

fn address_of(handler: Handler) -> usize {
    handler as *const () as usize
}

fn open_guarded_page() {
    let page = GUARDED.load(Ordering::Relaxed);
    // SAFETY: the test's mapping.
    let opened = unsafe { libc::mprotect(page as *mut c_void, common::page(), PROT_READ | PROT_WRITE) };
    if opened != 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(77) };
    }
}

/// Handles faults in the guarded page.
extern "C" fn collector(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    let local = 0_u8;
    STACK.store((&raw const local).addr(), Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the signal's information.
    ADDRESS.store(unsafe { (*info).si_addr() }.addr() as u64, Ordering::Relaxed);
    // SAFETY: fills a local.
    let blocked = unsafe {
        let mut set = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        libc::sigismember(&set, libc::SIGUSR1) | (libc::sigismember(&set, SIGSEGV) << 1)
    };
    BLOCKED.store(blocked, Ordering::Relaxed);
    open_guarded_page();
}

/// As `collector`, of one argument.
extern "C" fn simple_collector(_signal: c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    open_guarded_page();
}

/// Counts, and passes on to the handler that it remembers.
extern "C" fn passes_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if CALLS.fetch_add(1, Ordering::Relaxed) > 50 {
        // SAFETY: ends the process: faults go round in a circle.
        unsafe { libc::_exit(78) };
    }
    let older = OLDER.load(Ordering::Relaxed);
    // SAFETY: a handler with SA_SIGINFO, as each in this file.
    let older: Handler = unsafe { std::mem::transmute(older) };
    older(signal, info, context);
}

/// Ends the process with a code of its own.
extern "C" fn leaves(_signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(55) };
}

/// A fault of the program: a store to a page that is not accessible. Returns if somebody made it so.
fn touch_guarded_page() -> usize {
    let page = Mapping::anonymous(1, PROT_NONE);
    GUARDED.store(page.base.addr(), Ordering::Relaxed);
    // SAFETY: faults on purpose.
    unsafe { page.base.write_volatile(1) };
    page.base.addr()
}

#[track_caller]
fn assert_our_copies_fault_and_live() {
    let gone = Mapping::anonymous(1, PROT_NONE);
    let truncated = Mapping::memfd(1);
    truncated.truncate(0);
    for mapping in [gone, truncated] {
        let region = mapping.region();
        let before = CALLS.load(Ordering::Relaxed);
        assert_eq!(region.read(0, &mut [0; 100]), Err(MemError::Fault));
        assert_eq!(region.write(0, &[0; 100]), Err(MemError::Fault));
        assert_eq!(region.fetch_add(0, 1), Err(MemError::Fault));
        assert_eq!(CALLS.load(Ordering::Relaxed), before, "a copy's fault is none of the program's business");
    }
}

/// Runs `body` in a child and hands its output to `judge` in the parent.
macro_rules! in_a_process {
    ($name:ident, $body:expr, $judge:expr) => {
        #[test]
        fn $name() {
            if is_child() {
                $body;
                return;
            }
            $judge(&child(stringify!($name)));
        }
    };
}

// ---- Faults that nobody handles ------------------------------------------------------------------------------

in_a_process!(
    a_fault_outside_our_routines_still_kills,
    {
        install_fault_handler().unwrap();
        assert_our_copies_fault_and_live();
        touch_guarded_page();
    },
    |output| assert_killed_by(output, SIGSEGV)
);

in_a_process!(
    a_bus_error_outside_our_routines_still_kills,
    {
        install_fault_handler().unwrap();
        let mapping = Mapping::memfd(1);
        mapping.truncate(0);
        // SAFETY: faults on purpose.
        unsafe { mapping.base.read_volatile() };
    },
    |output| assert_killed_by(output, SIGBUS)
);

in_a_process!(
    with_the_default_before_us_a_fault_kills,
    {
        sigaction(SIGSEGV, libc::SIG_DFL, 0, &[]);
        install_fault_handler().unwrap();
        assert_our_copies_fault_and_live();
        touch_guarded_page();
    },
    |output| assert_killed_by(output, SIGSEGV)
);

in_a_process!(
    with_the_default_before_us_a_sent_signal_kills,
    {
        sigaction(SIGSEGV, libc::SIG_DFL, 0, &[]);
        install_fault_handler().unwrap();
        // SAFETY: a plain system call.
        unsafe { libc::kill(libc::getpid(), SIGSEGV) };
        std::thread::park();
    },
    |output| assert_killed_by(output, SIGSEGV)
);

in_a_process!(
    an_ignored_fault_kills_and_an_ignored_sent_signal_does_not,
    {
        sigaction(SIGSEGV, libc::SIG_IGN, 0, &[]);
        install_fault_handler().unwrap();
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::raise(SIGSEGV) }, 0);
        println!("lives on");
        assert_our_copies_fault_and_live();
        touch_guarded_page();
    },
    |output| {
        assert!(text(output).contains("lives on"), "{}", text(output));
        assert_killed_by(output, SIGSEGV);
    }
);

in_a_process!(
    a_stack_overflow_is_still_reported_as_one,
    {
        #[expect(unconditional_recursion, reason = "that is the test")]
        fn deeper(bytes: &mut [u8; 1000]) -> u64 {
            let mut more = *bytes;
            deeper(std::hint::black_box(&mut more)) + u64::from(more[0])
        }
        install_fault_handler().unwrap();
        assert_our_copies_fault_and_live();
        deeper(&mut [0; 1000]);
    },
    |output| {
        assert!(text(output).contains("has overflowed its stack"), "{}", text(output));
        assert_killed_by(output, libc::SIGABRT);
    }
);

// ---- Handlers of the program ---------------------------------------------------------------------------------

in_a_process!(
    a_handler_from_before_us_gets_its_faults_as_it_asked_for,
    {
        sigaction(SIGSEGV, address_of(collector), libc::SA_SIGINFO, &[libc::SIGUSR1]);
        install_fault_handler().unwrap();
        let page = touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        assert_eq!(ADDRESS.load(Ordering::Relaxed), page as u64);
        assert_eq!(BLOCKED.load(Ordering::Relaxed), 3, "its mask and the signal itself");
        let local = 0_u8;
        let distance = (&raw const local).addr().abs_diff(STACK.load(Ordering::Relaxed));
        assert!(distance < 65_536, "it did not ask for the alternate stack");
        assert_our_copies_fault_and_live();
        touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    },
    assert_success
);

in_a_process!(
    a_handler_on_the_alternate_stack_that_may_nest_stays_so,
    {
        let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        sigaction(SIGSEGV, address_of(collector), flags, &[]);
        install_fault_handler().unwrap();
        touch_guarded_page();
        assert_eq!(BLOCKED.load(Ordering::Relaxed), 0);
        // SAFETY: fills a local.
        let stack = unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut stack);
            stack
        };
        let inside = stack.ss_sp.addr()..stack.ss_sp.addr() + stack.ss_size;
        assert!(inside.contains(&STACK.load(Ordering::Relaxed)));
        assert_our_copies_fault_and_live();
    },
    assert_success
);

in_a_process!(
    a_handler_of_one_argument_gets_its_faults,
    {
        sigaction(SIGSEGV, simple_collector as *const () as usize, 0, &[]);
        install_fault_handler().unwrap();
        touch_guarded_page();
        assert_our_copies_fault_and_live();
        touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    },
    assert_success
);

in_a_process!(
    a_handler_for_one_fault_is_called_once,
    {
        let flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        sigaction(SIGSEGV, address_of(collector), flags, &[]);
        install_fault_handler().unwrap();
        touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        assert_our_copies_fault_and_live();
        println!("still alive");
        touch_guarded_page();
    },
    |output| {
        assert!(text(output).contains("still alive"), "{}", text(output));
        assert_killed_by(output, SIGSEGV);
    }
);

in_a_process!(
    a_handler_from_after_us_gets_its_faults_and_ours_comes_back_with_the_next_registration,
    {
        install_fault_handler().unwrap();
        sigaction(SIGSEGV, address_of(collector), libc::SA_SIGINFO, &[]);
        sigaction(SIGBUS, address_of(leaves), libc::SA_SIGINFO, &[]);
        touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);

        let mapping = Mapping::anonymous(1, PROT_READ | PROT_WRITE);
        assert_eq!(mapping.region().probe(true), Ok(()));
        assert_our_copies_fault_and_live();
        touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    },
    assert_success
);

in_a_process!(
    a_buffer_of_ours_brings_the_handler_back_too,
    {
        install_fault_handler().unwrap();
        sigaction(SIGSEGV, address_of(collector), libc::SA_SIGINFO, &[]);
        let _buffer = userdma_mem::Buffer::new(1).unwrap();
        assert_our_copies_fault_and_live();
    },
    assert_success
);

in_a_process!(
    a_program_s_handler_that_passes_on_to_ours_reaches_what_was_before_both,
    {
        sigaction(SIGSEGV, address_of(collector), libc::SA_SIGINFO, &[]);
        install_fault_handler().unwrap();
        for round in 1..=3 {
            // Each installs itself once more in front and passes on to what it finds: ours.
            let before = sigaction(SIGSEGV, address_of(passes_on), libc::SA_SIGINFO, &[]);
            OLDER.store(before.sa_sigaction, Ordering::Relaxed);
            install_fault_handler().unwrap();
            CALLS.store(0, Ordering::Relaxed);
            touch_guarded_page();
            assert_eq!(CALLS.load(Ordering::Relaxed), 2, "round {round}: passed on once, collected once");
            assert_our_copies_fault_and_live();
        }
    },
    assert_success
);

in_a_process!(
    handlers_that_pass_on_in_a_circle_end_with_the_default,
    {
        sigaction(SIGSEGV, libc::SIG_DFL, 0, &[]);
        install_fault_handler().unwrap();
        for _ in 0..2 {
            let before = sigaction(SIGSEGV, address_of(passes_on), libc::SA_SIGINFO, &[]);
            OLDER.store(before.sa_sigaction, Ordering::Relaxed);
            install_fault_handler().unwrap();
        }
        touch_guarded_page();
    },
    |output| assert_killed_by(output, SIGSEGV)
);

in_a_process!(
    a_program_that_restores_what_it_found_leaves_us_with_what_we_had,
    {
        sigaction(SIGSEGV, address_of(collector), libc::SA_SIGINFO, &[]);
        install_fault_handler().unwrap();
        let before = sigaction(SIGSEGV, address_of(leaves), libc::SA_SIGINFO, &[]);
        install_fault_handler().unwrap();
        // SAFETY: the program undoes its installation, as an unloaded library does.
        assert_eq!(unsafe { libc::sigaction(SIGSEGV, &before, std::ptr::null_mut()) }, 0);
        install_fault_handler().unwrap();
        touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1, "the handler that is gone is not called");
        assert_our_copies_fault_and_live();
    },
    assert_success
);

in_a_process!(
    any_number_of_handlers_may_be_put_in_front,
    {
        install_fault_handler().unwrap();
        for round in 0..200 {
            // Different masks make different actions.
            let mask: Vec<c_int> = (0..8).filter(|bit| round & (1 << bit) != 0).map(|bit| 34 + bit).collect();
            let handler = if round % 2 == 0 { address_of(leaves) } else { libc::SIG_DFL };
            sigaction(SIGSEGV, handler, libc::SA_SIGINFO, &mask);
            install_fault_handler().unwrap();
            assert_our_copies_fault_and_live();
        }
        sigaction(SIGSEGV, address_of(collector), libc::SA_SIGINFO, &[]);
        install_fault_handler().unwrap();
        touch_guarded_page();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    },
    assert_success
);

in_a_process!(
    a_handler_that_comes_in_while_we_install_is_not_lost,
    {
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3000 {
                    start.wait();
                    install_fault_handler().unwrap();
                    start.wait();
                }
            });
            for round in 0..3000 {
                // What is in front is the program's, so that there is something to install.
                sigaction(SIGSEGV, address_of(leaves), libc::SA_SIGINFO, &[]);
                start.wait();
                // A different instant in each round.
                (0..round % 100).for_each(|_| std::hint::spin_loop());
                sigaction(SIGSEGV, address_of(collector), libc::SA_SIGINFO, &[]);
                start.wait();
                install_fault_handler().unwrap();
                let page = touch_guarded_page();
                // SAFETY: the page of `touch_guarded_page`, which nobody uses.
                unsafe { libc::munmap(page as *mut c_void, common::page()) };
            }
        });
        assert_eq!(CALLS.load(Ordering::Relaxed), 3000);
        assert_our_copies_fault_and_live();
    },
    assert_success
);

in_a_process!(
    a_program_that_leaves_its_handler_by_a_jump_can_do_so_again_and_again,
    {
        // The handler continues elsewhere by changing the context, which is what a jump amounts to.
        extern "C" fn skips(_signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
            CALLS.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the signal's context; the faulting instruction is 2 bytes long.
            unsafe {
                let context = &mut *context.cast::<libc::ucontext_t>();
                context.uc_mcontext.gregs[libc::REG_RIP as usize] += 2;
            }
        }
        install_fault_handler().unwrap();
        sigaction(SIGSEGV, address_of(skips), libc::SA_SIGINFO, &[]);
        install_fault_handler().unwrap();
        for _ in 0..10 {
            // SAFETY: a load of 2 bytes of code that faults and is skipped.
            unsafe { std::arch::asm!("mov al, byte ptr [rcx]", in("rcx") 8_usize, out("al") _) };
        }
        assert_eq!(CALLS.load(Ordering::Relaxed), 10);
    },
    assert_success
);

// ---- Ours ----------------------------------------------------------------------------------------------------

in_a_process!(
    a_region_arms_the_process_by_itself,
    {
        let gone = Mapping::anonymous(1, PROT_NONE);
        // SAFETY: no references into it.
        let region = unsafe { Region::from_raw(gone.base, gone.len) };
        assert_eq!(region.read(0, &mut [0; 8]), Err(MemError::Fault));
    },
    assert_success
);

in_a_process!(
    installing_twice_changes_nothing,
    {
        install_fault_handler().unwrap();
        let before = [SIGSEGV, SIGBUS].map(|signal| action_of(signal).sa_sigaction);
        install_fault_handler().unwrap();
        assert_eq!([SIGSEGV, SIGBUS].map(|signal| action_of(signal).sa_sigaction), before);
    },
    assert_success
);

fn block_all_signals() {
    // SAFETY: fills a local and sets this thread's mask.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

in_a_process!(
    a_thread_that_blocks_the_signals_of_faults_dies_of_one,
    {
        install_fault_handler().unwrap();
        block_all_signals();
        assert_our_copies_fault_and_live();
    },
    // The kernel's rule, and why `unblock_fault_signals` exists.
    |output| assert_killed_by(output, SIGSEGV)
);

in_a_process!(
    a_thread_that_blocks_all_signals_but_ours_survives,
    {
        install_fault_handler().unwrap();
        block_all_signals();
        unblock_fault_signals().unwrap();
        assert_our_copies_fault_and_live();
    },
    assert_success
);

in_a_process!(
    a_sent_signal_goes_to_the_program_even_while_we_copy,
    {
        sigaction(SIGSEGV, address_of(counts), libc::SA_SIGINFO, &[]);
        install_fault_handler().unwrap();
        extern "C" fn counts(_signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
            CALLS.fetch_add(1, Ordering::Relaxed);
        }
        let mapping = Mapping::anonymous(256, PROT_READ | PROT_WRITE);
        let region = mapping.region();
        // SAFETY: names this thread, which outlives the sender.
        let me = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for sent in 1..=200 {
                    // SAFETY: the scope's owner lives.
                    unsafe { libc::pthread_kill(me, SIGSEGV) };
                    while CALLS.load(Ordering::Relaxed) < sent {
                        std::thread::yield_now();
                    }
                }
            });
            let bytes = vec![3; mapping.len];
            while CALLS.load(Ordering::Relaxed) < 200 {
                assert_eq!(region.write(0, &bytes), Ok(()), "an interrupted copy is not a fault");
            }
        });
    },
    assert_success
);

in_a_process!(
    a_child_after_fork_is_armed_as_well,
    {
        install_fault_handler().unwrap();
        // SAFETY: the child only copies and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let gone = Mapping::anonymous(1, PROT_NONE);
            let result = gone.region().write(0, &[0; 8]);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if result == Err(MemError::Fault) { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: waits for the child of above.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0);
    },
    assert_success
);
