//! Which two addresses of this machine play the two hosts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use userdma_wire::ROCE_V2_PORT;

use crate::failure::Failure;

/// Two addresses, and the port when it is not 4791.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pair {
    /// The first process's.
    pub a: IpAddr,
    /// The second process's.
    pub b: IpAddr,
    /// A private UDP port, where 4791 belongs to somebody else on all addresses.
    pub private_port: Option<u16>,
}

impl Pair {
    /// The pair that the user named, or one that is free.
    ///
    /// # Errors
    /// No pair is free.
    pub fn choose(named: Option<[IpAddr; 2]>) -> Result<Self, Failure> {
        match named {
            Some([a, b]) => Ok(Self { a, b, private_port: None }),
            None => Self::find(&mut is_free),
        }
    }

    /// The UDP port in use.
    pub fn port(&self) -> u16 {
        self.private_port.unwrap_or(ROCE_V2_PORT)
    }

    fn find(is_free: &mut impl FnMut(IpAddr, u16) -> io::Result<bool>) -> Result<Self, Failure> {
        for port in std::iter::once(ROCE_V2_PORT).chain(PRIVATE_PORTS) {
            for low in (2..=126).step_by(2) {
                let (a, b) = (loopback(low), loopback(low + 1));
                let free = is_free(a, port).and_then(|a_is| Ok(a_is && is_free(b, port)?));
                match free {
                    Ok(true) => {
                        let private_port = (port != ROCE_V2_PORT).then_some(port);
                        return Ok(Self { a, b, private_port });
                    }
                    Ok(false) => {}
                    Err(error) => {
                        return Err(Failure::new(format!(
                            "cannot use {a}: {error} (is the loopback interface up? `ip link set lo up`)"
                        )));
                    }
                }
            }
        }
        Err(Failure::new("no two free addresses among 127.0.0.2 … 127.0.0.127, on any of ten ports"))
    }
}

fn loopback(low: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, low).into()
}

fn is_free(address: IpAddr, port: u16) -> io::Result<bool> {
    match UdpSocket::bind((address, port)) {
        // Binding works on an interface that is down, connecting does not.
        Ok(socket) => socket.connect((address, port)).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

/// Tried in this order where 4791 is taken.
const PRIVATE_PORTS: std::ops::Range<u16> = 14_791..14_800;

#[cfg(test)]
mod tests {
    use super::*;

    fn find(mut is_free: impl FnMut(IpAddr, u16) -> io::Result<bool>) -> Result<Pair, Failure> {
        Pair::find(&mut is_free)
    }

    #[test]
    fn the_first_free_pair_is_taken() {
        let pair = find(|_, _| Ok(true)).unwrap();
        assert_eq!(pair, Pair { a: loopback(2), b: loopback(3), private_port: None });
        let pair = find(|ip, _| Ok(ip != loopback(3) && ip != loopback(4))).unwrap();
        assert_eq!((pair.a, pair.b), (loopback(6), loopback(7)));
    }

    #[test]
    fn a_port_that_is_taken_everywhere_is_replaced_by_a_private_one() {
        let pair = find(|_, port| Ok(port != 4791)).unwrap();
        assert_eq!((pair.a, pair.port()), (loopback(2), 14_791));
        assert!(find(|_, _| Ok(false)).is_err());
    }

    #[test]
    fn no_loopback_is_said() {
        let error = find(|_, _| Err(io::ErrorKind::AddrNotAvailable.into())).unwrap_err().to_string();
        assert!(error.contains("127.0.0.2") && error.contains("ip link set lo up"), "{error}");
    }
}
