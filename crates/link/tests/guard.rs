//! What a forked child keeps of the descriptors of its parent's devices.

#![allow(unsafe_code, clippy::unwrap_used, reason = "a test that forks")]

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use userdma_link::guard::{GuardedFd, let_go};

fn is_socket(fd: RawFd) -> bool {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fills the structure or fails.
    unsafe {
        libc::fstat(fd, stat.as_mut_ptr()) == 0 && stat.assume_init().st_mode & libc::S_IFMT == libc::S_IFSOCK
    }
}

/// Whether `holds` in a child that lets go.
fn in_child(holds: impl Fn() -> bool) -> bool {
    // SAFETY: the child makes system calls only, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let_go();
            libc::_exit(i32::from(!holds()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

#[test]
fn a_child_lets_go_of_the_sockets_that_are_open_and_of_nothing_else() {
    let socket = || OwnedFd::from(UdpSocket::bind("127.47.21.2:0").unwrap());
    let ours = GuardedFd::from(socket());
    // What a device gets from a neighbor is a socket, too.
    let copy = GuardedFd::from(ours.as_fd().try_clone_to_owned().unwrap());
    let file = GuardedFd::from(OwnedFd::from(File::open("/dev/zero").unwrap()));
    let programs = socket();
    let closed = GuardedFd::from(socket());
    let number = closed.as_raw_fd();
    drop(closed);
    // The program gets the number of one that has closed, and takes that of one that is open.
    // SAFETY: nobody has the first number, and of the second only this test knows.
    let (reused, stolen) = unsafe {
        let reused = libc::dup2(programs.as_raw_fd(), number);
        let victim = GuardedFd::from(socket());
        let stolen = libc::dup2(programs.as_raw_fd(), victim.as_raw_fd());
        std::mem::forget(victim);
        (reused, stolen)
    };
    let [ours, copy, programs] = [ours.as_raw_fd(), copy.as_raw_fd(), programs.as_raw_fd()];
    assert!([ours, copy, programs, reused, stolen].into_iter().all(is_socket));
    assert!(in_child(|| !is_socket(ours) && !is_socket(copy)));
    assert!(in_child(|| is_socket(programs) && is_socket(reused) && is_socket(stolen)));
    let zero = file.as_raw_fd();
    let reads = || {
        let mut byte = [1_u8];
        // SAFETY: reads into a byte of this frame.
        unsafe { libc::read(zero, byte.as_mut_ptr().cast(), 1) == 1 }
    };
    assert!(in_child(reads), "a file stays what it is");
    assert!(is_socket(ours), "the parent has it");
}
