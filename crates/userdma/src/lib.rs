//! RDMA over Converged Ethernet without RDMA hardware: queue pairs, memory regions and completion queues in safe Rust,
//! on any Linux interface, unprivileged.
//!
//! The objects and attributes have the names of the verbs. What the types guarantee: memory that a device or a peer
//! may change is never borrowed, only copied; a posted operation holds its memory until its completion; a queue pair
//! that is not connected has no `post_send`.
//!
//! ```no_run
//! use std::net::TcpStream;
//! use userdma::{AccessFlags, Device, Inline, SendFlags, exchange};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("127.0.0.2")?;
//! let pd = device.alloc_pd()?;
//! let cq = device.create_cq(16)?;
//! let qp = pd.create_qp(&cq, &cq).build()?;
//!
//! let mut tcp = TcpStream::connect("127.0.0.3:7471")?;
//! let peer = exchange(&mut tcp, &qp.endpoint())?;
//! let qp = qp.connect(&peer)?;
//!
//! let mr = pd.alloc(4096, AccessFlags::LOCAL_WRITE)?;
//! qp.post_recv(1, &mr.slice(..))?;
//! qp.post_send(2, Inline(b"hello"), SendFlags::SIGNALED)?;
//! for wc in cq.wait_for(2, None)? {
//!     println!("work request {} ended: {}", wc.wr_id, wc.status.as_str());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The same with futures, on any executor or none: [`AsyncCq`].

#![deny(unsafe_code)]

mod asynch;
mod channel;
mod cq;
mod device;
mod error;
mod exchange;
mod ledger;
mod mr;
mod mw;
mod pd;
mod qp;

#[cfg(feature = "tokio")]
pub use asynch::exchange_async;
pub use asynch::{
    AsyncCq, AsyncQp, AtomicRequest, BindRequest, CqDriver, Payload, Received, Receives, Slices, Turn,
    WorkRequest, WrError,
};
pub use channel::{CompChannel, CqEvent};
pub use cq::Cq;
pub use device::{Device, DeviceBuilder, devices};
pub use error::{Error, OpenError};
pub use exchange::{Endpoint, Exchange, exchange};
pub use mr::{DeregisterError, Mr, MrSlice, RemoteMr, SliceRange};
pub use mw::Mw;
pub use pd::Pd;
pub use qp::{
    Batch, Data, Init, Inline, Posts, Qp, QpBuilder, Rtr, RtrAttr, Rts, RtsAttr, SetupError, Sgl, Unchecked,
};
pub use userdma_host::{DeviceInfo, FaultStats, Faults, HostError, Stats, uptime};
pub use userdma_mem::MemError;
pub use userdma_objects::Arm;
pub use userdma_verbs::{
    AccessFlags, AckTimeout, AhAttr, AsyncEvent, BindMwError, CreateCqError, CreateQpError, DeviceAttr,
    Errno, Gid, GlobalRoute, LKey, ModifyQpError, Mtu, ObjectError, PKey, PortAttr, PortState, PostError,
    Psn, QpAttr, QpAttrMask, QpCap, QpState, Qpn, RKey, RegMrError, RnrTimer, SendFlags, Wc, WcError,
    WcFlags, WcOpcode, WcStatus,
};
