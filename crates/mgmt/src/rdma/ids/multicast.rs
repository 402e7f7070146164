//! Groups (multicast). Over Ethernet nobody is asked whether one may be in a group, so a join is only its event: the way to the
//! group, and the key. Who receives attaches a queue pair, and with that the network is told.

use userdma_verbs::{AhAttr, Gid, GlobalRoute, Qpn};

use super::Ids;
use super::resolve::HOP_LIMIT;
use crate::rdma::entry::State;
use crate::rdma::{Address, CmError, CmId, Event, EventKind, Param, UdParam};

impl Ids {
    /// Joins a group of datagrams: [`EventKind::MulticastJoin`] follows at once with queue pair 0xffffff, the key and the way, or
    /// [`EventKind::MulticastError`] if the identifier's address has another family. Both name the `membership`. As
    /// `cma.c rdma_join_multicast()`, `cma_iboe_join_multicast()`, which however has no groups of IPv6.
    ///
    /// # Errors
    /// It has no device, is neither bound nor resolved, or is not of datagrams; the address is no group's.
    pub fn join_multicast(&mut self, id: CmId, group: Address, membership: u32) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        let is_right = matches!(entry.state, State::AddrBound | State::AddrResolved);
        entry.check(is_right && entry.port.is_some(), JOIN, "an address that is bound or resolved")?;
        entry.check(entry.is_ud(), JOIN, "an identifier of datagrams")?;
        let group = match group {
            Address::Ip(ip) => ip.ip().to_canonical(),
            Address::Ib(ib) => ib.gid.ip(),
        };
        entry.check(group.is_multicast(), JOIN, "a group's address")?;
        let device = entry.port.and_then(|port| self.devices.get(&port));
        let from = entry.src.and_then(|src| src.ip()).map(|src| src.ip().to_canonical());
        let index =
            device.zip(from.filter(|from| from.is_ipv4() == group.is_ipv4())).and_then(|(device, from)| {
                let index = device.addresses.iter().position(|ip| ip.to_canonical() == from);
                index.and_then(|index| u8::try_from(index).ok())
            });
        let (tos, qkey) = (entry.tos, self.entry_mut(id)?.qkey());
        let (kind, status, param) = match index {
            Some(sgid_index) => {
                let (dgid, hop_limit) = (Gid::from(group), HOP_LIMIT);
                let grh = GlobalRoute { dgid, flow_label: 0, sgid_index, hop_limit, traffic_class: tos };
                let ah = AhAttr { grh, sl: 0, port_num: 1 };
                let param = UdParam { qpn: Qpn::MULTICAST, qkey, ah, ..UdParam::default() };
                (EventKind::MulticastJoin, 0, param)
            }
            None => (EventKind::MulticastError, -EINVAL, UdParam::default()),
        };
        let param = Param::Ud(param);
        let (listener, membership) = (None, Some(membership));
        self.events.push(id, Event { id, kind, status, listener, membership, param });
        Ok(())
    }
}

const JOIN: &str = "join a group";
const EINVAL: i32 = 22;
