//! The structures of `<infiniband/verbs.h>`, as C programs lay them out.
//!
//! Names are the header's without their prefix. A test compares every size and offset with the header of the
//! distribution. Fields that only real providers use, and slots that nobody calls any more, are words.

mod attr;
mod context;
mod objects;
mod work;

pub(crate) use attr::{
    AhAttr, CqInitAttrEx, DeviceAttr, DeviceAttrEx, Gid, GidEntry, GlobalRoute, PortAttr, QpAttr, QpCap,
    QpInitAttr, QpInitAttrEx, SrqAttr, SrqInitAttr, SrqInitAttrEx,
};
pub(crate) use context::{Context, ContextOps, Device, VerbsContext};
pub(crate) use objects::{Ah, AsyncEvent, CompChannel, Cq, CqEx, DataBuf, Mr, Mw, Pd, Qp, QpEx, Srq};
pub(crate) use work::{BindMwInfo, MwBind, RecvWr, SendWr, Sge, Wc};

#[cfg(test)]
pub(crate) mod tests;
