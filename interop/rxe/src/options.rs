//! The command line, spelled as vt's.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use userdma::{AccessFlags, AckTimeout, Mtu, Psn, QpType, RnrTimer};

use crate::ledger::number;

/// What the options are.
pub(crate) const USAGE: &str = "\
usage: userdma-vt -d ADDRESS[,ADDRESS...] [-s SERVER-IP -o OP[,OP...]] [options]
both    -d OWN ADDRESS  -p TCP-PORT (18515)  -m PATH-MTU (1024)  -P first PSN (0x1000)  -T ack timeout (14)
        -r retry count (7)  -R RNR retry (7)  -N min RNR timer (12)  -a outstanding READs and atomics (4)
        -b region, MiB (8)  -w N type 2 memory windows over the server's region  -X WHAT plant a wrong byte
        -B poll instead of sleeping  -c FILE capture  -F FAULTS of received packets, as loss=0.01,seed=7
        -n N connections at once (1), on TCP ports from -p on  -t SERVICE rc, uc or ud (rc)
server  -q receives kept posted (16)  -z size of each (64 KiB)  -D MS post them later
        -E receives may end in error  -A rights of the region (wra)  -Z sleep until the client is done
client  -S signal every operation  -1 one operation at a time";

/// Where a wrong byte is planted, to see that it is noticed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plant {
    /// In each payload, before it is sent.
    Src,
    /// In what a READ or an atomic brought.
    Read,
    /// In each received payload.
    Recv,
    /// Before each receive.
    Guard,
    /// In the region, where nobody wrote.
    Region,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) device: String,
    pub(crate) server: Option<IpAddr>,
    pub(crate) operations: String,
    pub(crate) tcp_port: u16,
    pub(crate) service: QpType,
    /// Connections at once.
    pub(crate) count: u16,
    pub(crate) mtu: Mtu,
    pub(crate) psn: Psn,
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) depth: u8,
    pub(crate) region_len: usize,
    pub(crate) windows: usize,
    pub(crate) plant: Option<Plant>,
    pub(crate) polls: bool,
    pub(crate) capture: Option<PathBuf>,
    pub(crate) faults: Option<String>,
    pub(crate) receives: usize,
    pub(crate) receive_len: usize,
    pub(crate) receive_delay: Option<Duration>,
    pub(crate) errors_expected: bool,
    pub(crate) rights: AccessFlags,
    pub(crate) sleeps: bool,
    pub(crate) signals_all: bool,
    pub(crate) one_by_one: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: String::new(),
            server: None,
            operations: "send".into(),
            tcp_port: 18515,
            service: QpType::Rc,
            count: 1,
            mtu: Mtu::Mtu1024,
            psn: Psn::new(0x1000),
            timeout: AckTimeout::new(14).unwrap_or_default(),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(12).unwrap_or_default(),
            depth: 4,
            region_len: 8 << 20,
            windows: 0,
            plant: None,
            polls: false,
            capture: None,
            faults: None,
            receives: 16,
            receive_len: 64 << 10,
            receive_delay: None,
            errors_expected: false,
            rights: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
            sleeps: false,
            signals_all: false,
            one_by_one: false,
        }
    }
}

