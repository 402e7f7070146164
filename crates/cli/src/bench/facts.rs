//! Where and when a run was made.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use userdma_agent::{ClaimConfig, Embedded};
use userdma_link::{UdpConfig, clock};

/// The machine, as far as it bears upon figures. What it does not tell is empty.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Facts {
    /// Day, as `2026-11-30` (UTC).
    pub(crate) date: String,
    /// Of this program.
    pub(crate) version: String,
    /// Whether this program was built with optimization.
    pub(crate) is_optimized: bool,
    /// Kernel, as `Linux 6.18.44`.
    pub(crate) kernel: String,
    /// Model of the first CPU.
    pub(crate) cpu: String,
    /// CPUs that this process may use.
    pub(crate) cpus: usize,
    /// The two CPUs that the two sides are pinned to; `None` where there are not two or the system refuses.
    pub(crate) pinned: Option<[usize; 2]>,
    /// What the kernel reads the time from, as `tsc`.
    pub(crate) clock_source: String,
    /// Congestion control of TCP.
    pub(crate) tcp_congestion_control: String,
    /// `net.core.rmem_max`, bytes.
    pub(crate) rmem_max: Option<usize>,
    /// `net.core.wmem_max`, bytes.
    pub(crate) wmem_max: Option<usize>,
    /// Bytes for received packets that a device gets here.
    pub(crate) recv_buffer: Option<usize>,
    /// Share of all CPU time that others used, or the host took away, in a moment before each round: 0 … 1.
    pub(crate) others: Vec<f64>,
}

impl Facts {
    /// Looks around.
    pub(super) fn look(cpus: usize, pinned: Option<[usize; 2]>) -> Self {
        Self {
            date: date((clock::now().nanos() + clock::wall_offset_ns()) / 1_000_000_000),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            is_optimized: !cfg!(debug_assertions),
            kernel: ["ostype", "osrelease"].map(|name| read(&format!("/proc/sys/kernel/{name}"))).join(" "),
            cpu: cpu_model().unwrap_or_default(),
            cpus,
            pinned,
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            tcp_congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            rmem_max: read("/proc/sys/net/core/rmem_max").parse().ok(),
            wmem_max: read("/proc/sys/net/core/wmem_max").parse().ok(),
            recv_buffer: recv_buffer(),
            others: Vec::new(),
        }
    }

    /// Notes what others do while this program does nothing.
    pub(super) fn look_at_others(&mut self) {
        let before = busy();
        std::thread::sleep(Duration::from_millis(200));
        if let Some(([busy_before, all_before], [busy_now, all_now])) = before.zip(busy()) {
            let all = all_now.saturating_sub(all_before).max(1);
            self.others.push(busy_now.saturating_sub(busy_before) as f64 / all as f64);
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What a device's socket gets.
fn recv_buffer() -> Option<usize> {
    let udp = UdpConfig { port: 0, ..UdpConfig::default() };
    let claim = ClaimConfig { addresses: vec![IpAddr::from([127, 0, 0, 1])], udp, ..ClaimConfig::default() };
    Some(Embedded::claim(&claim).ok()?.links.first()?.recv_buffer().granted)
}

/// Ticks of all CPUs: not idle, and all. The first line of `/proc/stat`: user nice system idle iowait irq softirq steal.
fn busy() -> Option<[u64; 2]> {
    busy_of(fs::read_to_string("/proc/stat").ok()?.lines().next()?)
}

fn busy_of(line: &str) -> Option<[u64; 2]> {
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map_while(|n| n.parse().ok()).collect();
    let [_, _, _, idle, iowait, ..] = ticks[..] else { return None };
    let all = ticks.iter().sum();
    Some([all - idle - iowait, all])
}

/// The day (UTC) of a second since 1970, in the Gregorian calendar.
fn date(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let mut year = 1970;
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted() {
        let days = [0, 951_782_400, 951_868_800, 1_798_675_199, 1_798_675_200].map(date);
        assert_eq!(days, ["1970-01-01", "2000-02-29", "2000-03-01", "2026-12-30", "2026-12-31"]);
    }

    #[test]
    fn busy_is_what_is_not_idle() {
        assert_eq!(busy_of("cpu  10 1 5 80 4 0 2 3 0 0"), Some([21, 105]));
        assert_eq!(busy_of("cpu"), None);
    }

    #[test]
    fn the_machine_is_known() {
        let facts = Facts::look(2, None);
        assert!(facts.kernel.starts_with("Linux ") && facts.recv_buffer.is_some(), "{facts:?}");
    }
}
