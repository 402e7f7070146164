//! Address handles: where datagrams go.

use std::sync::Arc;

use userdma_host::AhId;
use userdma_verbs::{AhAttr, Gid, GlobalRoute, QKey, Qpn};
use userdma_wire::NetworkHeader;

use crate::{Error, Pd};

/// An address handle: the way to a peer's GID, for datagrams of its protection domain. Clones are the same handle.
///
/// A datagram that was posted with it is sent, whether the handle still exists or not.
#[derive(Clone, Debug)]
pub struct Ah {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pd: Pd,
    id: AhId,
    ah: userdma_objects::Ah,
}

/// Whom a datagram is for: a queue pair at the end of a way. It drops what does not come with its key.
#[derive(Clone, Copy, Debug)]
pub struct UdDest<'a> {
    /// The way.
    pub ah: &'a Ah,
    /// The queue pair.
    pub qpn: Qpn,
    /// Its key. With the top bit set the sender's own key is sent instead.
    pub qkey: QKey,
}

impl Ah {
    pub(crate) fn create(pd: &Pd, attr: &AhAttr) -> Result<Self, Error> {
        let (attr, pd_id) = (*attr, pd.id());
        let (id, ah) = pd.host().control(move |shard, _| shard.create_ah(pd_id, &attr))??;
        Ok(Self { inner: Arc::new(Inner { pd: pd.clone(), id, ah }) })
    }

    pub(crate) fn create_back(pd: &Pd, header: &[u8; Self::GRH_LEN]) -> Result<Self, Error> {
        let came = NetworkHeader::read(header).map_err(|_| Error::NoSource)?;
        let here = Gid::from(came.dst);
        let index = pd.host().gids().iter().position(|entry| entry.gid == here);
        let grh = GlobalRoute {
            dgid: Gid::from(came.src),
            flow_label: came.flow_label,
            sgid_index: index.and_then(|index| u8::try_from(index).ok()).ok_or(Error::NoSource)?,
            hop_limit: came.hop_limit,
            traffic_class: came.traffic_class,
        };
        Self::create(pd, &AhAttr { grh, ..AhAttr::to(grh.dgid) })
    }

    /// Bytes that a received datagram has before its payload: where it came from, for [`Pd::create_ah_back`].
    pub const GRH_LEN: usize = NetworkHeader::LEN;

    /// The longest datagram that can be sent this way, bytes.
    pub fn max_len(&self) -> u32 {
        self.inner.ah.mtu.bytes()
    }

    pub(crate) fn pd(&self) -> &Pd {
        &self.inner.pd
    }
}

impl UdDest<'_> {
    pub(crate) fn addr(&self) -> userdma_objects::UdAddr {
        userdma_objects::UdAddr { ah: self.ah.inner.ah, remote_qpn: self.qpn, remote_qkey: self.qkey }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let id = self.id;
        // A device that is not usable needs no tidying.
        let _ = self.pd.host().control(move |shard, _| shard.destroy_ah(id));
    }
}
