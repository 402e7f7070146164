//! Messages with descriptors over Unix sockets that keep messages apart.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors that one message carries at most: the kernel refuses more.
pub(crate) const MAX_DESCRIPTORS: usize = 253;

/// Sends one message. It waits for room unless the socket does not.
pub(crate) fn send(socket: &impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, bytes, descriptors, SendFlags::NOSIGNAL)
}

/// Sends one message if there is room for it now; whether there was.
pub(crate) fn send_now(socket: &impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<bool> {
    match send_with(socket, bytes, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        other => other.map(|()| true),
    }
}

fn send_with(
    socket: &impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop).map_err(io::Error::from),
        }
    }
}

/// Receives one message into `room`, or looks at it if `flags` say so. Its length, which is 0 if the other end has closed, and
/// its descriptors.
pub(crate) fn receive(
    socket: &impl AsFd,
    room: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let came = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let descriptors: Vec<_> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            RecvAncillaryMessage::ScmCredentials(_) | _ => None,
        })
        .flatten()
        .collect();
    if came.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        // Descriptors are missing when the process may have no more.
        return Err(rustix::io::Errno::MFILE.into());
    }
    Ok((came.bytes, descriptors))
}
