//! What is looked at in a management datagram to find whose it is: the messages of the communication manager carry the number
//! that the receiver gave to its connection, or, if there is none yet, that of a service.
//!
//! The places of the fields are those of the kernel's `ib_cm.h` attributes as `cm_msgs.h` lays them out.

use userdma_wire::gsi::MAD_LEN;

/// Whose a datagram is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Whose {
    /// A request to whoever listens to the service; the sender gave this number to what may become a connection.
    Service { service_id: u64, theirs: u32 },
    /// A message of a connection, or of what may become one: the numbers that both sides gave it. Ours is 0 if the sender does not
    /// know it.
    Connection { ours: u32, theirs: u32 },
    /// None that is known.
    Other,
}

/// Looks for whose a datagram is.
pub(crate) fn whose(mad: &[u8; MAD_LEN]) -> Whose {
    let [base, class, _, method, ..] = *mad;
    if (base, class, method) != (BASE_VERSION, CLASS_CM, METHOD_SEND) {
        return Whose::Other;
    }
    let (first, second) = (word(mad, BODY), word(mad, BODY + 4));
    match u16::from_be_bytes([mad[ATTRIBUTE], mad[ATTRIBUTE + 1]]) {
        REQ | SIDR_REQ => {
            let service_id = u64::from(word(mad, BODY + 8)) << 32 | u64::from(word(mad, BODY + 12));
            Whose::Service { service_id, theirs: first }
        }
        MRA | REJ | REP | RTU | DREQ | DREP | LAP | APR => Whose::Connection { ours: second, theirs: first },
        SIDR_REP => Whose::Connection { ours: first, theirs: 0 },
        _ => Whose::Other,
    }
}

/// Whether the datagram says that the peer has ended the connection to which we gave the number `ours`.
pub(crate) fn ends(mad: &[u8; MAD_LEN]) -> Option<u32> {
    let is_drep = mad[ATTRIBUTE..ATTRIBUTE + 2] == DREP.to_be_bytes();
    match whose(mad) {
        Whose::Connection { ours, .. } if is_drep => Some(ours),
        Whose::Connection { .. } | Whose::Service { .. } | Whose::Other => None,
    }
}

/// What is said to a sender whose message is nobody's; `None` if nothing is. A request without a listener is rejected, an end is
/// confirmed.
pub(crate) fn answer_unknown(mad: &[u8; MAD_LEN]) -> Option<[u8; MAD_LEN]> {
    let mut answer = [0; MAD_LEN];
    // With the transaction of what is answered.
    answer[..BODY].copy_from_slice(&mad[..BODY]);
    let (attribute, ours, theirs, rest) =
        match (u16::from_be_bytes([mad[ATTRIBUTE], mad[ATTRIBUTE + 1]]), whose(mad)) {
            (REQ, Whose::Service { theirs, .. }) => (REJ, 0, theirs, INVALID_SERVICE_ID),
            (SIDR_REQ, Whose::Service { theirs, .. }) => (SIDR_REP, theirs, SIDR_UNSUPPORTED << 24, 0),
            (DREQ, Whose::Connection { ours, theirs }) => (DREP, ours, theirs, 0),
            (_, Whose::Service { .. } | Whose::Connection { .. } | Whose::Other) => return None,
        };
    answer[ATTRIBUTE..ATTRIBUTE + 2].copy_from_slice(&attribute.to_be_bytes());
    for (word, value) in [ours, theirs, rest].into_iter().enumerate() {
        answer[BODY + 4 * word..][..4].copy_from_slice(&value.to_be_bytes());
    }
    Some(answer)
}

/// The slot of the device that gave this number to a connection.
pub(crate) fn slot_of(comm_id: u32) -> u16 {
    // Ten bits are left.
    (comm_id >> 22) as u16
}

fn word(mad: &[u8; MAD_LEN], at: usize) -> u32 {
    mad[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

const BASE_VERSION: u8 = 1;
/// Communication management.
const CLASS_CM: u8 = 7;
const METHOD_SEND: u8 = 3;
/// Where the number of the attribute stands.
const ATTRIBUTE: usize = 16;
/// Where the message begins, behind the header that all datagrams have.
const BODY: usize = 24;
const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;
const LAP: u16 = 0x19;
const APR: u16 = 0x1a;
/// Why a request is rejected to whose service nobody listens, where it stands in a REJ. As `ib_cm.h IB_CM_REJ_INVALID_SERVICE_ID`.
const INVALID_SERVICE_ID: u32 = 8;
/// The same of a SIDR_REQ. As `ib_cm.h IB_SIDR_UNSUPPORTED`.
const SIDR_UNSUPPORTED: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn mad(attribute: u16, words: &[u32]) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        for (at, word) in words.iter().enumerate() {
            mad[24 + 4 * at..][..4].copy_from_slice(&word.to_be_bytes());
        }
        mad
    }

    #[test]
    fn each_message_tells_whose_it_is() {
        for request in [REQ, SIDR_REQ] {
            // The service id of the kernel's REQ in rxe's capture of rping, port 7174.
            let whose = whose(&mad(request, &[0xa66a_2a14, 0, 0, 0x0106_1c06]));
            assert_eq!(whose, Whose::Service { service_id: 0x0106_1c06, theirs: 0xa66a_2a14 });
        }
        for message in [MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR] {
            assert_eq!(whose(&mad(message, &[1, 2])), Whose::Connection { ours: 2, theirs: 1 });
        }
        assert_eq!(whose(&mad(SIDR_REP, &[1, 2])), Whose::Connection { ours: 1, theirs: 0 });
        assert_eq!((ends(&mad(DREP, &[1, 2])), ends(&mad(DREQ, &[1, 2]))), (Some(2), None));
        assert_eq!(slot_of(5 << 22 | 77), 5);
    }

    /// As the kernel rejects a request to a closed port (rxe's capture `cm_reject`).
    #[test]
    fn what_is_nobodys_is_rejected_or_confirmed_and_the_rest_is_not_answered() {
        let answer = |attribute, words: &[u32]| answer_unknown(&mad(attribute, words));
        assert_eq!(answer(REQ, &[0xa26a_2a14, 0, 0, 7]), Some(mad(REJ, &[0, 0xa26a_2a14, 8])));
        assert_eq!(answer(SIDR_REQ, &[5, 0, 0, 7]), Some(mad(SIDR_REP, &[5, 1 << 24])));
        assert_eq!(answer(DREQ, &[5, 6]), Some(mad(DREP, &[6, 5])));
        for other in [MRA, REJ, REP, RTU, DREP, LAP, APR, SIDR_REP, 0, 0x1b, 0xffff] {
            assert_eq!(answer(other, &[5, 6]), None, "{other:#x}");
        }
    }

    #[test]
    fn other_classes_methods_and_attributes_are_nobodys() {
        for (at, value) in [(0, 2), (1, 1), (3, 1), (3, 0x83), (17, 0), (17, 0x0f), (17, 0x1b), (16, 1)] {
            let mut mad = mad(REQ, &[1, 2, 3, 4]);
            mad[at] = value;
            assert_eq!(whose(&mad), Whose::Other, "byte {at}: {value:#x}");
        }
    }
}
