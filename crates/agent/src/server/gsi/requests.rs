//! What devices ask for, and what they tell.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use userdma_verbs::Time;

use super::{Device, Gsi};
use crate::gsi::{MAX_BOOKED, PortError, PortRequest, Will};
use crate::mad;
use crate::message::{GsiReply, GsiRequest};
use crate::registry::{Member, Services};
use crate::server::wills::Dead;

impl Gsi {
    /// A device asks for something, or says something that it wants no answer to.
    pub(in crate::server) fn handle(
        &mut self,
        member: Member,
        request: GsiRequest,
        descriptors: Vec<OwnedFd>,
        now: Time,
    ) -> Option<GsiReply> {
        let answer = match request {
            GsiRequest::Sync { seq } => Some((seq, Ok(0))),
            GsiRequest::Reserve { seq, id, port } => Some((seq, self.reserve(member, id, &port, now))),
            GsiRequest::BeginListening { seq, id } => Some((seq, self.begin_listening(member, id, now))),
            GsiRequest::Listen { seq, service, on } => Some((seq, self.listen(member, service, on, now))),
            GsiRequest::Attach
            | GsiRequest::Restore { .. }
            | GsiRequest::Release { .. }
            | GsiRequest::Relisten { .. }
            | GsiRequest::Unlisten { .. }
            | GsiRequest::SetWill { .. }
            | GsiRequest::ClearWill { .. }
            | GsiRequest::OpenWill { .. }
            | GsiRequest::EndListening { .. }
            | GsiRequest::Bequest(_) => {
                self.note(member, request, descriptors, now);
                None
            }
        };
        answer.map(|(seq, result)| GsiReply { seq, result })
    }

    /// What wants no answer.
    fn note(&mut self, member: Member, request: GsiRequest, descriptors: Vec<OwnedFd>, now: Time) {
        let Some(device) = self.devices.get_mut(&member) else { return };
        // Only who was there before has something from before.
        let is_old = device.is_old;
        // What is held may be for him.
        self.has_new_taker |= matches!(request, GsiRequest::Attach | GsiRequest::Relisten { .. });
        match request {
            GsiRequest::Attach => self.attach(member, descriptors.into_iter().next()),
            GsiRequest::Restore { id, listens, port } if is_old => {
                self.registry.restore(member, &device.home, id, &port, listens);
            }
            GsiRequest::Release { id } => self.registry.release(member, id),
            GsiRequest::Relisten { service, on } if is_old => {
                // Nobody could come in between.
                if let Err(error) = self.registry.listen(member, &device.home, service, on) {
                    tracing::warn!(?service, %error, "two devices listen to a service");
                }
            }
            GsiRequest::Unlisten { service, on } => {
                self.registry.unlisten(member, &device.home, service, on);
            }
            GsiRequest::SetWill { comm_id, will } => self.set_will(member, comm_id, will),
            GsiRequest::ClearWill { comm_id } => self.clear_will(member, comm_id),
            GsiRequest::OpenWill { comm_id, will } => self.open_will(member, comm_id, will, now),
            GsiRequest::EndListening { id } => self.registry.end_listening(member, id),
            // Other users are not heard in the name of the dead.
            GsiRequest::Bequest(bequest) if is_old && self.is_of_one => self.bequests.inherit(bequest),
            GsiRequest::Restore { .. }
            | GsiRequest::Relisten { .. }
            | GsiRequest::Bequest(_)
            | GsiRequest::Sync { .. }
            | GsiRequest::Reserve { .. }
            | GsiRequest::BeginListening { .. }
            | GsiRequest::Listen { .. } => {}
        }
    }

    fn reserve(&mut self, member: Member, id: u32, port: &PortRequest, now: Time) -> Result<u16, PortError> {
        self.check_late(now)?;
        let device = self.devices.get(&member).ok_or(PortError::Unknown)?;
        self.tries += 1;
        // The upper half of a hash is as random as the whole.
        let random = (self.chance.hash_one(self.tries) >> 32) as u32;
        self.registry.reserve(member, &device.home, id, port, random)
    }

    fn begin_listening(&mut self, member: Member, id: u32, now: Time) -> Result<u16, PortError> {
        self.check_late(now)?;
        self.registry.begin_listening(member, id).map(|()| 0)
    }

    fn listen(
        &mut self,
        member: Member,
        service: Services,
        on: Option<IpAddr>,
        now: Time,
    ) -> Result<u16, PortError> {
        self.check_late(now)?;
        let device = self.devices.get(&member).ok_or(PortError::Unknown)?;
        self.registry.listen(member, &device.home, service, on)?;
        self.has_new_taker = true;
        Ok(0)
    }

    /// Whether everybody has told what he has.
    fn check_late(&self, now: Time) -> Result<(), PortError> {
        if now < self.early_until { Err(PortError::Early) } else { Ok(()) }
    }

    fn set_will(&mut self, member: Member, comm_id: u32, will: Will) {
        let Some(device) = self.devices.get_mut(&member) else { return };
        if device.may_leave(comm_id, &will) {
            device.wills.insert(comm_id, will);
            self.bequests.note(member, comm_id, device.origin(&will));
        }
    }

    /// A connection has ended, and the peer has not said that it knows: it is told again later.
    fn open_will(&mut self, member: Member, comm_id: u32, will: Will, now: Time) {
        let Some(device) = self.devices.get(&member) else { return };
        if device.may_leave(comm_id, &will) {
            let dead = Dead { local: will.from, udp_port: device.home.udp_port, comm_id };
            self.clear_will(member, comm_id);
            self.wills.open_later(dead, will, now);
        }
    }

    fn clear_will(&mut self, member: Member, comm_id: u32) {
        let Some(device) = self.devices.get_mut(&member) else { return };
        if device.wills.remove(&comm_id).is_some() {
            self.bequests.revoke(member, comm_id);
        }
    }
}

impl Device {
    /// Whether a will is one of its own connections', and there is room for it.
    fn may_leave(&self, comm_id: u32, will: &Will) -> bool {
        let is_ours = self.home.addresses.contains(&will.from) && mad::slot_of(comm_id) == self.slot;
        is_ours && (self.wills.len() < MAX_BOOKED || self.wills.contains_key(&comm_id))
    }
}
