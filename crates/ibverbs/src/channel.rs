//! Completion channels.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use userdma_host::{Channel, EventError};
use userdma_objects::CompChannel;

use crate::abi::{self, Context};
use crate::answer::{BUSY, Refused, minus_one, pointer, status};
use crate::context::{self, ContextState};
use crate::cq::CqObject;
use crate::devices::lock;
use crate::signals;

/// What a `struct ibv_comp_channel` lies in.
#[repr(C)]
pub(crate) struct ChannelObject {
    /// Programs read it; its count of users is changed under the lock of the context's queues.
    pub(crate) abi: UnsafeCell<abi::CompChannel>,
    state: Arc<ContextState>,
    channel: Channel,
}

/// `ibv_create_comp_channel`.
pub(crate) unsafe extern "C" fn create_comp_channel(context: *mut Context) -> *mut abi::CompChannel {
    pointer(|| {
        // SAFETY: the caller gives an open context.
        let state = Arc::clone(unsafe { context::state(context) });
        let channel = state.host().create_channel()?;
        let abi = abi::CompChannel { context, fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(Box::into_raw(Box::new(ChannelObject { abi: UnsafeCell::new(abi), state, channel })).cast())
    })
}

/// `ibv_destroy_comp_channel`.
pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut abi::CompChannel) -> c_int {
    status(|| {
        let object = channel.cast::<ChannelObject>();
        // SAFETY: the caller gives a channel that exists. Its count is changed under the lock only.
        let is_used = unsafe {
            let state = &(*object).state;
            let _table = lock(&state.cqs);
            (*channel).refcnt > 0
        };
        if is_used {
            return Err(BUSY);
        }
        // SAFETY: no queue refers to it, and the caller gives it up.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    })
}

/// `ibv_get_cq_event`. Waits unless the descriptor is non-blocking at this moment; a thread may be cancelled while it waits,
/// so nothing here has a destructor by then, and unwinding may pass.
pub(crate) unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut abi::CompChannel,
    cq: *mut *mut abi::Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller gives a channel that exists.
    let object = unsafe { &*channel.cast::<ChannelObject>() };
    loop {
        let number = match object.next() {
            Ok(number) => number,
            Err(refused) => return minus_one(refused),
        };
        // An event of a queue that has ended since is no event.
        if let Some(found) = object.note(number) {
            // SAFETY: the queue cannot end before this event is acknowledged; the caller's two places.
            unsafe {
                cq.write(found);
                cq_context.write((*found).cq_context);
            }
            return 0;
        }
    }
}

/// `ibv_ack_cq_events`.
pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut abi::Cq, count: c_uint) {
    // SAFETY: the caller gives a queue that exists.
    let object = unsafe { CqObject::of(cq) };
    object.comp_acks.ack(count);
}

impl ChannelObject {
    /// The number of the queue that has notified.
    fn next(&self) -> Result<u32, Refused> {
        loop {
            let event = if is_nonblocking(self.channel.as_fd().as_raw_fd()) {
                self.channel.try_event().map(|event| event.ok_or(Refused(libc::EAGAIN)))
            } else {
                self.channel.get_event(None).map(|event| event.ok_or(Refused(libc::EAGAIN)))
            };
            match event {
                Ok(event) => return event,
                Err(EventError::Interrupted) if signals::restart() => {}
                Err(EventError::Interrupted) => return Err(Refused(libc::EINTR)),
                Err(EventError::Host(error)) => return Err(error.into()),
            }
        }
    }

    /// Counts an event as read; its queue, if that still exists.
    fn note(&self, number: u32) -> Option<*mut abi::Cq> {
        let table = lock(&self.state.cqs);
        let found = std::ptr::with_exposed_provenance_mut::<abi::Cq>(*table.get(&number)?);
        // SAFETY: a queue in the table exists while the table is locked.
        unsafe { CqObject::of(found) }.comp_acks.add_read();
        Some(found)
    }
}

/// What a completion queue is made with, if it has a channel.
///
/// # Safety
/// `channel` is null or exists.
pub(crate) unsafe fn comp_channel(channel: *mut abi::CompChannel) -> Option<Arc<CompChannel>> {
    if channel.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let object = unsafe { &*channel.cast::<ChannelObject>() };
    Some(Arc::clone(object.channel.comp_channel()))
}

/// Counts queues on a channel, under the lock of the context's queues.
///
/// # Safety
/// `channel` is null or exists; the lock is held.
pub(crate) unsafe fn count_users(channel: *mut abi::CompChannel, change: c_int) {
    if !channel.is_null() {
        // SAFETY: the caller's promise.
        unsafe { (*channel).refcnt += change };
    }
}

/// Whether a descriptor that programs may change does not wait.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: a plain query.
    unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}
