//! What a side wants of a connection.

use userdma_host::cm::ConnParam;
use userdma_verbs::Qpn;

use crate::{RtrAttr, RtsAttr};

/// What a side wants of a connection, and says to the other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConnAttr {
    /// Attributes of the queue pair. `max_dest_rd_atomic` is what this side offers; the connection has at most as much as the
    /// other side asks for. `path_mtu` is an upper limit. `hop_limit` and `flow_label` are the path's.
    pub rtr: RtrAttr,
    /// Attributes of the queue pair. `max_rd_atomic` is what this side asks for; the connection has at most as much as the
    /// other side offers. `retry_cnt` and `rnr_retry` of the side that connects hold for both.
    pub rts: RtsAttr,
    /// What the other side's program finds in its request or connection: at most 56 bytes of the side that connects, 196 of the
    /// one that accepts. It arrives with zeros behind it, up to these sizes.
    pub private_data: Vec<u8>,
}

/// READs and atomics of a connection: what both sides have agreed about.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Depths {
    /// That the other side may have outstanding here.
    pub responder_resources: u8,
    /// That this side may have outstanding.
    pub initiator_depth: u8,
}

impl ConnAttr {
    /// With these bytes for the other side's program.
    pub fn saying(private_data: impl Into<Vec<u8>>) -> Self {
        Self { private_data: private_data.into(), ..Self::default() }
    }

    /// What a side that connects asks for.
    pub(super) fn request(&self, qpn: Qpn) -> ConnParam {
        ConnParam {
            qpn,
            responder_resources: self.rtr.max_dest_rd_atomic,
            initiator_depth: self.rts.max_rd_atomic,
            flow_control: true,
            retry_count: self.rts.retry_cnt,
            rnr_retry_count: self.rts.rnr_retry,
            private_data: self.private_data.clone(),
            ..ConnParam::default()
        }
    }

    /// What a side says to a request that asks for `theirs`.
    pub(super) fn answer(&self, qpn: Qpn, theirs: Depths) -> ConnParam {
        let mine = self.request(qpn);
        ConnParam {
            responder_resources: mine.responder_resources.min(theirs.responder_resources),
            initiator_depth: mine.initiator_depth.min(theirs.initiator_depth),
            ..mine
        }
    }
}

impl Depths {
    pub(super) fn of(param: &ConnParam) -> Self {
        Self { responder_resources: param.responder_resources, initiator_depth: param.initiator_depth }
    }
}
