//! What slows this machine down and can be changed.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use userdma_agent::{ClaimConfig, Embedded};
use userdma_link::UdpConfig;

use super::port::Holder;

/// Something to do, and the command that does it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(super) struct Advice {
    /// What is so, and what it costs.
    pub(super) what: String,
    /// The command, if there is one.
    pub(super) command: Option<String>,
}

/// What the kernel does for a device's socket, found out by opening one on a port of the kernel's choice.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(super) struct Probe {
    /// Whether the kernel cuts super-packets (GSO).
    gso: Option<bool>,
    /// Whether the kernel joins packets (GRO).
    gro: Option<bool>,
    /// Bytes that may wait to be received.
    receive_buffer: Option<usize>,
    /// Why nothing is known.
    error: Option<String>,
}

impl Probe {
    pub(super) fn of(address: Option<IpAddr>) -> Self {
        let udp = UdpConfig { port: 0, ..UdpConfig::default() };
        let claimed = Embedded::claim(&ClaimConfig {
            addresses: address.into_iter().collect(),
            udp,
            ..ClaimConfig::default()
        });
        match claimed {
            Err(error) => Self { error: Some(error.to_string()), ..Self::default() },
            Ok(claimed) => claimed.links.first().map_or_else(Self::default, |link| Self {
                gso: Some(link.caps().max_batch_packets > 1),
                gro: Some(link.can_coalesce()),
                receive_buffer: Some(link.recv_buffer().granted),
                error: None,
            }),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            return write!(f, "cannot be asked: {error}");
        }
        let word = |is_there: Option<bool>| if is_there == Some(true) { "yes" } else { "NO" };
        write!(f, "many packets per send (GSO): {}, per receive (GRO): {}", word(self.gso), word(self.gro))?;
        write!(f, ", receive buffer {} KiB", self.receive_buffer.unwrap_or(0) >> 10)
    }
}

/// What the kernel is set to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Settings {
    rmem_max: Option<usize>,
    wmem_max: Option<usize>,
    cpus: usize,
    probe: (Option<bool>, Option<bool>),
}

impl Settings {
    pub(super) fn read() -> Self {
        let number = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
            text.trim().parse().ok()
        };
        let probe = Probe::of(Some(IpAddr::from([127, 0, 0, 1])));
        Self {
            rmem_max: number("rmem_max"),
            wmem_max: number("wmem_max"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            probe: (probe.gso, probe.gro),
        }
    }
}

/// Everything that could be better.
pub(super) fn all(settings: &Settings, holders: &[Holder]) -> Vec<Advice> {
    let mut list = Vec::new();
    let wanted = UdpConfig::default();
    let buffers = [
        (
            "rmem_max",
            settings.rmem_max,
            wanted.recv_buffer,
            "received",
            "packets are lost under load and sent again",
        ),
        ("wmem_max", settings.wmem_max, wanted.send_buffer, "sent", "senders stop more often"),
    ];
    for (name, is, wanted, done, cost) in buffers {
        if let Some(is) = is.filter(|is| *is < wanted) {
            list.push(Advice {
                what: format!("only {} KiB may wait to be {done} (net.core.{name} = {is}): {cost}", is >> 10),
                command: Some(format!("sudo sysctl -w net.core.{name}={wanted}")),
            });
        }
    }
    let kernel = [
        (settings.probe.0, "cut super-packets (GSO)", "4.18"),
        (settings.probe.1, "join packets (GRO)", "5.0"),
    ];
    for (is_there, what, since) in kernel {
        if is_there == Some(false) {
            list.push(Advice {
                what: format!("this kernel does not {what} for UDP sockets, Linux {since} and later do: large messages are slow"),
                command: None,
            });
        }
    }
    if settings.cpus < 2 {
        list.push(Advice {
            what: "one CPU only: programs that poll take turns with the peers that they wait for".to_owned(),
            command: None,
        });
    }
    if holders.iter().any(Holder::is_in_the_way) {
        list.push(Advice {
            what: "UDP port 4791 is taken on all addresses: no device can be opened until it is free"
                .to_owned(),
            command: holders.iter().find_map(Holder::way_out),
        });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Settings = Settings {
        rmem_max: Some(4 << 20),
        wmem_max: Some(1 << 20),
        cpus: 2,
        probe: (Some(true), Some(true)),
    };

    #[test]
    fn a_good_machine_gets_no_advice() {
        assert_eq!(all(&GOOD, &[]), []);
        assert_eq!(all(&Settings { rmem_max: None, wmem_max: None, ..GOOD }, &[]), [], "unknown is not bad");
    }

    #[test]
    fn small_buffers_are_answered_with_the_command() {
        let small = Settings { rmem_max: Some(212_992), ..GOOD };
        let advice = all(&small, &[]);
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].command.as_deref(), Some("sudo sysctl -w net.core.rmem_max=4194304"));
        assert!(advice[0].what.contains("208 KiB"), "{}", advice[0].what);
    }

    #[test]
    fn each_lack_is_named_once() {
        let bad =
            Settings { rmem_max: Some(1), wmem_max: Some(1), cpus: 1, probe: (Some(false), Some(false)) };
        assert_eq!(all(&bad, &[Holder::example("0.0.0.0")]).len(), 6);
        assert_eq!(all(&GOOD, &[Holder::example("127.0.0.2")]), [], "another address is in nobody's way");
    }
}
