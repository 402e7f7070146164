//! A user's own UDP port, for where 4791 belongs to somebody else.

use std::fmt;
use std::net::IpAddr;

use crate::holder::Holder;
use crate::names;

/// The private port of this process's user: 16384 and the user's number modulo 16384.
///
/// It is the same in all processes of a user, so that they find each other. It lies below the ports that Linux gives out by
/// itself (32768 and above, unless configured otherwise). Users whose numbers differ by a multiple of 16384 have the same.
pub fn private_port() -> u16 {
    of_user(names::our_uid())
}

fn of_user(uid: u32) -> u16 {
    // 14 bits.
    FIRST + u16::try_from(uid % u32::from(FIRST)).unwrap_or(0)
}

/// Why a device has another port than it was to have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FellBack {
    /// The address whose port could not be had.
    pub ip: IpAddr,
    /// The port that could not be had.
    pub port: u16,
    /// The port that the device has on all its addresses.
    pub instead: u16,
    /// Who has it, as far as it can be known. Nobody, if others of this user fell back earlier and the port is free since: they
    /// are to be reached.
    pub holder: Option<Holder>,
}

impl fmt::Display for FellBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ip, port, instead, holder } = self;
        match holder {
            // With the same agent they would share it.
            Some(holder) if holder.uid == names::our_uid() => write!(
                f,
                "{ip} UDP port {port} is taken ({holder}, of this user: if a service gave it the port, start the service again)"
            )?,
            Some(holder) => write!(f, "{ip} UDP port {port} is taken ({holder})")?,
            None => write!(f, "{ip} UDP port {port} was taken when others of this user started")?,
        }
        write!(
            f,
            "; using private port {instead}: only programs of user {} that use it, too, are reached",
            names::our_uid()
        )
    }
}

const FIRST: u16 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Program;

    #[test]
    fn who_is_kept_out_by_his_own_program_hears_that_a_service_may_have_ended() {
        let ip = IpAddr::from([127, 0, 0, 31]);
        let of = |uid| {
            let holder = Some(Holder { address: ip, uid, program: Program::Unknown });
            FellBack { ip, port: 4791, instead: 32_766, holder }.to_string()
        };
        assert!(of(names::our_uid()).contains("start the service again"));
        assert!(!of(names::our_uid() + 1).contains("service"));
    }

    #[test]
    fn each_user_has_a_port_below_those_that_the_kernel_gives_out() {
        assert_eq!([0, 1000, 65_534].map(of_user), [16_384, 17_384, 32_766]);
        assert_eq!([16_383, 16_384, u32::MAX].map(of_user), [32_767, 16_384, 32_767]);
    }
}
