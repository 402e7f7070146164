//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// RDMA over Converged Ethernet without RDMA hardware.
///
/// RDMA lets one program read and write the memory of another, on the same machine or across a network, without that
/// program's help. Usually a special network card does it; userdma does it in software, on any Linux interface and
/// without privileges. Its packets are real RoCE v2: a Linux kernel (module rdma_rxe) or an RDMA card understands them.
///
/// Without a command it runs the demo: two processes, real packets, everything explained and checked.
#[derive(Debug, Parser)]
#[command(name = "userdma", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do; `demo` if it is left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show RDMA at work between two processes of this machine, step by step, and measure it
    Demo(DemoArgs),
    /// List the devices of this machine, and what could be set up better
    Devices(DevicesArgs),
    /// Run a program that uses RDMA verbs (libibverbs) over this machine's addresses
    Run(RunArgs),
    /// Decode a capture file (pcap or pcapng) with RoCE v2 packets
    Capture(CaptureArgs),
    /// Measure beside raw sockets and other programs
    Bench(BenchArgs),
    /// Share the addresses of this machine among all its users
    Agent(AgentArgs),
    /// The process that keeps the agent's sockets; started by it.
    #[command(hide = true)]
    AgentKeeper,
    /// The demo's second process; started by the demo.
    #[command(hide = true)]
    DemoPeer(PeerArgs),
    /// Another program beside the benchmark; started by it.
    #[command(hide = true)]
    BenchChild(ChildArgs),
    /// The process that measures what objects cost; started by the benchmark.
    #[command(hide = true)]
    BenchObjects,
}

/// Show RDMA at work between two processes of this machine, step by step, and measure it.
///
/// The demo starts a second process. The two use two loopback addresses, 127.0.0.2 and 127.0.0.3, as if they were two
/// hosts, and talk through real RoCE v2 packets (UDP port 4791), which are captured and shown. Every byte that arrives
/// is compared with what was sent. At the end a table compares RDMA with kernel TCP, measured in the same run.
///
/// It ends with status 0 only if every step happened and every byte was right.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Keep the packets of the steps in this pcapng file (read it with `userdma capture`, Wireshark or tshark)
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Measure for about this long, in seconds; 0 leaves the measurement out
    #[arg(long, value_name = "N", default_value = "8", value_parser = seconds)]
    pub seconds: f64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The two addresses of this machine to use, as `127.0.0.2,127.0.0.3`; found by themselves if left out
    #[arg(long, value_name = "A,B", value_parser = two_addresses)]
    pub addresses: Option<[IpAddr; 2]>,
    /// Damage a byte of memory just before the step with this name is checked, to see that the demo notices
    #[arg(long, value_name = "STEP", hide = true)]
    pub plant_fault: Option<String>,
    /// Give up on a step after this long, in seconds
    #[arg(long, value_name = "N", default_value = "10", value_parser = seconds, hide = true)]
    pub step_timeout: f64,
}

impl Default for DemoArgs {
    fn default() -> Self {
        Self {
            capture: None,
            seconds: 8.0,
            json: false,
            addresses: None,
            plant_fault: None,
            step_timeout: 10.0,
        }
    }
}

