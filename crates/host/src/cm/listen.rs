//! Listening: the agent is asked to pass requests on, without the lock.

use std::io;
use std::sync::Arc;
use std::thread::Builder;

use userdma_mgmt::cm::PortId;
use userdma_mgmt::rdma::{CmError, CmId, Listening};

use super::errand::Handle;
use super::machine::refused;
use super::state::{STACK_BYTES, Shared, State};
use crate::spawn_thread;

impl Shared {
    /// Listens. Requests that come before the last device has its answer are taken.
    pub(super) fn listen(&self, id: CmId) -> Result<(), CmError> {
        let wanted = self.run(|state| {
            state.machine.refresh(state.now);
            state.ids.listen(&mut state.machine, id)
        })?;
        wanted.ports.iter().try_for_each(|&port| {
            self.ask(id, port, &wanted, |state| state.ids.give_up_listening(&mut state.machine, id))
        })
    }

    /// Whoever listens on all devices listens on those that have appeared, too. To ask the agent for it takes its time, so a thread
    /// does it.
    pub(super) fn listen_on_new(self: &Arc<Self>, new: Vec<(CmId, PortId)>) {
        if new.is_empty() {
            return;
        }
        let shared = Arc::clone(self);
        let builder = Builder::new().name("userdma-cm-new".into()).stack_size(STACK_BYTES);
        let listen = move || {
            for (id, port) in new {
                if let Err(error) = shared.listen_also(id, port) {
                    tracing::debug!(%error, "nobody listens on a new device");
                }
            }
        };
        if let Err(error) = spawn_thread(builder, listen) {
            tracing::warn!(%error, "no thread to listen on new devices");
        }
    }

    fn listen_also(&self, id: CmId, port: PortId) -> Result<(), CmError> {
        match self.run(|state| state.ids.listen_also(&mut state.machine, id, port))? {
            Some(wanted) => self.ask(id, port, &wanted, |state| {
                state.ids.give_up_listening_also(&mut state.machine, id, port);
            }),
            None => Ok(()),
        }
    }

    /// Asks the agent for one device's sake. `give_up` runs under the lock if it refuses.
    fn ask(
        &self,
        id: CmId,
        port: PortId,
        wanted: &Listening,
        give_up: impl FnOnce(&mut State),
    ) -> Result<(), CmError> {
        let handle = self.enter(|state| state.machine.handle(port));
        let asked = handle.and_then(|handle| listen_on(&handle, wanted).map(|()| handle));
        self.enter(|state| match asked {
            Ok(_) if state.ids.note_listening(id, port) => Ok(()),
            Ok(handle) => {
                // It was destroyed meanwhile.
                (*handle).as_ref().unlisten(wanted.service_id, u64::MAX, wanted.on);
                Err(CmError::NoId)
            }
            Err(error) => {
                give_up(state);
                Err(error)
            }
        })
    }
}

fn listen_on(handle: &Handle, wanted: &Listening) -> Result<(), CmError> {
    // The low sixteen bits are the port.
    let refused = |error: io::Error| refused((wanted.service_id & 0xffff) as u16, &error);
    (**handle).as_ref().listen(wanted.service_id, u64::MAX, wanted.on).map_err(refused)
}
