//! Memory windows, type 2.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use userdma_verbs::RKey;

use crate::mr::Inner as MrInner;
use crate::{Error, Pd};

/// A type 2 memory window: rights to a part of a region that can be given and withdrawn by work requests.
///
/// It starts unbound; [`Qp::post_bind_mw`](crate::Qp::post_bind_mw) or [`AsyncQp::bind_mw`](crate::AsyncQp::bind_mw) binds
/// it, and binds it again only after it has been invalidated, by [`Qp::post_local_inv`](crate::Qp::post_local_inv) or
/// [`AsyncQp::local_inv`](crate::AsyncQp::local_inv), or by the peer.
#[derive(Debug)]
pub struct Mw {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pd: Pd,
    state: Mutex<State>,
}

/// What is known here of the window; binds and invalidations on their way are not.
#[derive(Debug)]
pub(crate) struct State {
    /// The key of the last bind that was posted.
    pub(crate) rkey: RKey,
    /// What it was bound to then: stays registered as long as the window may be bound.
    pub(crate) bound: Option<Arc<MrInner>>,
}

impl Mw {
    pub(crate) fn alloc(pd: &Pd) -> Result<Self, Error> {
        let id = pd.id();
        let rkey = pd.host().control(move |shard, _| shard.alloc_mw(id))??;
        let state = Mutex::new(State { rkey, bound: None });
        Ok(Self { inner: Arc::new(Inner { pd: pd.clone(), state }) })
    }

    /// The key that the last posted bind gave it.
    pub fn rkey(&self) -> RKey {
        self.inner.lock().rkey
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves it as it was before a bind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let rkey = self.lock().rkey;
        // A bind that failed has left an older key: it differs in the low byte. A device that is not usable needs no
        // tidying.
        let _ = self.pd.host().control(move |shard, _| {
            let variants =
                (0..=u8::MAX).map(|step| rkey.with_variant(rkey.get().to_le_bytes()[0].wrapping_sub(step)));
            variants.into_iter().any(|key| shard.dealloc_mw(key).is_ok())
        });
    }
}
