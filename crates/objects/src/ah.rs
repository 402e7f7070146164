//! Address handles, and whom a datagram is for.

use userdma_mem::Route;
use userdma_verbs::{Mtu, QKey, Qpn};

use crate::PdId;

/// A resolved address vector: where datagrams go.
///
/// A copy of it travels with each request that is posted, so that the handle may end as soon as the post has returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ah {
    /// Its protection domain: a queue pair of another one refuses it.
    pub pd: PdId,
    /// The way there.
    pub route: Route,
    /// The longest message that the port sends that way.
    pub mtu: Mtu,
}

/// Whom a datagram is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UdAddr {
    /// The way there.
    pub ah: Ah,
    /// The queue pair there.
    pub remote_qpn: Qpn,
    /// That queue pair's key; with its top bit set, the sender's own key is sent instead.
    pub remote_qkey: QKey,
}
