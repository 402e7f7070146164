//! Mappings that a test may take away, and children that run one test of this binary in a process of their own.

#![allow(dead_code, unreachable_pub)] // Each test binary has its own copy and uses a part.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use libc::c_int;
use userdma_mem::Region;

pub fn page() -> usize {
    // SAFETY: a plain query.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
}

/// A mapping of some pages, private or of a memfd.
pub struct Mapping {
    pub base: *mut u8,
    pub len: usize,
    file: Option<OwnedFd>,
}

// SAFETY: the pointer is only handed to system calls and regions.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn anonymous(pages: usize, protection: c_int) -> Self {
        Self::map(pages, protection, None)
    }

    pub fn memfd(pages: usize) -> Self {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, (pages * page()) as u64).unwrap();
        Self::map(pages, libc::PROT_READ | libc::PROT_WRITE, Some(file))
    }

    fn map(pages: usize, protection: c_int, file: Option<OwnedFd>) -> Self {
        let len = pages * page();
        let (kind, fd) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, kind, fd, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), len, file }
    }

    pub fn region(&self) -> Region {
        // SAFETY: tests never form references into their mappings.
        unsafe { Region::from_raw(self.base, self.len) }
    }

    /// Replaces pages by a hole that nothing else can be mapped into, as good as `munmap` for who touches it.
    pub fn unmap(&self, first: usize, pages: usize) {
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = self.base.wrapping_add(first * page()).cast();
        // SAFETY: inside the mapping.
        let hole = unsafe { libc::mmap(at, pages * page(), libc::PROT_NONE, flags, -1, 0) };
        assert_eq!(hole, at);
    }

    pub fn protect(&self, first: usize, pages: usize, protection: c_int) {
        let at = self.base.wrapping_add(first * page()).cast();
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { libc::mprotect(at, pages * page(), protection) }, 0);
    }

    pub fn truncate(&self, pages: usize) {
        rustix::fs::ftruncate(self.file.as_ref().unwrap(), (pages * page()) as u64).unwrap();
    }
}

/// Runs the test `name` of this binary alone, with `CHILD` set, without core dumps.
pub fn child(name: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("CHILD", "1")
        .output()
        .unwrap()
}

/// Whether this process is such a child. Limits it so that a bug does not leave it running or dump a core.
pub fn is_child() -> bool {
    if std::env::var_os("CHILD").is_none() {
        return false;
    }
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::alarm(20);
    }
    true
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[track_caller]
pub fn assert_killed_by(output: &Output, signal: c_int) {
    assert_eq!(output.status.signal(), Some(signal), "{:?}\n{}", output.status, text(output));
}

#[track_caller]
pub fn assert_success(output: &Output) {
    assert!(output.status.success(), "{:?}\n{}", output.status, text(output));
    assert!(text(output).contains("1 passed"), "the child ran no test:\n{}", text(output));
}