impl Options {
    /// Reads the arguments.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(name) = arguments.next() {
            if !options.set_switch(&name) {
                let value = arguments.next().ok_or_else(|| format!("{name}: unknown, or without a value"))?;
                options.set_value(&name, &value).ok_or_else(|| format!("{name} {value}: not possible"))?;
            }
        }
        if options.device.is_empty() {
            return Err("-d is missing".into());
        }
        if options.tcp_port.checked_add(options.count).is_none() {
            return Err(format!("-n {}: no such ports from {} on", options.count, options.tcp_port));
        }
        Ok(options)
    }

    /// The options of each connection.
    pub(crate) fn connections(&self) -> impl Iterator<Item = Self> {
        (0..self.count).map(|i| Self { tcp_port: self.tcp_port + i, ..self.clone() })
    }

    fn set_switch(&mut self, name: &str) -> bool {
        let switch = match name {
            "-B" => &mut self.polls,
            "-E" => &mut self.errors_expected,
            "-Z" => &mut self.sleeps,
            "-S" => &mut self.signals_all,
            "-1" => &mut self.one_by_one,
            _ => return false,
        };
        *switch = true;
        true
    }

    fn set_value(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "-d" => self.device = value.into(),
            "-s" => self.server = Some(value.parse().ok()?),
            "-o" => self.operations = value.into(),
            "-p" => self.tcp_port = value.parse().ok()?,
            "-t" => self.service = service(value)?,
            "-n" => self.count = value.parse().ok().filter(|n| (1..=64).contains(n))?,
            "-m" => self.mtu = Mtu::from_bytes(value.parse().ok()?)?,
            "-P" => self.psn = Psn::new(u32::try_from(number(value)?).ok()?),
            "-T" => self.timeout = AckTimeout::new(value.parse().ok()?)?,
            "-r" => self.retry_cnt = value.parse().ok()?,
            "-R" => self.rnr_retry = value.parse().ok()?,
            "-N" => self.min_rnr_timer = RnrTimer::new(value.parse().ok()?)?,
            "-a" => self.depth = value.parse().ok()?,
            "-b" => self.region_len = value.parse::<usize>().ok()?.checked_mul(1 << 20)?,
            "-w" => self.windows = value.parse().ok()?,
            "-X" => self.plant = Some(plant(value)?),
            "-c" => self.capture = Some(value.into()),
            "-F" => self.faults = Some(value.into()),
            "-q" => self.receives = value.parse().ok().filter(|n| (1..=256).contains(n))?,
            "-z" => self.receive_len = usize::try_from(number(value)?).ok()?,
            "-D" => self.receive_delay = Some(Duration::from_millis(number(value)?)),
            "-A" => self.rights = rights(value)?,
            _ => return None,
        }
        Some(())
    }
}

fn plant(value: &str) -> Option<Plant> {
    let plants = [
        ("src", Plant::Src),
        ("read", Plant::Read),
        ("recv", Plant::Recv),
        ("guard", Plant::Guard),
        ("region", Plant::Region),
    ];
    plants.into_iter().find(|(name, _)| *name == value).map(|(_, plant)| plant)
}

fn service(value: &str) -> Option<QpType> {
    match value {
        "rc" => Some(QpType::Rc),
        "uc" => Some(QpType::Uc),
        "ud" => Some(QpType::Ud),
        _ => None,
    }
}

fn rights(value: &str) -> Option<AccessFlags> {
    value.chars().try_fold(AccessFlags::empty(), |rights, letter| match letter {
        'w' => Some(rights | AccessFlags::REMOTE_WRITE),
        'r' => Some(rights | AccessFlags::REMOTE_READ),
        'a' => Some(rights | AccessFlags::REMOTE_ATOMIC),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_as_vt_reads_them() {
        let options =
            parse("-d 10.99.0.1 -s 10.99.0.2 -o read:all -m 4096 -P 0xfffffd -w 3 -z 100 -E -A r").unwrap();
        assert_eq!(options.server, "10.99.0.2".parse().ok());
        assert_eq!((options.mtu, options.psn), (Mtu::Mtu4096, Psn::new(0xff_fffd)));
        assert_eq!((options.windows, options.receive_len, options.errors_expected), (3, 100, true));
        assert_eq!(options.rights, AccessFlags::REMOTE_READ);
        assert_eq!((options.service, parse("-d x -t uc").unwrap().service), (QpType::Rc, QpType::Uc));
    }

    #[test]
    fn each_connection_has_a_port_of_its_own() {
        let ports = |line| parse(line).unwrap().connections().map(|c| c.tcp_port).collect::<Vec<_>>();
        assert_eq!(ports("-d x"), [18515]);
        assert_eq!(ports("-d x -p 100 -n 3"), [100, 101, 102]);
    }

    #[test]
    fn what_is_not_possible_is_refused_with_its_value() {
        assert_eq!(parse("-d x -m 1000").err().as_deref(), Some("-m 1000: not possible"));
        assert!(parse("-d x -n 0").is_err() && parse("-d x -p 65535 -n 2").is_err());
        assert!(parse("").is_err() && parse("-d x -q 0").is_err() && parse("-d x -Q").is_err());
        assert!(parse("-d x -t xrc").is_err());
    }
}
