//! After `fork` the child has a copy of the device's memory, perhaps in the middle of a change, and shares its sockets
//! with the parent. The copy must not be used: it is recognised by its generation. The sockets are let go of at once, or the
//! parent's addresses would be taken as long as a child lives.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use userdma_link::guard;

/// Counts the forks that lie between this process and the first one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Which process of a chain of forks this is. One load.
#[inline]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Sees to it that children count one more. Needed before the first device is opened.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches atomics and makes system calls, which is allowed in a child of a program with threads.
        // If the library runs out of memory for it, forked children are not recognised; nothing else is affected.
        #[allow(unsafe_code)]
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
}

/// Only system calls and atomics: the child of a program with threads may do no more here.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    guard::let_go();
}
