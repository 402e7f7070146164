//! Asynchronous events.

use std::ffi::c_int;
use std::sync::Arc;

use userdma_host::{HostError, call};
use userdma_verbs::{AsyncEvent, Qpn, Srqn};

use crate::abi::{self, Context};
use crate::answer::{Refused, minus_one};
use crate::channel::is_nonblocking;
use crate::context::{self, ContextState};
use crate::cq::CqObject;
use crate::devices::lock;
use crate::qp::QpObject;
use crate::signals;
use crate::srq::SrqObject;

/// `ibv_get_async_event`. Waits unless the descriptor is non-blocking at this moment; a thread may be cancelled while it
/// waits, as in `ibv_get_cq_event`.
pub(crate) unsafe extern "C-unwind" fn get_async_event(
    context: *mut Context,
    event: *mut abi::AsyncEvent,
) -> c_int {
    // SAFETY: the caller gives an open context.
    let (state, fd) = unsafe { (context::state(context), (*context).async_fd) };
    loop {
        let before = call::begin();
        // SAFETY: the caller's place for the event.
        let answer = unsafe { try_event(state, fd, event) };
        call::end(before);
        if let Some(answer) = answer {
            return answer;
        }
        let mut fds = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call. The descriptor is the context's.
        if unsafe { libc::poll(&raw mut fds, 1, -1) } < 0 && !signals::restart() {
            return minus_one(Refused(libc::EINTR));
        }
    }
}

/// What the call answers if it does not wait.
///
/// # Safety
/// There is room for an event at `event`.
unsafe fn try_event(state: &Arc<ContextState>, fd: c_int, event: *mut abi::AsyncEvent) -> Option<c_int> {
    if let Err(error) = state.host().check()
        && error == HostError::Forked
    {
        return Some(minus_one(error.into()));
    }
    if let Some(found) = next(state) {
        // SAFETY: the caller's promise.
        unsafe { event.write(found) };
        return Some(0);
    }
    is_nonblocking(fd).then(|| minus_one(Refused(libc::EAGAIN)))
}

/// `ibv_ack_async_event`.
pub(crate) unsafe extern "C" fn ack_async_event(event: *mut abi::AsyncEvent) {
    // SAFETY: the caller gives an event that it has read; its object cannot end before this call.
    unsafe {
        let element = (*event).element;
        match (*event).event_type {
            CQ_ERR => CqObject::of(std::ptr::with_exposed_provenance_mut(element)).async_acks.ack(1),
            SRQ_LIMIT_REACHED => {
                SrqObject::of(std::ptr::with_exposed_provenance_mut(element)).async_acks.ack(1);
            }
            QP_FATAL..=SQ_DRAINED | QP_LAST_WQE_REACHED => {
                QpObject::of(std::ptr::with_exposed_provenance_mut(element)).async_acks.ack(1);
            }
            _ => {}
        }
    }
}

/// The oldest event that concerns this context.
fn next(state: &Arc<ContextState>) -> Option<abi::AsyncEvent> {
    std::iter::from_fn(|| state.events.take()).find_map(|event| of_context(state, event))
}

/// An event as C has it, counted as read; `None` if it concerns an object of another context, or one that has ended.
fn of_context(state: &ContextState, event: AsyncEvent) -> Option<abi::AsyncEvent> {
    let (element, event_type) = match event {
        AsyncEvent::CqError { cq } => (cq_element(state, cq)?, CQ_ERR),
        AsyncEvent::QpFatal { qpn } => (qp_element(state, qpn)?, QP_FATAL),
        AsyncEvent::QpRequestError { qpn } => (qp_element(state, qpn)?, 2),
        AsyncEvent::QpAccessError { qpn } => (qp_element(state, qpn)?, 3),
        AsyncEvent::CommunicationEstablished { qpn } => (qp_element(state, qpn)?, 4),
        AsyncEvent::SqDrained { qpn } => (qp_element(state, qpn)?, SQ_DRAINED),
        AsyncEvent::QpLastWqeReached { qpn } => (qp_element(state, qpn)?, QP_LAST_WQE_REACHED),
        AsyncEvent::SrqLimitReached { srqn } => (srq_element(state, srqn)?, SRQ_LIMIT_REACHED),
        AsyncEvent::DeviceFatal => (0, 8),
        AsyncEvent::PortActive => (PORT, 9),
        AsyncEvent::PortError => (PORT, 10),
        AsyncEvent::GidChange => (PORT, 18),
        // Kinds that come later are not told before they have a number here.
        _ => return None,
    };
    Some(abi::AsyncEvent { element, event_type })
}

fn cq_element(state: &ContextState, number: u32) -> Option<usize> {
    let table = lock(&state.cqs);
    let element = *table.get(&number)?;
    // SAFETY: a queue in the table exists while the table is locked.
    unsafe { CqObject::of(std::ptr::with_exposed_provenance_mut(element)) }.async_acks.add_read();
    Some(element)
}

fn qp_element(state: &ContextState, qpn: Qpn) -> Option<usize> {
    let table = lock(&state.qps);
    let element = *table.get(&qpn.get())?;
    // SAFETY: a queue pair in the table exists while the table is locked.
    unsafe { QpObject::of(std::ptr::with_exposed_provenance_mut(element)) }.async_acks.add_read();
    Some(element)
}

fn srq_element(state: &ContextState, srqn: Srqn) -> Option<usize> {
    let table = lock(&state.srqs);
    let element = *table.get(&srqn.get())?;
    // SAFETY: a queue in the table exists while the table is locked.
    unsafe { SrqObject::of(std::ptr::with_exposed_provenance_mut(element)) }.async_acks.add_read();
    Some(element)
}

/// The only port.
const PORT: usize = 1;
/// Values of `enum ibv_event_type`.
const CQ_ERR: c_int = 0;
const QP_FATAL: c_int = 1;
const SQ_DRAINED: c_int = 5;
const SRQ_LIMIT_REACHED: c_int = 15;
const QP_LAST_WQE_REACHED: c_int = 16;
