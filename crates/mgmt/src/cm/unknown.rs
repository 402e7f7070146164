//! Answers to what nobody here knows anything about.

use userdma_wire::mad::cm::{
    self, Apr, AprStatus, Drep, Message, RejectReason, RejectedMessage, SidrRep, SidrStatus,
};
use userdma_wire::mad::{ClassPortInfo, Header, MAD_LEN};

use super::refuse::refusal;

/// The answer to a datagram that belongs to no listener and no connection, to be sent back to its sender; `None` if
/// there is nothing to be said. No answer is ever answered, so nothing goes round in circles.
///
/// A REQ is refused (no such service), a SIDR_REQ, too; a REP, an RTU and a LAP are told that their connection is not
/// known, a DREQ gets its DREP, and who asks what the class can do is told.
pub fn answer_unknown(mad: &[u8]) -> Option<[u8; MAD_LEN]> {
    let Ok((transaction_id, message)) = Message::parse(mad) else { return answer_question(mad) };
    let reject = |message, reason| Some(refusal(mad, transaction_id, message, reason, &[]));
    match message {
        Message::Req(_) => reject(RejectedMessage::Req, RejectReason::InvalidServiceId),
        Message::Rep(_) => reject(RejectedMessage::Rep, RejectReason::InvalidCommId),
        Message::Rtu(_) => reject(RejectedMessage::Other, RejectReason::InvalidCommId),
        Message::Dreq(dreq) => {
            let drep = Drep {
                local_comm_id: dreq.remote_comm_id,
                remote_comm_id: dreq.local_comm_id,
                ..Drep::default()
            };
            Some(drep.build(transaction_id))
        }
        Message::Lap(lap) => {
            let apr = Apr {
                local_comm_id: lap.remote_comm_id,
                remote_comm_id: lap.local_comm_id,
                status: AprStatus::InvalidCommId,
                ..Apr::default()
            };
            Some(apr.build(transaction_id))
        }
        Message::SidrReq(req) => {
            let rep = SidrRep {
                request_id: req.request_id,
                status: SidrStatus::Unsupported,
                service_id: req.service_id,
                ..SidrRep::default()
            };
            Some(rep.build(transaction_id))
        }
        Message::Mra(_) | Message::Rej(_) | Message::Drep(_) | Message::SidrRep(_) | Message::Apr(_) => None,
    }
}

/// Who reads or sets an attribute is told: of this class what it is here, of all else that it is not known. As
/// `mad.c generate_unmatched_resp()`.
fn answer_question(mad: &[u8]) -> Option<[u8; MAD_LEN]> {
    let header = Header::parse(mad).ok()?;
    let is_question = matches!(header.method, Header::METHOD_GET | Header::METHOD_SET);
    if !is_question || SUBNET_CLASSES.contains(&header.class) {
        return None;
    }
    let header = Header { method: Header::METHOD_GET_RESP, status: 0, ..header };
    if header.class == cm::CLASS
        && ClassPortInfo::parse(mad).is_ok_and(|(asked, _)| asked.method == Header::METHOD_GET)
    {
        return Some(class_port_info().build(&Header { class_version: cm::CLASS_VERSION, ..header }));
    }
    let mut answer = *mad.first_chunk()?;
    Header { status: Header::STATUS_UNSUPPORTED_METHOD_ATTRIBUTE, ..header }.write(&mut answer);
    Some(answer)
}

/// No traps, no redirection, an answer within 4.3 s.
fn class_port_info() -> ClassPortInfo {
    ClassPortInfo {
        base_version: Header::BASE_VERSION,
        class_version: cm::CLASS_VERSION,
        capability_mask2_response_time: 20,
        ..ClassPortInfo::default()
    }
}

/// Subnet management, which is for queue pair 0.
const SUBNET_CLASSES: [u8; 2] = [0x01, 0x81];
