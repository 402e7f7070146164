//! The sockets that share an address and a port, one for each slot, in parks.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::{io, iter};

use userdma_link::{OpenError, shared};

use crate::park::Park;

/// A group of sockets that the kernel steers by slot. Nobody reads them here.
///
/// The sockets close when the last process that holds a park of them has gone.
#[derive(Debug)]
pub(crate) struct Group {
    ip: IpAddr,
    port: u16,
    /// In the order of slots. All but the last are full, and a full one never changes.
    parks: Vec<Park>,
}

impl Group {
    /// Sockets of a group at most: slot 1023 is the multicast QPN's and has none.
    pub(crate) const MAX_LEN: usize = 1023;

    /// Makes a group on a port that nobody has.
    pub(crate) fn create(ip: IpAddr, port: u16) -> Result<Self, OpenError> {
        // With the option to share, a bind would join whatever group of the same user is there, and receive nothing.
        shared::check_port_free(ip, port)?;
        let mut group = Self { ip, port, parks: Vec::new() };
        let first = shared::bind_member(ip, port)?;
        shared::steer_by_slot(&first).map_err(|source| group.error("SO_ATTACH_REUSEPORT_CBPF", source))?;
        let rest = (1..FIRST_LEN).map(|_| shared::bind_member(ip, port));
        let sockets = iter::once(Ok(first)).chain(rest).collect::<Result<Vec<_>, _>>()?;
        group.parks.push(Park::new(&sockets).map_err(|source| group.error("park of sockets", source))?);
        Ok(group)
    }

    /// The group that others have parked: all its parks, in order.
    pub(crate) fn from_ends(ip: IpAddr, port: u16, ends: Vec<OwnedFd>) -> io::Result<Self> {
        let parks = ends.into_iter().map(Park::from_end).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { ip, port, parks })
    }

    /// How many slots have a socket.
    pub(crate) fn len(&self) -> usize {
        self.parks.iter().map(Park::len).sum()
    }

    /// The parks, in order.
    pub(crate) fn parks(&self) -> &[Park] {
        &self.parks
    }

    /// A copy of the socket of `slot`.
    pub(crate) fn socket(&self, slot: u16) -> Result<OwnedFd, OpenError> {
        let (park, at) = (usize::from(slot) / Park::CAPACITY, usize::from(slot) % Park::CAPACITY);
        let park = self.parks.get(park).ok_or(io::ErrorKind::NotFound.into());
        park.and_then(|park| park.socket(at)).map_err(|source| self.error("parked socket", source))
    }

    /// Sees to it that `slot` has a socket; whether there are new parks, which everybody must get before the socket is used. If
    /// it fails, new sockets close again, from the last, so that the others keep their slots.
    pub(crate) fn reach(&mut self, slot: u16) -> Result<bool, OpenError> {
        let mut grown = false;
        while self.len() <= usize::from(slot) {
            let wanted = (self.len() * GROWTH).min(Self::MAX_LEN).max(usize::from(slot) + 1);
            self.grow(wanted)?;
            grown = true;
        }
        Ok(grown)
    }

    /// Adds sockets until there are `wanted`, or the last park is full.
    fn grow(&mut self, wanted: usize) -> Result<(), OpenError> {
        let is_full = self.parks.last().is_none_or(|park| park.len() == Park::CAPACITY);
        let full = if is_full { self.parks.len() } else { self.parks.len() - 1 };
        let mut sockets = match self.parks.get(full) {
            Some(park) => park.sockets().map_err(|source| self.error("parked sockets", source))?,
            None => Vec::new(),
        };
        let room = Park::CAPACITY - sockets.len();
        for _ in 0..room.min(wanted - self.len()) {
            sockets.push(shared::bind_member(self.ip, self.port)?);
        }
        let park = Park::new(&sockets).map_err(|source| self.error("park of sockets", source))?;
        self.parks.truncate(full);
        self.parks.push(park);
        Ok(())
    }

    fn error(&self, what: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { ip: self.ip, port: self.port, what, source }
    }
}

/// Sockets of a new group: slot 0, which is nobody's, and three processes.
const FIRST_LEN: usize = 4;
/// How many times larger a group becomes at a time.
const GROWTH: usize = 4;

#[cfg(test)]
mod tests;
