//! What is looked at in a management datagram to find whose it is: the messages of the communication manager carry the number
//! that the receiver gave to its connection, or, if there is none yet, that of a service.

use userdma_wire::mad::MAD_LEN;
use userdma_wire::mad::cm::Message;

/// Whose a datagram is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Whose {
    /// A request to whoever listens to the service; the sender gave this number to what may become a connection.
    Service { service_id: u64, theirs: u32 },
    /// A message of a connection, or of what may become one: the numbers that both sides gave it. Ours is 0 if the sender does not
    /// know it.
    Connection { ours: u32, theirs: u32 },
    /// The peer knows that the connection with our number has ended.
    Ended { ours: u32, theirs: u32 },
    /// None that is known.
    Other,
}

/// Looks for whose a datagram is.
pub(crate) fn whose(mad: &[u8; MAD_LEN]) -> Whose {
    let Ok((_, message)) = Message::parse(mad) else { return Whose::Other };
    let connection = |ours, theirs| Whose::Connection { ours, theirs };
    match message {
        Message::Req(req) => Whose::Service { service_id: req.service_id, theirs: req.local_comm_id },
        Message::SidrReq(req) => Whose::Service { service_id: req.service_id, theirs: req.request_id },
        Message::Mra(mra) => connection(mra.remote_comm_id, mra.local_comm_id),
        Message::Rej(rej) => connection(rej.remote_comm_id, rej.local_comm_id),
        Message::Rep(rep) => connection(rep.remote_comm_id, rep.local_comm_id),
        Message::Rtu(rtu) => connection(rtu.remote_comm_id, rtu.local_comm_id),
        Message::Dreq(dreq) => connection(dreq.remote_comm_id, dreq.local_comm_id),
        Message::Drep(drep) => Whose::Ended { ours: drep.remote_comm_id, theirs: drep.local_comm_id },
        Message::SidrRep(rep) => connection(rep.request_id, 0),
        Message::Lap(lap) => connection(lap.remote_comm_id, lap.local_comm_id),
        Message::Apr(apr) => connection(apr.remote_comm_id, apr.local_comm_id),
    }
}

/// The slot of the device that gave this number to a connection.
pub(crate) fn slot_of(comm_id: u32) -> u16 {
    // Ten bits are left.
    (comm_id >> 22) as u16
}

#[cfg(test)]
mod tests {
    use userdma_wire::mad::cm::{Drep, Dreq, Rej, Rep, Req, SidrRep, SidrReq};

    use super::*;

    #[test]
    fn each_message_tells_whose_it_is() {
        let service = Whose::Service { service_id: 0x0106_1c06, theirs: 5 };
        let req = Req { local_comm_id: 5, service_id: 0x0106_1c06, ..Req::default() };
        assert_eq!(whose(&req.build(0)), service);
        let req = SidrReq { request_id: 5, service_id: 0x0106_1c06, ..SidrReq::default() };
        assert_eq!(whose(&req.build(0)), service);
        let connection = Whose::Connection { ours: 2, theirs: 1 };
        let rep = Rep { local_comm_id: 1, remote_comm_id: 2, ..Rep::default() };
        let rej = Rej { local_comm_id: 1, remote_comm_id: 2, ..Rej::default() };
        let dreq = Dreq { local_comm_id: 1, remote_comm_id: 2, ..Dreq::default() };
        assert_eq!([rep.build(0), rej.build(0), dreq.build(0)].map(|mad| whose(&mad)), [connection; 3]);
        let rep = SidrRep { request_id: 2, ..SidrRep::default() };
        assert_eq!(whose(&rep.build(0)), Whose::Connection { ours: 2, theirs: 0 });
        let drep = Drep { local_comm_id: 1, remote_comm_id: 2, ..Drep::default() };
        assert_eq!(whose(&drep.build(0)), Whose::Ended { ours: 2, theirs: 1 });
        assert_eq!(slot_of(5 << 22 | 77), 5);
    }

    #[test]
    fn other_classes_methods_and_attributes_are_nobodys() {
        let good = Req::default().build(0);
        assert_ne!(whose(&good), Whose::Other);
        for (at, value) in
            [(0, 2), (1, 1), (2, 1), (3, 1), (3, 0x83), (17, 0), (17, 0x0f), (17, 0x1b), (16, 1)]
        {
            let mut mad = good;
            mad[at] = value;
            assert_eq!(whose(&mad), Whose::Other, "byte {at}: {value:#x}");
        }
    }
}
