//! After `fork` the child has a copy of the device's memory, perhaps in the middle of a change, and shares its sockets
//! with the parent. The copy must not be used: it is recognised by its generation.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

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
        // SAFETY: the handler only adds to an atomic, which is allowed in a child of a program with threads. If the
        // library runs out of memory for it, forked children are not recognised; nothing else is affected.
        #[allow(unsafe_code)]
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
