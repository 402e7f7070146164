//! Memory that the program unmaps while it is registered: work ends in errors, the process lives.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use common::{ALL, pair, pattern};
use userdma::{Mr, QpState, SendFlags, WcStatus};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Pages that can be taken away.
struct Pages {
    addr: *mut u8,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, wherever the kernel likes.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert_ne!(addr, libc::MAP_FAILED);
        Self { addr: addr.cast(), len }
    }

    fn register(&self, pd: &userdma::Pd) -> Mr {
        // SAFETY: nothing but the region refers to these pages, and nothing else comes to lie there.
        unsafe { Mr::register_raw(pd, self.addr, self.len, ALL) }.unwrap()
    }

    /// The addresses stay reserved, so that nothing else comes to lie there.
    fn take_away(&self) {
        // SAFETY: our own pages, to which no reference exists.
        assert_eq!(unsafe { libc::mprotect(self.addr.cast(), self.len, libc::PROT_NONE) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(self.addr.cast(), self.len, libc::MADV_DONTNEED) }, 0);
    }

    fn unmap(&self) {
        // SAFETY: our own pages, to which no reference exists.
        assert_eq!(unsafe { libc::munmap(self.addr.cast(), self.len) }, 0);
    }
}

#[test]
fn a_peers_write_into_memory_that_is_gone_is_an_error_for_both() {
    let (a, b) = pair(95);
    let pages = Pages::new(1 << 20);
    let theirs = pages.register(&b.pd);
    let mine = a.mr(1 << 20, 1);
    a.qp.post_write(1, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.done(1);
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(1 << 20, 1));
    pages.take_away();
    a.qp.post_write(2, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    let status = a.next().status;
    assert!(matches!(status, WcStatus::RemOpErr | WcStatus::RemAccessErr), "{status:?}");
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Err, QpState::Err));
    assert!(theirs.read(0, &mut [0]).is_err());
}

#[test]
fn a_send_from_memory_that_is_gone_fails_here() {
    let (a, b) = pair(96);
    let pages = Pages::new(64 << 10);
    let mine = pages.register(&a.pd);
    let theirs = b.mr(64 << 10, 0);
    b.qp.post_recv(1, &theirs.slice(..)).unwrap();
    pages.take_away();
    a.qp.post_send(2, &mine.slice(..), SIGNALED).unwrap();
    assert_eq!(a.next().status, WcStatus::LocProtErr);
    assert_eq!(a.qp.state(), QpState::Err);
}

/// The memory goes while WRITEs pour in; the receiving program does nothing, so the progress thread meets the fault.
#[test]
fn unmapping_under_traffic_ends_the_connection_and_nothing_else() {
    for round in 0..10 {
        let (a, b) = pair(100 + round);
        let pages = Pages::new(256 << 10);
        let theirs = pages.register(&b.pd);
        let mine = a.mr(256 << 10, 1);
        std::thread::scope(|scope| {
            let (pages, at) = (pages.addr as usize, pages.len);
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(3));
                Pages { addr: pages as *mut u8, len: at }.unmap();
            });
            let mut id = 0;
            loop {
                while a.qp.post_write(id, &mine.slice(..), theirs.remote(), SIGNALED).is_ok() {
                    id += 1;
                }
                let status = a.next().status;
                if status != WcStatus::Success {
                    assert!(matches!(status, WcStatus::RemOpErr | WcStatus::RemAccessErr), "{status:?}");
                    break;
                }
            }
        });
        assert_eq!(b.qp.state(), QpState::Err);
    }
}
