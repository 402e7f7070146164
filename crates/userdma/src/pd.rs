//! Protection domains: which queue pairs may touch which memory.

use userdma_verbs::AccessFlags;

use crate::{Cq, Error, Mr, Mw, QpBuilder};

/// A protection domain. Clones are the same domain.
#[derive(Clone, Debug)]
pub struct Pd {}

impl Pd {
    /// Registers `len` bytes of new memory, all zero.
    pub fn alloc(&self, len: usize, access: AccessFlags) -> Result<Mr, Error> {
        let _ = (len, access);
        todo!()
    }

    /// Registers a vector's memory: [`Mr::into_vec`] gives it back.
    pub fn register(&self, vec: Vec<u8>, access: AccessFlags) -> Result<Mr, Error> {
        let _ = (vec, access);
        todo!()
    }

    /// A new type 2 memory window, to be bound by [`Qp::post_bind_mw`](crate::Qp::post_bind_mw).
    pub fn alloc_mw(&self) -> Result<Mw, Error> {
        todo!()
    }

    /// A reliable connection to be made, with its completion queues.
    pub fn create_qp(&self, send_cq: &Cq, recv_cq: &Cq) -> QpBuilder {
        let _ = (send_cq, recv_cq);
        todo!()
    }
}
