//! LIDs, for programs that know no other address of a peer: qperf, and `ibv_rc_pingpong` without `-g`.
//!
//! InfiniBand's ports have a LID of 16 bits, RoCE's have none: a peer is named by its GID, in a GRH. A device that is asked to have
//! LIDs gives its port the lower half of its first IPv4 address, and takes the LID of a peer for the lower half of an address
//! whose upper half is the same as its own. Both sides must be asked, and lie in one network of 16 bits. Nothing of it is on the
//! wire.

use std::env;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};

use userdma_host::DeviceSpec;
use userdma_verbs::{Gid, GlobalRoute};

use crate::answer::{INVALID, Refused, wrong};
use crate::log::{self, Level};

/// The LIDs that a device knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Lids {
    own: Ipv4Addr,
    /// Of `own` in the GID table.
    sgid_index: u8,
}

impl Lids {
    /// Those of a device that is to have LIDs and has an IPv4 address.
    pub(crate) fn of(spec: &DeviceSpec) -> Option<Self> {
        let addresses = spec.addresses.iter().map(IpAddr::to_canonical);
        let v4 = addresses.zip(0..).find_map(|(address, index)| match address {
            IpAddr::V4(own) => Some(Self { own, sgid_index: index }),
            IpAddr::V6(_) => None,
        });
        v4.filter(|_| spec.lids)
    }

    /// The port's own.
    pub(crate) const fn own(self) -> u16 {
        let [_, _, high, low] = self.own.octets();
        u16::from_be_bytes([high, low])
    }

    /// The way to the port that has `dlid`.
    ///
    /// # Errors
    /// Zero, which is what ports without LIDs say.
    pub(crate) fn route(self, dlid: u16) -> Result<GlobalRoute, Refused> {
        if dlid == 0 {
            return Err(wrong("ah_attr.dlid", 0, "the LID of a device that has one (`userdma run --lids`)"));
        }
        let [first, second, ..] = self.own.octets();
        let [third, fourth] = dlid.to_be_bytes();
        let dgid = Gid::from(Ipv4Addr::new(first, second, third, fourth));
        Ok(GlobalRoute { dgid, sgid_index: self.sgid_index, ..GlobalRoute::default() })
    }
}

/// The devices with LIDs if `USERDMA_LIDS` wants them all to have some.
pub(crate) fn given(specs: Vec<DeviceSpec>) -> Result<Vec<DeviceSpec>, Refused> {
    let value = env::var_os(LIDS).unwrap_or_default();
    let all = are_wanted(&value).inspect_err(|_| {
        let value = value.to_string_lossy();
        log::tell(Level::Error, format_args!("{LIDS} is `{value}`: 0 or 1 is wanted"));
    })?;
    Ok(specs.into_iter().map(|spec| DeviceSpec { lids: spec.lids || all, ..spec }).collect())
}

fn are_wanted(value: &OsStr) -> Result<bool, Refused> {
    match value.to_str() {
        Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) | None => Err(INVALID),
    }
}

/// The variable that gives LIDs to all devices.
const LIDS: &str = "USERDMA_LIDS";

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(addresses: &[&str]) -> DeviceSpec {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        DeviceSpec { lids: true, ..DeviceSpec::new("a".to_owned(), addresses) }
    }

    #[test]
    fn a_lid_is_the_lower_half_of_the_first_ipv4_address() {
        let lids = Lids::of(&spec(&["2001:db8::1", "10.1.2.3", "10.9.9.9"])).unwrap();
        assert_eq!((lids.own(), lids.sgid_index), (0x0203, 1));
        let route = lids.route(0x0405).unwrap();
        assert_eq!((route.dgid, route.sgid_index), (Gid::from(Ipv4Addr::new(10, 1, 4, 5)), 1));
        assert_eq!(lids.route(0), Err(INVALID), "the peer has none");
        assert_eq!(Lids::of(&spec(&["::ffff:10.1.2.3"])).map(Lids::own), Some(0x0203));
    }

    #[test]
    fn without_an_ipv4_address_or_unasked_there_are_none() {
        assert_eq!(Lids::of(&spec(&["2001:db8::1"])), None);
        assert_eq!(Lids::of(&DeviceSpec { lids: false, ..spec(&["10.1.2.3"]) }), None);
    }

    #[test]
    fn the_variable_is_not_set_or_0_or_1() {
        let of = |value: &str| are_wanted(OsStr::new(value));
        assert_eq!((of(""), of("0"), of("1"), of("yes")), (Ok(false), Ok(false), Ok(true), Err(INVALID)));
    }
}
