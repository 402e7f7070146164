//! Refusing without keeping anything: what is wrong with a REQ, and the REJ to a message that nobody has.

use userdma_verbs::{Gid, Mtu};
use userdma_wire::mad::cm::{Rej, RejectReason, RejectedMessage, Req, TransportService};
use userdma_wire::mad::{Data, Header, MAD_LEN};

use super::types::Peer;

/// A REJ whose ids are those of the message, whose first fields they are, exchanged. As `cm.c cm_issue_rej()`.
pub(super) fn refusal(
    mad: &[u8],
    transaction_id: u64,
    message: RejectedMessage,
    reason: RejectReason,
    info: &[u8],
) -> [u8; MAD_LEN] {
    let id = |at: usize| {
        let bytes = mad.get(Header::LEN + at..).and_then(|rest| rest.first_chunk()).copied();
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    let rej = Rej {
        // A REQ has other things where others have the receiver's id.
        local_comm_id: if message == RejectedMessage::Req { 0 } else { id(4) },
        remote_comm_id: id(0),
        message,
        // At most 72.
        info_len: u8::try_from(info.len()).unwrap_or(0),
        reason,
        info: Data::new(info).unwrap_or_default(),
        private_data: Data::EMPTY,
    };
    rej.build(transaction_id)
}

/// What is wrong with a REQ itself: the reason to refuse it, and what would do instead.
pub(super) fn check_req(peer: &Peer, req: &Req) -> Result<(), (RejectReason, Vec<u8>)> {
    let is_known = matches!(req.transport_service_type, TransportService::Rc | TransportService::Uc);
    let path = &req.primary;
    let (local, remote) = (path.remote_gid.ip(), path.local_gid.ip());
    if !is_known {
        Err((RejectReason::InvalidTransportType, Vec::new()))
    } else if local != peer.local || remote != peer.remote {
        // Nobody connects another: the queue pairs are those of the two that talk.
        Err((RejectReason::InvalidGid, Gid::from(peer.local).bytes().to_vec()))
    } else if Mtu::from_code(req.path_mtu.into()).is_none() {
        Err((RejectReason::InvalidPathMtu, vec![Mtu::Mtu4096 as u8]))
    } else {
        Ok(())
    }
}
