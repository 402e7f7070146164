//! The life of an open device: commands, the progress thread, the end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use userdma_verbs::Time;

use crate::command::{lock, reply};
use crate::drive::{Core, Role};
use crate::shared::Shared;
use crate::{HostError, progress};

/// Ends the device when the last user has gone.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Owner {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Runs `command` behind the gate and waits for its answer.
    pub(crate) fn command<R: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Core, Time) -> R + Send + 'static,
    ) -> Result<R, HostError> {
        self.shared.check()?;
        let (reply, answer) = reply();
        self.shared.commands.push(Box::new(move |core, now| reply.send(command(core, now))))?;
        let _ = self.shared.ring(Role::Control);
        // Who drives may be posting or polling, and so leave it to us. A note would keep him there.
        let again = || {
            let _ = self.shared.try_enter(Role::Control);
        };
        answer.wait(again).ok_or(HostError::Failed)
    }

    /// Starts the progress thread unless it runs.
    pub(crate) fn start_thread(&self) -> Result<(), HostError> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            *thread = Some(progress::start(&self.shared).map_err(|_| HostError::NoThread)?);
        }
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if self.shared.check() == Err(HostError::Forked) {
            // The thread is the parent's: there is nothing to wait for.
            std::mem::forget(thread);
            return;
        }
        if let Some(lease) = &self.shared.lease {
            // Whoever takes packets for us holds the device while he does: not beyond its end.
            lease.clear_gsi();
        }
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = thread {
            self.shared.thread_bell.ring();
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        // Peers may still wait for acknowledgements.
        if self.shared.check().is_ok() {
            let _ = self.shared.ring(Role::Control);
        }
        // Of a device that has failed it is not known; the slot goes back all the same, with the rest of the device.
        if let Some(lease) = &self.shared.lease
            && let Ok((next, rests)) =
                self.command(|core, _| (core.shard.next_index(), core.shard.guards_qpns()))
        {
            lease.set_end(next, rests);
        }
    }
}