/// List the devices of this machine, and what could be set up better.
///
/// Every interface that is up and has an address is a device: `roce_eth0` for eth0. Its GIDs are its addresses; the index
/// of a GID is what other RDMA programs call `sgid_index` or `-g`.
#[derive(Args, Clone, Debug)]
pub struct DevicesArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// Run a program that uses RDMA verbs (libibverbs) over this machine's addresses.
///
/// The program, and whatever it starts, finds our library in place of the distribution's and with it one device for each
/// interface, or those that `--device` names. The program itself is not changed, and needs no privileges. Its exit status is
/// that of this command.
///
/// Two programs on one machine may share an address, or have one each, as if they ran on two hosts:
///
///   userdma run -- ib_write_bw
///   userdma run -- ib_write_bw 127.0.0.1
///
///   userdma run --device 127.0.0.2 -- ib_write_bw
///   userdma run --device 127.0.0.3 -- ib_write_bw 127.0.0.1
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct RunArgs {
    /// A device: an address as `127.0.0.2`, several of them as `10.0.0.1,2001:db8::1`, or a name as `roce_eth0`; may be given
    /// several times [default: one device for each interface]
    #[arg(long, value_name = "SPEC")]
    pub device: Vec<String>,
    /// Write every packet to this pcapng file; `%p` in the name is the process. A second process with the same name appends
    /// `.` and its number
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// What the devices do to the packets they receive, as `loss=0.01,seed=7`: loss, dup, reorder, corrupt, delay_share and rnr
    /// are probabilities, delay is a time as `1ms`, down two of them as `2s..3s`
    #[arg(long, value_name = "FAULTS")]
    pub fault: Option<String>,
    /// What is told on standard error, or in the file that USERDMA_LOG_FILE names: `warn` explains each call that fails and each
    /// completion with an error
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
    /// Use a UDP port of your own instead of 4791, which may be another user's: only devices of yours are reached
    #[arg(long)]
    pub private: bool,
    /// Give each device a LID, the lower half of its IPv4 address, for programs that know no other address of a peer: qperf, and
    /// pingpongs without `-g`. Both sides need it
    #[arg(long)]
    pub lids: bool,
    /// Show RDMA hardware of this machine beside our devices
    #[arg(long)]
    pub with_real: bool,
    /// Not there yet
    #[arg(long, hide = true)]
    pub shared_buffers: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// How much the library tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What keeps a device from working.
    Error,
    /// Calls that fail and completions with an error, too.
    Warn,
    /// Devices that are opened and states of queue pairs, too.
    Info,
    /// Everything.
    Debug,
}

impl LogLevel {
    /// As `USERDMA_LOG` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Decode a capture file (pcap or pcapng) with RoCE v2 packets: one line for each.
///
/// A line has the frame's number, the time since the first frame in seconds, the addresses, the opcode, the queue pair that
/// the packet goes to (qpn), its sequence number (psn), and what else it says. `[icrc good]` tells that the invariant CRC,
/// which ends every packet, fits. `again` marks what was sent before.
///
/// Captures come from `userdma demo --capture FILE`, or from `tcpdump -w FILE udp port 4791`.
#[derive(Args, Clone, Debug)]
pub struct CaptureArgs {
    /// The capture file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print all header fields and the first payload bytes of each packet
    #[arg(short, long)]
    pub verbose: bool,
    /// Only packets of this queue pair, as 17 or 0x11: those that go to it, and those that are known to come from it
    #[arg(long, value_name = "QPN", value_parser = number)]
    pub qpn: Option<u32>,
    /// Print a summary instead: packets of each opcode, retransmissions, NAKs, connections
    #[arg(long)]
    pub stats: bool,
    /// The UDP port that RoCE v2 was spoken on
    #[arg(long, value_name = "PORT", default_value_t = userdma_wire::ROCE_V2_PORT)]
    pub port: u16,
}

/// Measure beside raw sockets and other programs, in the same run.
///
/// Two processes, each on a CPU of its own, measure in turns what this library does and what plain sockets do that carry the
/// same bytes; iperf3, qperf, ucx_perftest and fi_pingpong are run beside them where they are installed. Machines drift; the
/// ratio of neighbouring measurements is what counts.
///
/// It ends with status 1 if something could not be measured.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Rounds; each measures everything once [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Milliseconds that one measurement takes [default: 300]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub slice: Option<u64>,
    /// Two rounds of 20 ms: to see that everything works; nothing is judged
    #[arg(long, conflicts_with = "check")]
    pub quick: bool,
    /// Only comparisons of this goal, as `U3`, or whose name contains this, as `8 bytes`; `curves`; `objects`
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Show what is compared, and measure nothing
    #[arg(long)]
    pub list: bool,
    /// End with status 1 unless the ratios are what they must be
    #[arg(long)]
    pub check: bool,
    /// Write all values of all rounds, and what machine it was, to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write pictures of latency and bandwidth over message size into this folder
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Write a page for people to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Measure nothing, read what `--json` has written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rounds", "slice", "quick", "addresses"])]
    pub from: Option<PathBuf>,
    /// The two addresses of this machine to use, as `127.0.0.2,127.0.0.3`
    #[arg(long, value_name = "A,B", value_parser = two_addresses)]
    pub addresses: Option<[IpAddr; 2]>,
}

