//! RDMA over Converged Ethernet without RDMA hardware: queue pairs, memory regions and completion queues in safe Rust,
//! on any Linux interface, unprivileged.
//!
//! New to RDMA? The [`guide`] says what a program does in which order, what success means, and how to notice that a peer is
//! gone; the [`glossary`] has the words. `examples/remote_struct.rs` is a whole program with its errors handled.
//!
//! # Objects
//!
//! A [`Device`] has protection domains ([`Pd`]), in which memory is registered ([`Mr`]) and queue pairs are made: [`AsyncQp`],
//! whose operations are futures, or [`Qp`], to which work requests are posted. What has ended appears in a completion
//! queue: [`AsyncCq`] resolves futures with it, [`Cq`] is polled or waited for. Two queue pairs are connected when each
//! side has told the other its [`Endpoint`] and, for one-sided operations, a [`RemoteMr`]; [`exchange`] does it over TCP. Or
//! one side has a [`Listener`], and the other asks it for a [`Connection`], by address and port. [`RdmaStream`] is what a TCP
//! socket is: bytes, and nothing of the above.
//!
//! They have the names of the verbs. What the types guarantee: memory that a device or a peer may change is never borrowed,
//! only copied; a posted operation holds its memory until its completion; a queue pair that is not connected has no
//! `post_send`.
//!
//! # With futures
//!
//! ```
//! use futures_executor::block_on;
//! use userdma::{AccessFlags, AsyncCq, Device, Inline};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Both sides in one program; the guide has them apart.
//! let (here, there) = (Device::open("127.0.21.20")?, Device::open("127.0.21.21")?);
//! let (cq, their_cq) = (AsyncCq::with_thread(&here, 256)?, AsyncCq::with_thread(&there, 256)?);
//! let (pd, their_pd) = (here.alloc_pd()?, there.alloc_pd()?);
//! let (qp, their_qp) = (cq.create_qp(&pd, |qp| qp)?, their_cq.create_qp(&their_pd, |qp| qp)?);
//! let (to_us, to_them) = (qp.endpoint(), their_qp.endpoint());
//! let (qp, _their_qp) = (qp.connect(&to_them)?, their_qp.connect(&to_us)?);
//!
//! // The owner of the memory takes no part in what follows.
//! let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
//! let theirs = their_pd.alloc(4096, rights)?;
//! let ours = pd.alloc(5, AccessFlags::LOCAL_WRITE)?;
//! block_on(async {
//!     qp.write(Inline(b"hello"), theirs.remote()).await?;
//!     qp.read(ours.slice(..), theirs.remote()).await
//! })?;
//! assert_eq!(ours.to_vec(..)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Blocking or polling
//!
//! ```no_run
//! use std::net::TcpStream;
//! use userdma::{AccessFlags, Device, Inline, SendFlags, exchange};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("127.0.0.2")?;
//! let pd = device.alloc_pd()?;
//! let cq = device.create_cq(256)?;
//! let qp = pd.create_qp(&cq, &cq).build()?;
//!
//! let mr = pd.alloc(4096, AccessFlags::LOCAL_WRITE)?;
//! qp.post_recv(1, &mr.slice(..))?; // before the peer may send
//! let mut tcp = TcpStream::connect("127.0.0.3:7471")?;
//! let peer = exchange(&mut tcp, &qp.endpoint())?;
//! let qp = qp.connect(&peer)?;
//!
//! qp.post_send(2, Inline(b"hello"), SendFlags::SIGNALED)?;
//! for wc in cq.wait_for(2, None)? {
//!     wc.check()?;
//!     println!("work request {} has ended, it was a {:?}", wc.wr_id, wc.opcode);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `tokio`: [`AsyncCq`] gets `with_tokio`, there is `exchange_async`, and streams are `AsyncRead` and `AsyncWrite`. Without it
//!   nothing of tokio is built.

#![deny(unsafe_code)]

mod ah;
mod asynch;
mod channel;
mod connect;
mod cq;
mod device;
mod error;
mod exchange;
mod ledger;
mod mr;
mod mw;
mod pd;
mod qp;
mod srq;

// Only with tokio do the guide's examples build; without it they are read.
#[cfg(any(not(doctest), feature = "tokio"))]
/// A program from its first call to its last: connecting, rights, what success means, time-outs, a peer that is gone, closing.
///
/// [glossary]: crate::glossary
#[doc = include_str!("../../../docs/guide.md")]
pub mod guide {}

/// The words: PD, MR, QP, CQ, WQE, GID, PSN, RNR and the others, each in a sentence or two.
///
/// [guide]: crate::guide
#[doc = include_str!("../../../docs/glossary.md")]
pub mod glossary {}

pub use ah::{Ah, UdDest};
#[cfg(feature = "tokio")]
pub use asynch::exchange_async;
pub use asynch::{
    AsyncCq, AsyncQp, AtomicRequest, BindRequest, BlockingStream, CqDriver, Payload, RdmaListener,
    RdmaReadHalf, RdmaStream, RdmaWriteHalf, Received, Receives, Slices, StreamAttr, StreamError,
    StreamOffer, StreamSetup, Turn, WorkRequest, WrError,
};
pub use channel::{CompChannel, CqEvent};
pub use connect::{ConnAttr, Connect, ConnectError, Connection, Depths, Listener, Request};
pub use cq::Cq;
pub use device::{Device, DeviceBuilder, devices};
pub use error::{Error, OpenError};
pub use exchange::{Endpoint, Exchange, exchange};
pub use mr::{DeregisterError, Mr, MrSlice, RemoteMr, SliceRange};
pub use mw::Mw;
pub use pd::Pd;
pub use qp::{
    Batch, Data, Init, Inline, Posts, Qp, QpBuilder, Rtr, RtrAttr, Rts, RtsAttr, SetupError, Sgl, UdQp,
    Unchecked,
};
pub use srq::Srq;
pub use userdma_host::cm::CmError;
pub use userdma_host::{DeviceInfo, FaultStats, Faults, HostError, Stats, uptime};
pub use userdma_mem::MemError;
pub use userdma_objects::Arm;
pub use userdma_verbs::{
    AccessFlags, AckTimeout, AhAttr, AsyncEvent, BindMwError, CreateCqError, CreateQpError, CreateSrqError,
    DeviceAttr, Errno, Gid, GlobalRoute, LKey, ModifyQpError, ModifySrqError, Mtu, ObjectError, PKey,
    PortAttr, PortState, PostError, Psn, QKey, QpAttr, QpAttrMask, QpCap, QpState, QpType, Qpn, RKey,
    RegMrError, RnrTimer, SendFlags, SrqAttr, Srqn, Wc, WcError, WcFlags, WcOpcode, WcStatus,
};
