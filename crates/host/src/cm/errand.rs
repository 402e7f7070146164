//! What a call asks that may take its time: devices to open, and ports, which the agent gives out. The lock is free meanwhile.
//!
//! A call that needs such a thing asks for it and gives up, with nothing changed. The thing is done without the lock; then the call
//! runs again from its beginning, and finds it done, until it asks for nothing more. Other calls may come in between: what the last
//! run has no use for goes back.

use std::sync::Arc;

use userdma_mgmt::cm::PortId;
use userdma_mgmt::rdma::{CmError, PortRequest, Reservation};

use super::Devices;
use super::machine::{open_error, refused};
use crate::Host;

/// An open device, kept open by whoever has this.
pub(super) type Handle = Arc<dyn AsRef<Host> + Send + Sync>;

/// What is to be done without the lock.
pub(super) enum Errand {
    /// To open a device, and have the agent pass packets on to it.
    Open { port: PortId, devices: Arc<dyn Devices> },
    /// To reserve a port of an open device.
    Reserve { port: PortId, host: Handle, request: PortRequest },
    /// To make sure that a port is listened on by one only.
    BeginListening { port: PortId, host: Handle, reservation: u32 },
}

/// The errands of one call: those that are done, and the one that it asks for.
#[derive(Default)]
pub(super) struct Errands {
    opened: Vec<(PortId, Result<Handle, CmError>)>,
    reserved: Vec<Reserved>,
    /// What this run of the call was given. It comes back if the run gives up.
    given: Vec<Reserved>,
    listening: Vec<(PortId, u32, Result<(), CmError>)>,
    wanted: Option<Errand>,
}

/// A port that was asked for.
struct Reserved {
    port: PortId,
    host: Handle,
    request: PortRequest,
    result: Result<Reservation, CmError>,
}

impl Errands {
    /// Whether the run gives up, so that all else is for the next.
    pub(super) fn is_over(&self) -> bool {
        self.wanted.is_some()
    }

    /// What the run asks for, if it gave up; what it was given is its own now, unless it came back.
    pub(super) fn next(&mut self) -> Option<Errand> {
        self.given.clear();
        self.wanted.take()
    }

    /// The run gives up for this.
    pub(super) fn want(&mut self, errand: Errand) -> CmError {
        self.wanted.get_or_insert(errand);
        GIVES_UP
    }

    /// The device, if it was opened for this call.
    pub(super) fn opened(&mut self, port: PortId) -> Option<Result<Handle, CmError>> {
        if self.is_over() {
            return Some(Err(GIVES_UP));
        }
        let at = self.opened.iter().position(|(own, _)| *own == port)?;
        match &self.opened[at].1 {
            // A failure stays one for this call.
            Err(error) => Some(Err(*error)),
            Ok(_) => Some(self.opened.swap_remove(at).1),
        }
    }

    /// The port, if it was asked for.
    pub(super) fn reserved(
        &mut self,
        port: PortId,
        request: &PortRequest,
    ) -> Option<Result<Reservation, CmError>> {
        if self.is_over() {
            return Some(Err(GIVES_UP));
        }
        let at = self.reserved.iter().position(|own| own.port == port && own.request == *request)?;
        let result = self.reserved[at].result;
        if result.is_ok() {
            self.given.push(self.reserved.swap_remove(at));
        }
        Some(result)
    }

    /// A run that gives up gives a port back; whether it is one that the next is to find.
    pub(super) fn take_back(&mut self, port: PortId, reservation: u32) -> bool {
        let is_it =
            |own: &Reserved| own.port == port && own.result.is_ok_and(|reserved| reserved.id == reservation);
        let at = self.given.iter().position(is_it).filter(|_| self.is_over());
        self.reserved.extend(at.map(|at| self.given.swap_remove(at)));
        at.is_some()
    }

    /// Whether somebody else has the port, if that was asked.
    pub(super) fn listening(&self, port: PortId, reservation: u32) -> Option<Result<(), CmError>> {
        if self.is_over() {
            return Some(Err(GIVES_UP));
        }
        let asked = self.listening.iter().find(|own| (own.0, own.1) == (port, reservation));
        asked.map(|own| own.2)
    }

    /// Does an errand. Nobody's lock is held.
    pub(super) fn run(&mut self, errand: Errand) {
        match errand {
            Errand::Open { port, devices } => self.opened.push((port, open(port, &*devices))),
            Errand::Reserve { port, host, request } => {
                let reserved = (*host).as_ref().reserve_port(&request);
                let result = reserved.map_err(|error| refused(request.port, &error));
                self.reserved.push(Reserved { port, host, request, result });
            }
            Errand::BeginListening { port, host, reservation } => {
                let asked = (*host).as_ref().begin_listening(reservation);
                self.listening.push((port, reservation, asked.map_err(|error| refused(0, &error))));
            }
        }
    }
}

/// What the call had no use for goes back.
impl Drop for Errands {
    fn drop(&mut self) {
        for Reserved { host, result, .. } in &self.reserved {
            if let Ok(reservation) = result {
                (**host).as_ref().release_port(reservation.id);
            }
        }
    }
}

fn open(port: PortId, devices: &dyn Devices) -> Result<Handle, CmError> {
    let handle = devices.open(port.0 as usize).map_err(|errno| open_error(port, errno))?;
    (*handle).as_ref().attach_management().map_err(|error| {
        tracing::error!(%error, "device {}: no connections", port.0);
        open_error(port, libc::ENODEV)
    })?;
    Ok(handle)
}

/// What a run says that gives up. Nobody sees it but who runs it again.
const GIVES_UP: CmError = CmError::System(libc::EAGAIN);