/// Share the addresses of this machine among all its users, until it is stopped.
///
/// Without it, the RoCE port (UDP 4791) of an address belongs to the user whose process was there first, and others are kept
/// from it. With it, programs of every user use the port together; they find it by themselves. Programs trust it if it runs as
/// root or as their own user; one of another user is named to them by USERDMA_AGENT=service=UID.
///
/// It may be stopped, killed and started again while programs are connected. What happens is told on standard error.
///
/// SIGTERM, SIGINT and SIGHUP end it with status 0. The status is 1 if it cannot start, as when another one runs.
#[derive(Args, Clone, Debug)]
pub struct AgentArgs {
    /// Devices that one user may have open on one address
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=1022))]
    pub devices_per_user: u16,
}

/// How another program is started beside us.
#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// The process with which it is to end
    #[arg(long)]
    pub parent: u32,
    /// The CPU to stay on
    #[arg(long)]
    pub cpu: Option<usize>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// How the demo's second process is started.
#[derive(Args, Clone, Debug)]
pub struct PeerArgs {
    /// Where the demo listens
    #[arg(long)]
    pub control: std::net::SocketAddr,
    /// This process's address
    #[arg(long)]
    pub address: IpAddr,
    /// A private UDP port in place of 4791
    #[arg(long)]
    pub port: Option<u16>,
    /// The CPU to stay on
    #[arg(long)]
    pub cpu: Option<usize>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0 to 3600 is possible".to_owned()) }
}

fn two_addresses(text: &str) -> Result<[IpAddr; 2], String> {
    let address =
        |text: &str| text.trim().parse::<IpAddr>().map_err(|_| format!("`{text}` is no IP address"));
    let (a, b) = text.split_once(',').ok_or("two addresses are needed, as 127.0.0.2,127.0.0.3")?;
    match (address(a)?, address(b)?) {
        (a, b) if a == b => Err("the two hosts need two addresses".to_owned()),
        (a, b) if a.is_ipv4() != b.is_ipv4() => {
            Err(format!("{a} and {b} do not reach each other: both must be IPv4, or both IPv6"))
        }
        (a, b) => Ok([a, b]),
    }
}

/// A number of 24 bits, decimal or with 0x.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(n) if n < 1 << 24 => Ok(n),
        Ok(_) => Err("a queue pair number has 24 bits: at most 0xffffff".to_owned()),
        Err(_) => Err("not a number like 17 or 0x11".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn the_demo_without_arguments_is_the_default_demo() {
        let Ok(Cli { command: Some(Command::Demo(parsed)) }) = Cli::try_parse_from(["userdma", "demo"])
        else {
            panic!("`userdma demo` is understood");
        };
        assert_eq!(format!("{parsed:?}"), format!("{:?}", DemoArgs::default()));
    }

    #[test]
    fn two_hosts_are_two_addresses() {
        let [a, b] = [1, 2].map(|low| IpAddr::from([127, 0, 0, low]));
        assert_eq!(two_addresses("127.0.0.1,127.0.0.2"), Ok([a, b]));
        assert_eq!(two_addresses("127.0.0.1, 127.0.0.2"), Ok([a, b]));
        assert_eq!(two_addresses("::1,fd00::2").map(|[a, _]| a), Ok("::1".parse().unwrap()));
        let families = two_addresses("127.0.0.2,::1").unwrap_err();
        assert_eq!(families, "127.0.0.2 and ::1 do not reach each other: both must be IPv4, or both IPv6");
        for wrong in
            ["", ",", "127.0.0.1", "127.0.0.1,127.0.0.1", "127.0.0.1,x", "127.0.0.1,127.0.0.2,127.0.0.3"]
        {
            assert!(two_addresses(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn queue_pair_numbers_are_decimal_or_hexadecimal_and_have_24_bits() {
        assert_eq!(number("17"), Ok(17));
        assert_eq!(number("0x11"), Ok(17));
        assert!(number("0x1000000").is_err() && number("x").is_err() && number("-1").is_err());
    }
}
