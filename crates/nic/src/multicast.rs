//! Groups (multicast): which queue pairs get what is sent to one.
//!
//! A datagram to QPN 0xffffff is for every queue pair that is attached to the group whose address it came to, each with a receive of
//! its own. As the kernel's `rxe_recv.c rxe_rcv_mcast_pkt()`: each queue pair judges service, state, partition and key for itself,
//! and the sender's own gets a copy, too, if it is attached.

use std::collections::HashMap;
use std::net::IpAddr;

use userdma_mem::FrameMeta;
use userdma_verbs::{DeviceAttr, Errno, Gid, ObjectError, PKey, QpType, Qpn, Time};
use userdma_wire::{Packet, Service};

use crate::Shard;
use crate::dispatch::check_state;

/// Why a queue pair was not attached to a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The queue pair does not exist.
    #[error("no such queue pair")]
    NoQp,
    /// Only datagrams come to groups.
    #[error("a queue pair of type {0:?} has no groups: only one of datagrams (UD) has")]
    Type(QpType),
    /// The GID is a single host's, or none.
    #[error("{0} is no group's GID: 224.0.0.0/4 (as ::ffff:224.0.0.0/100) and ff00::/8 are")]
    NotGroup(Gid),
    /// The device is in as many groups as it can be.
    #[error("the device is in {max} groups, the most that it can be")]
    TooManyGroups {
        /// The limit.
        max: u32,
    },
    /// As many queue pairs as there can be are attached.
    #[error("{max} queue pairs are attached to the group, the most that can be")]
    TooManyQps {
        /// The limit.
        max: u32,
    },
}

impl AttachError {
    /// The number that `ibv_attach_mcast` returns.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::NoQp | Self::Type(_) | Self::NotGroup(_) => Errno::Einval,
            Self::TooManyGroups { .. } | Self::TooManyQps { .. } => Errno::Enomem,
        }
    }
}

/// The groups that queue pairs are attached to: at most some hundred, so that a list of each is looked through.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The indices of the queue pairs.
    members: HashMap<IpAddr, Vec<u32>>,
    /// A list to go through, while queue pairs are touched.
    room: Vec<u32>,
}

impl Groups {
    fn count_of(&self, index: u32) -> usize {
        self.members.values().filter(|members| members.contains(&index)).count()
    }
}

impl Shard {
    /// Attaches a queue pair to a group; one that is attached stays so. The group's address, which the links must join if this is its
    /// first queue pair; `None` if it is not.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn attach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<Option<IpAddr>, AttachError> {
        let index = self.index_of(qpn).ok_or(AttachError::NoQp)?;
        let qp_type = self.qps.get(index).map_or(QpType::Ud, |qp| qp.shared.qp_type());
        if qp_type != QpType::Ud {
            return Err(AttachError::Type(qp_type));
        }
        let ip = group.ip().to_canonical();
        if !ip.is_multicast() {
            return Err(AttachError::NotGroup(group));
        }
        let limits = DeviceAttr::LIMITS;
        let groups = &mut self.groups;
        let is_new = !groups.members.contains_key(&ip);
        if is_new && groups.members.len() >= limits.max_mcast_grp as usize {
            return Err(AttachError::TooManyGroups { max: limits.max_mcast_grp });
        }
        let members = groups.members.entry(ip).or_default();
        if members.contains(&index) {
            return Ok(None);
        }
        if members.len() >= limits.max_mcast_qp_attach as usize {
            return Err(AttachError::TooManyQps { max: limits.max_mcast_qp_attach });
        }
        members.push(index);
        let most = members.len();
        groups.room.reserve(most);
        Ok(is_new.then_some(ip))
    }

    /// Detaches a queue pair from a group. The group's address, which the links must leave if no queue pair is left; `None` if one
    /// is.
    ///
    /// # Errors
    /// `NoObject`: it is not attached, or does not exist.
    pub fn detach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<Option<IpAddr>, ObjectError> {
        let none = ObjectError::NoObject("attachment of the queue pair to the group");
        let index = self.index_of(qpn).ok_or(none)?;
        let ip = group.ip().to_canonical();
        let members = self.groups.members.get_mut(&ip).ok_or(none)?;
        let at = members.iter().position(|&member| member == index).ok_or(none)?;
        members.remove(at);
        if members.is_empty() {
            self.groups.members.remove(&ip);
            return Ok(Some(ip));
        }
        Ok(None)
    }

    /// The groups that a queue pair is attached to.
    pub fn multicast_groups(&self, qpn: Qpn) -> Vec<Gid> {
        let Some(index) = self.index_of(qpn) else { return Vec::new() };
        let of_qp = self.groups.members.iter().filter(|(_, members)| members.contains(&index));
        of_qp.map(|(&group, _)| Gid::from(group)).collect()
    }

    /// Whether a queue pair may go: not while it is attached. As `uverbs_std_types_qp.c uverbs_free_qp()`.
    pub(crate) fn check_detached(&self, index: u32) -> Result<(), ObjectError> {
        match self.groups.count_of(index) {
            0 => Ok(()),
            count => {
                // At most as many as there are groups.
                Err(ObjectError::Busy {
                    object: "queue pair",
                    users: u32::try_from(count).unwrap_or(u32::MAX),
                })
            }
        }
    }

    /// A packet to QPN 0xffffff, with a good ICRC.
    #[cold]
    pub(crate) fn handle_multicast(&mut self, now: Time, packet: &Packet<'_>, meta: &FrameMeta) {
        let mut members = std::mem::take(&mut self.groups.room);
        members.clear();
        if let Some(indices) = self.groups.members.get(&meta.local.to_canonical()) {
            members.extend_from_slice(indices);
        }
        if members.is_empty() {
            self.stats.drop_qpn += 1;
        } else if packet.info().service != Service::Ud {
            self.stats.drop_opcode += 1;
        } else if !PKey::DEFAULT.matches(packet.bth().pkey()) {
            self.stats.drop_pkey += 1;
        } else {
            for &index in &members {
                self.deliver_copy(now, index, packet, meta);
            }
        }
        self.groups.room = members;
    }

    fn deliver_copy(&mut self, now: Time, index: u32, packet: &Packet<'_>, meta: &FrameMeta) {
        let receives = self.qps.get(index).is_some_and(|qp| check_state(qp.transport.state()).is_ok());
        if receives {
            self.drive(now, index, |machine, ctx| machine.handle_packet(ctx, packet, meta));
        } else {
            self.stats.drop_qpn += 1;
        }
    }
}
