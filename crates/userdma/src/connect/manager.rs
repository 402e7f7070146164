//! The connection manager of a device, made when it is first needed.

use std::fmt;
use std::sync::{Arc, OnceLock};

use userdma_host::Host;
use userdma_host::cm::{DeviceEntry, Devices, Manager};

/// The connection manager of a device: clones of a device share it.
#[derive(Default)]
pub(crate) struct Connections(OnceLock<Manager>);

impl Connections {
    /// Makes it if it is not there.
    pub(super) fn manager(&self, host: &Host) -> Manager {
        self.0.get_or_init(|| Manager::new(Arc::new(One(Shared(host.clone()))))).clone()
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connections")
    }
}

/// The only device of a manager, open already.
struct One(Shared);

#[derive(Clone)]
struct Shared(Host);

impl AsRef<Host> for Shared {
    fn as_ref(&self) -> &Host {
        &self.0
    }
}

impl Devices for One {
    fn list(&self) -> Vec<DeviceEntry> {
        let host = &self.0.0;
        let addresses: Vec<_> = host.gids().iter().map(|entry| entry.gid.ip()).collect();
        let mut guid = [0; 8];
        if let Some(entry) = host.gids().first() {
            // What two devices differ by; locally administered.
            guid.copy_from_slice(&entry.gid.bytes()[8..]);
            guid[0] |= 2;
        }
        vec![DeviceEntry { name: host.name().to_owned(), guid, addresses }]
    }

    fn open(&self, _place: usize) -> Result<Arc<dyn AsRef<Host> + Send + Sync>, i32> {
        Ok(Arc::new(self.0.clone()))
    }
}
