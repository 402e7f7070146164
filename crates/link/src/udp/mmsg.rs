//! Messages by system calls, several by one (`sendmmsg`, `recvmmsg`), without the C library's wrappers.
//!
//! The wrappers are points where a thread may be cancelled, which would leave a device half driven; a plain
//! `syscall` is not. Headers live on the stack for the length of a call, so no pointer outlives what it points to.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::control::Control;
use super::sockaddr::SockAddr;

/// One datagram, or super-packet, to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) addr: SockAddr,
    /// Control messages and how many bytes of them count.
    pub(super) control: (Control, usize),
}

/// Memory for the addresses and control messages of one `sendmmsg`.
#[derive(Debug)]
pub(super) struct SendArrays {
    slots: Box<[(SockAddr, Control); SEND_MAX]>,
}

impl SendArrays {
    pub(super) fn new() -> Self {
        Self { slots: Box::new([(SockAddr::EMPTY, Control::EMPTY); SEND_MAX]) }
    }

    /// Sends up to [`SEND_MAX`] of `messages` in their order; returns how many the kernel took, at least one.
    ///
    /// # Errors
    /// What the kernel says to the first message. Nothing was sent then.
    pub(super) fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        messages: impl Iterator<Item = Outgoing<'a>>,
    ) -> io::Result<usize> {
        let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; SEND_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; SEND_MAX];
        let mut count = 0usize;
        let places = self.slots.iter_mut().zip(&mut iovecs).zip(&mut headers);
        for (message, ((slot, iovec), header)) in messages.zip(places) {
            *slot = (message.addr, message.control.0);
            // The kernel only reads what a sent iovec points to.
            let base = message.bytes.as_ptr().cast_mut().cast();
            let iovec = iovec.write(libc::iovec { iov_base: base, iov_len: message.bytes.len() });
            let header = header.write(libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 });
            header.msg_hdr.msg_name = (&raw mut slot.0).cast();
            header.msg_hdr.msg_namelen = message.addr.len();
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
            if message.control.1 > 0 {
                header.msg_hdr.msg_control = (&raw mut slot.1).cast();
                header.msg_hdr.msg_controllen = message.control.1 as _; // below Control::CAPACITY
            }
            count += 1;
        }
        let (fd, flags) = (fd.as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: the first `count` headers are written. Their names and control messages lie in `self.slots`, their
        // iovecs in `iovecs`, the bytes those point to in messages that `'a` keeps alive: all beyond this call, in which
        // the kernel reads them. It writes only `msg_len` of the headers. The calls cannot block or be cancelled. A
        // `mmsghdr` begins with its `msghdr`.
        let sent = unsafe {
            match count {
                // One message costs less this way; the result is its length, which is not 0.
                1 => libc::syscall(libc::SYS_sendmsg, fd, headers.as_ptr(), flags).min(1),
                _ => libc::syscall(libc::SYS_sendmmsg, fd, headers.as_mut_ptr(), count, flags),
            }
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Sends one datagram without control messages: the cheapest way there is. How many the kernel took: one.
///
/// # Errors
/// What the kernel says. Nothing was sent then.
pub(super) fn send_one(fd: BorrowedFd<'_>, bytes: &[u8], addr: &SockAddr) -> io::Result<usize> {
    let (addr, addr_len) = (&raw const *addr, addr.len());
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads `bytes` and the first `addr_len` bytes of `addr`, never more than it has; both outlive the call,
    // which cannot block or be cancelled.
    let sent = unsafe {
        libc::syscall(libc::SYS_sendto, fd.as_raw_fd(), bytes.as_ptr(), bytes.len(), flags, addr, addr_len)
    };
    if sent >= 0 { Ok(1) } else { Err(io::Error::last_os_error()) }
}

/// Memory for what one `recvmmsg` brings.
#[derive(Debug)]
pub(super) struct RecvArrays {
    buffers: Box<[u8]>,
    slots: Box<[RecvSlot]>,
}

/// What the kernel said of one message.
#[derive(Clone, Copy, Debug)]
struct RecvSlot {
    addr: SockAddr,
    control: Control,
    addr_len: libc::socklen_t,
    control_len: usize,
    len: usize,
    flags: i32,
}

/// A received datagram, or super-packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) addr: &'a SockAddr,
    pub(super) addr_len: libc::socklen_t,
    pub(super) control: &'a Control,
    pub(super) control_len: usize,
    /// `MSG_TRUNC` and `MSG_CTRUNC` tell what was cut.
    pub(super) flags: i32,
}

impl RecvSlot {
    /// A header by which the kernel fills this slot. It points into the slot and must not outlive it.
    fn header(&mut self, iovec: *mut libc::iovec) -> libc::msghdr {
        let mut header = empty_header();
        header.msg_name = (&raw mut self.addr).cast();
        header.msg_namelen = SockAddr::CAPACITY_U32;
        header.msg_iov = iovec;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut self.control).cast();
        header.msg_controllen = size_of::<Control>() as _; // below 100
        header
    }

    /// Takes over what the kernel has written into the header.
    fn note(&mut self, header: &libc::msghdr, len: usize) {
        #[allow(clippy::unnecessary_cast, reason = "not a usize in every C library")]
        let control_len = header.msg_controllen as usize;
        (self.addr_len, self.control_len) = (header.msg_namelen, control_len);
        (self.len, self.flags) = (len, header.msg_flags);
    }
}

