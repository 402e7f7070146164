//! Links: where packets leave the process and come in, and the only crate that reads the clock.
//!
//! Floor 3. A link takes whole [`TxBatch`](userdma_mem::TxBatch)es and yields
//! [`Frame`](userdma_mem::Frame)s; it knows nothing of queue pairs. [`UdpLink`] carries RoCE v2 over a plain
//! UDP socket, unprivileged, with the kernel's segmentation and coalescing of datagrams as far as it has them.
//! What a socket hides (Ethernet, IP and UDP headers) a [`Tap`] makes up again for a capture file, and what a
//! good network never does a [`FaultInjector`] does from a seed.
//!
//! Nothing here allocates, locks or formats per packet, unless a tap or an injector is set.

pub mod clock;
pub mod descriptors;
mod fault;
pub mod guard;
mod iface;
mod link;
pub mod pcapng;
pub mod raw;
pub mod signals;
mod tap;
mod udp;

pub use fault::{FaultInjector, FaultStats, Faults, Outage, ParseFaultsError};
pub use iface::{Interface, InterfaceAddr, interface_of, interfaces};
pub use link::{Link, is_readable};
pub use tap::{Capture, MAX_LAG, Tap};
pub use udp::{
    Backlog, BufferSize, GsiReceiver, GsiSender, Neighbors, OpenError, RecvReport, SendReport, TX_SOCKETS,
    TooLong, UdpConfig, UdpLink, is_unicast, shared,
};
