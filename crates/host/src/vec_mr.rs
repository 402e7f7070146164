//! Registration of a `Vec`: the vector is taken apart while devices and peers may reach its bytes, and put together
//! again when they no longer can.

use std::mem::ManuallyDrop;

use userdma_mem::Region;
use userdma_objects::{MrKeys, PdId};
use userdma_verbs::{AccessFlags, ObjectError, RegMrError};

use crate::{Host, HostError};

/// A registered vector. Dropped, it is deregistered and freed.
#[derive(Debug)]
pub struct VecMr {
    host: Host,
    keys: MrKeys,
    region: Region,
    /// `None` once the vector has been given back.
    parts: Option<Parts>,
}

/// A vector taken apart. Nothing refers to its bytes but a region.
#[derive(Debug)]
struct Parts {
    addr: usize,
    len: usize,
    capacity: usize,
}

impl VecMr {
    /// Registers `vec`; gives it back if that fails.
    ///
    /// # Errors
    /// The outer: the device is not usable (and the vector is gone). The inner: the registration was refused.
    pub fn register(
        host: &Host,
        pd: PdId,
        vec: Vec<u8>,
        access: AccessFlags,
    ) -> Result<Result<Self, (Vec<u8>, RegMrError)>, HostError> {
        let parts = Parts::of(vec);
        let region = parts.region();
        // The device counts from 0 instead if the region is zero based.
        match host.reg_mr(pd, region.clone(), region.addr(), access) {
            Ok(Ok(keys)) => Ok(Ok(Self { host: host.clone(), keys, region, parts: Some(parts) })),
            Ok(Err(error)) => {
                drop(region);
                Ok(Err((parts.into_vec(), error)))
            }
            Err(error) => {
                // The device may have stopped in the middle of it: leave the bytes to it.
                Err(error)
            }
        }
    }

    /// Its keys.
    pub fn keys(&self) -> MrKeys {
        self.keys
    }

    /// Its memory, for copies. Clones of the region must not outlive the registration.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Ends the registration and gives the vector back.
    ///
    /// # Errors
    /// Memory windows are bound to it; it stays registered.
    pub fn deregister(mut self) -> Result<Vec<u8>, (Self, ObjectError)> {
        match self.end() {
            Ok(Some(parts)) => Ok(parts.into_vec()),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err((self, error)),
        }
    }

    /// Ends the registration: afterwards nobody reaches the bytes.
    fn end(&mut self) -> Result<Option<Parts>, ObjectError> {
        let lkey = self.keys.lkey;
        match self.host.control(move |shard, _| shard.dereg_mr(lkey).map(drop)) {
            Ok(Ok(())) => Ok(self.parts.take()),
            Ok(Err(error)) => Err(error),
            // A child's copy of the bytes is its own, and nobody drives the child's copy of the device; a device that
            // has stopped is never driven again.
            Err(HostError::Forked | HostError::Failed | HostError::NoThread) => Ok(self.parts.take()),
        }
    }
}

impl Drop for VecMr {
    fn drop(&mut self) {
        if self.parts.is_some() {
            // Refused while windows are bound: then peers may reach the bytes, and they stay allocated.
            if let Ok(Some(parts)) = self.end() {
                drop(parts.into_vec());
            }
        }
    }
}

impl Parts {
    fn of(vec: Vec<u8>) -> Self {
        let mut vec = ManuallyDrop::new(vec);
        Self { addr: vec.as_mut_ptr().expose_provenance(), len: vec.len(), capacity: vec.capacity() }
    }

    #[allow(unsafe_code)]
    fn region(&self) -> Region {
        // SAFETY: no reference to the bytes exists from here until `into_vec`, because the vector has been taken
        // apart; and they stay allocated as long. `VecMr` calls `into_vec` only when the device has given up its
        // clone of the region, or never uses it again.
        unsafe { Region::from_raw(std::ptr::with_exposed_provenance_mut(self.addr), self.len) }
    }

    #[allow(unsafe_code)]
    fn into_vec(self) -> Vec<u8> {
        // SAFETY: address, length and capacity are those of a vector of bytes that was not freed: `of` took it apart,
        // and `self` is consumed. Its bytes are initialised: they were, and devices only store bytes.
        unsafe {
            Vec::from_raw_parts(std::ptr::with_exposed_provenance_mut(self.addr), self.len, self.capacity)
        }
    }
}
