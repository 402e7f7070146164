//! Groups (multicast): the device says which queue pairs get what is sent to one, and its links join it.

use std::net::IpAddr;
use std::sync::Arc;

use userdma_link::{Link, OpenError as LinkError};
use userdma_nic::AttachError;
use userdma_verbs::{Errno, Gid, ObjectError, Qpn};

use crate::drive::Core;
use crate::shared::Shared;
use crate::{Host, HostError};

/// Why a queue pair was not attached to a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachFailure {
    /// The device refused it.
    #[error(transparent)]
    Refused(#[from] AttachError),
    /// The system did.
    #[error("the system does not let us into the group: {0}")]
    System(#[from] LinkError),
}

impl AttachFailure {
    /// The number that `ibv_attach_mcast` returns. What else the system refuses is a want of something, as descriptors, since anybody
    /// may be in a group.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Refused(refused) => refused.errno(),
            Self::System(LinkError::AddrInUse { .. }) => Errno::Eaddrinuse,
            Self::System(_) => Errno::Enomem,
        }
    }
}

impl Host {
    /// Attaches a datagram queue pair to a group: it gets what is sent to the group and QPN 0xffffff with its key, from this
    /// device, too. Twice is once.
    ///
    /// With the first queue pair the group is joined on each of the device's interfaces, by IGMP or MLD, which the kernel does.
    ///
    /// # Errors
    /// The outer: the device is not usable. The inner: it was refused, and nothing has changed.
    pub fn attach_multicast(&self, qpn: Qpn, group: Gid) -> Result<Result<(), AttachFailure>, HostError> {
        let shared = Arc::clone(&self.owner.shared);
        let attached = self.owner.command(move |core, _| core.attach(&shared, qpn, group))?;
        if let Ok(true) = attached {
            // Whoever sleeps does so on the new sockets, too, from now on.
            self.owner.shared.wake_thread();
            self.owner.shared.waiter_bell.ring();
        }
        Ok(attached.map(drop))
    }

    /// Detaches a queue pair from a group, which is left with the last.
    ///
    /// # Errors
    /// The outer: the device is not usable. The inner: it is not attached.
    pub fn detach_multicast(&self, qpn: Qpn, group: Gid) -> Result<Result<(), ObjectError>, HostError> {
        self.owner.command(move |core, _| core.detach(qpn, group))
    }

    /// Detaches a queue pair from all groups.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn detach_all_multicast(&self, qpn: Qpn) -> Result<(), HostError> {
        self.owner.command(move |core, _| {
            for group in core.shard.multicast_groups(qpn) {
                // It is one of them.
                let _ = core.detach(qpn, group);
            }
        })
    }
}

impl Core {
    /// Whether there are sockets now that nobody sleeps on.
    fn attach(&mut self, shared: &Shared, qpn: Qpn, group: Gid) -> Result<bool, AttachFailure> {
        let Some(ip) = self.shard.attach_multicast(qpn, group)? else { return Ok(false) };
        self.join(ip).and_then(|()| self.share_groups(shared)).map_err(|error| {
            // It has just been attached.
            let _ = self.detach(qpn, group);
            error.into()
        })
    }

    fn detach(&mut self, qpn: Qpn, group: Gid) -> Result<(), ObjectError> {
        if let Some(ip) = self.shard.detach_multicast(qpn, group)? {
            for link in &mut self.links {
                link.leave(ip);
            }
        }
        Ok(())
    }

    fn join(&mut self, group: IpAddr) -> Result<(), LinkError> {
        for place in homes(&self.links, group) {
            self.links[place].join(group)?;
        }
        Ok(())
    }

    /// Lets those who sleep know of sockets; whether there are any that they do not know.
    fn share_groups(&self, shared: &Shared) -> Result<bool, LinkError> {
        let mut is_new = false;
        for (link, place) in self.links.iter().zip(&shared.groups) {
            let (Some(fd), None) = (link.groups(), place.get()) else { continue };
            let fd = fd.try_clone_to_owned().map_err(|source| {
                let Link::Udp(link) = link;
                LinkError::Io { ip: link.local(), port: link.port(), what: "descriptor of groups", source }
            })?;
            is_new |= place.set(fd.into()).is_ok();
        }
        Ok(is_new)
    }
}

/// The links that join a group: one for each interface, so that nothing comes twice, and of the group's address family; or the first,
/// if none is.
fn homes(links: &[Link], group: IpAddr) -> Vec<usize> {
    let mut interfaces = Vec::new();
    let mut homes = Vec::new();
    for (place, Link::Udp(link)) in links.iter().enumerate() {
        let is_home = link.local().is_ipv4() == group.is_ipv4() && !interfaces.contains(&link.interface());
        if is_home {
            interfaces.push(link.interface());
            homes.push(place);
        }
    }
    if homes.is_empty() && !links.is_empty() { vec![0] } else { homes }
}
