//! Registration of a `Vec`: the vector is taken apart while devices and peers may reach its bytes, and put together
//! again when they no longer can.

use userdma_mem::Region;
use userdma_nic::Shard;
use userdma_objects::{MrKeys, PdId};
use userdma_verbs::{AccessFlags, ObjectError, RegMrError};

use crate::{Host, HostError};

/// A registered vector.
#[derive(Debug)]
pub struct VecMr {}

impl VecMr {
    /// Registers `vec`; gives it back if that fails.
    pub fn register(
        host: &Host,
        pd: PdId,
        vec: Vec<u8>,
        access: AccessFlags,
    ) -> Result<Result<Self, (Vec<u8>, RegMrError)>, HostError> {
        let _ = (host, pd, vec, access, std::marker::PhantomData::<Shard>);
        todo!()
    }

    /// Its keys.
    pub fn keys(&self) -> MrKeys {
        todo!()
    }

    /// Its memory.
    pub fn region(&self) -> &Region {
        todo!()
    }

    /// Ends the registration and gives the vector back.
    pub fn deregister(self) -> Result<Vec<u8>, (Self, ObjectError)> {
        todo!()
    }
}
