//! Which UDP port devices have: 4791, or the private one of their user, if he wants that or somebody else has 4791.

use std::env;
use std::ffi::OsStr;

use userdma_host::{Host, HostConfig, private_port};

use crate::answer::{INVALID, Refused};
use crate::log::{self, Level};

/// `config` with its port: `USERDMA_PRIVATE` says which.
pub(crate) fn choose(config: HostConfig) -> Result<HostConfig, Refused> {
    let value = env::var_os(PRIVATE).unwrap_or_default();
    chosen(config, &value).inspect_err(|_| {
        let value = value.to_string_lossy();
        log::tell(Level::Error, format_args!("{PRIVATE} is `{value}`: 0 or 1 is wanted"));
    })
}

/// Says on standard error if a device has not the port that it should have, and who is to blame.
pub(crate) fn warn(name: &str, host: &Host) {
    if let Some(fell_back) = host.fell_back() {
        log::tell(
            Level::Error,
            format_args!("device {name}: {fell_back} (`userdma run --private` sees to that)"),
        );
    }
}

fn chosen(config: HostConfig, value: &OsStr) -> Result<HostConfig, Refused> {
    let private = Some(private_port());
    match value.to_str() {
        Some("" | "0") => Ok(HostConfig { fallback_port: private, ..config }),
        Some("1") => Ok(HostConfig { shared_port: private, ..config }),
        Some(_) | None => Err(INVALID),
    }
}

/// The variable that wants the private port.
const PRIVATE: &str = "USERDMA_PRIVATE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_not_set_or_0_or_1() {
        let of = |value: &str| chosen(HostConfig::default(), OsStr::new(value)).ok();
        let ports = |value| of(value).map(|config| (config.shared_port, config.fallback_port));
        let ours = Some(private_port());
        assert_eq!(ports(""), Some((None, ours)));
        assert_eq!(ports("0"), Some((None, ours)));
        assert_eq!(ports("1"), Some((ours, None)));
        assert_eq!(ports("yes"), None);
    }
}