impl RecvArrays {
    /// Memory for up to `messages` at once: 1 ..= [`RECV_MAX`], others are taken to the nearer end.
    pub(super) fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, RECV_MAX);
        let slot = RecvSlot {
            addr: SockAddr::EMPTY,
            control: Control::EMPTY,
            addr_len: 0,
            control_len: 0,
            len: 0,
            flags: 0,
        };
        Self {
            buffers: vec![0; messages * RECV_BUFFER].into_boxed_slice(),
            slots: vec![slot; messages].into_boxed_slice(),
        }
    }

    /// Most messages per call.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Receives up to `wanted` messages, as far as they are there; returns how many came, at least one.
    ///
    /// # Errors
    /// What the kernel says, `EAGAIN` if there is none.
    #[inline]
    pub(super) fn recv(&mut self, fd: BorrowedFd<'_>, wanted: usize) -> io::Result<usize> {
        // One message costs less by a call of its own, most of all if it is not there.
        if wanted <= 1 { self.recv_one(fd) } else { self.recv_several(fd, wanted) }
    }

    /// Receives one message and learns of it only where it is from: no control messages.
    ///
    /// # Errors
    /// As [`RecvArrays::recv`].
    pub(super) fn recv_brief(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let (slot, buffer) = self.first();
        let fd = fd.as_raw_fd();
        let mut addr_len = SockAddr::CAPACITY_U32;
        let (buffer, addr) = (buffer.as_mut_ptr(), &raw mut slot.addr);
        // SAFETY: the kernel writes at most RECV_BUFFER bytes to `buffer`, at most `addr_len` bytes to `addr`, which has that
        // many, and their number to `addr_len`. All outlive the call, which cannot block or be cancelled.
        let len = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::syscall(libc::SYS_recvfrom, fd, buffer, RECV_BUFFER, flags, addr, &raw mut addr_len)
        };
        slot.len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        (slot.addr_len, slot.control_len, slot.flags) = (addr_len, 0, 0);
        Ok(1)
    }

    /// The first place; there is always one.
    fn first(&mut self) -> (&mut RecvSlot, &mut [u8; RECV_BUFFER]) {
        let (buffers, _) = self.buffers.as_chunks_mut::<RECV_BUFFER>();
        (&mut self.slots[0], &mut buffers[0])
    }

    fn recv_one(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let (slot, buffer) = self.first();
        let mut iovec = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: RECV_BUFFER };
        let mut header = slot.header(&raw mut iovec);
        // SAFETY: the header points to the address and the control buffer of a slot and, through the iovec, to RECV_BUFFER
        // bytes, with their true sizes; all of them are plain bytes, are borrowed mutably through `self` and live
        // beyond this call, in which the kernel writes them and the header. It cannot block or be cancelled.
        let len =
            unsafe { libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        slot.note(&header, len);
        Ok(1)
    }

    fn recv_several(&mut self, fd: BorrowedFd<'_>, wanted: usize) -> io::Result<usize> {
        let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; RECV_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; RECV_MAX];
        let wanted = wanted.min(self.slots.len());
        let (buffers, _) = self.buffers.as_chunks_mut::<RECV_BUFFER>();
        let places = self.slots.iter_mut().zip(buffers).zip(iovecs.iter_mut().zip(&mut headers));
        for ((slot, buffer), (iovec, header)) in places.take(wanted) {
            let iovec =
                iovec.write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: RECV_BUFFER });
            header.write(libc::mmsghdr { msg_hdr: slot.header(iovec), msg_len: 0 });
        }
        let (fd, flags) = (fd.as_raw_fd(), libc::MSG_DONTWAIT);
        let no_limit = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: the first `wanted` headers are written. Each points to an address and a control buffer of its own slot
        // and, through its iovec, to its own RECV_BUFFER bytes, with their true sizes; all of them are plain bytes, are
        // borrowed mutably through `self` and live beyond this call, in which the kernel writes them. The call
        // cannot block or be cancelled.
        let received =
            unsafe { libc::syscall(libc::SYS_recvmmsg, fd, headers.as_mut_ptr(), wanted, flags, no_limit) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?.min(wanted);
        for (slot, header) in self.slots.iter_mut().zip(&headers).take(received) {
            // SAFETY: the first `wanted` headers were written above, and by the kernel again.
            let header = unsafe { header.assume_init_ref() };
            slot.note(&header.msg_hdr, header.msg_len as usize);
        }
        Ok(received)
    }

    /// The first `count` messages of the last call.
    pub(super) fn messages(&self, count: usize) -> impl Iterator<Item = Incoming<'_>> {
        let (buffers, _) = self.buffers.as_chunks::<RECV_BUFFER>();
        self.slots.iter().zip(buffers).take(count).map(|(slot, buffer)| Incoming {
            bytes: &buffer[..slot.len.min(RECV_BUFFER)],
            addr: &slot.addr,
            addr_len: slot.addr_len,
            control: &slot.control,
            control_len: slot.control_len,
            flags: slot.flags,
        })
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: `msghdr` is plain numbers and pointers: all zero is a value of it.
    unsafe { std::mem::zeroed() }
}

/// Most messages per `sendmmsg`.
pub(super) const SEND_MAX: usize = 32;
/// Most messages per `recvmmsg`.
pub(super) const RECV_MAX: usize = 16;
/// What one message can bring: the kernel joins datagrams up to 64 KiB.
const RECV_BUFFER: usize = 1 << 16;
