//! The vocabulary of RDMA verbs: identifiers, access rights, states, work requests, completions.
//!
//! Floor 0: plain values and conversions, no behaviour beyond them, no IO and no clock. Numeric
//! values are those of `<infiniband/verbs.h>`, so that a C caller's structures convert without tables.

#![forbid(unsafe_code)]

mod access;
mod attr;
pub mod dice;
mod error;
mod event;
mod id;
mod psn;
mod qp_state;
mod srq;
mod time;
mod transition;
mod wc;
mod wr;

pub use access::AccessFlags;
pub use attr::{
    AhAttr, DeviceAttr, GlobalRoute, Mtu, PortAttr, PortState, QpAttr, QpCap, QpInitAttr, RnrTimer,
};
pub use error::{
    BindMwError, CreateCqError, CreateQpError, Errno, ModifyQpError, ObjectError, PostError, RegMrError,
};
pub use event::AsyncEvent;
pub use id::{Gid, LKey, Lid, Msn, PKey, QKey, Qpn, RKey, Srqn};
pub use psn::Psn;
pub use qp_state::{QpAttrMask, QpState, QpType};
pub use srq::{CreateSrqError, ModifySrqError, SrqAttr, SrqAttrMask, SrqInitAttr};
pub use time::{AckTimeout, Time};
pub use transition::Transition;
pub use wc::{Wc, WcError, WcFlags, WcOpcode, WcStatus};
pub use wr::{AtomicOp, BindMw, MwType, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, WrOpcode};
