//! Two devices in one process, connected, with futures.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "each test uses its part")]

use userdma::{AsyncCq, AsyncQp, Device, Error, Mr, Pd, QpBuilder, RtrAttr, RtsAttr};

use super::{ALL, pattern};

/// One side.
pub(crate) struct AsyncSide {
    pub(crate) qp: AsyncQp,
    pub(crate) cq: AsyncCq,
    pub(crate) pd: Pd,
    pub(crate) device: Device,
}

/// How a pair is made.
pub(crate) struct AsyncOptions {
    pub(crate) faults: &'static str,
    pub(crate) rtr: RtrAttr,
    pub(crate) rts: RtsAttr,
    pub(crate) qp: fn(QpBuilder) -> QpBuilder,
    pub(crate) cqe: u32,
    /// The devices' port, if it is not 4791, which is shared.
    pub(crate) private_port: Option<u16>,
    /// Who drives.
    pub(crate) cq: fn(&Device, u32) -> Result<AsyncCq, Error>,
}

impl Default for AsyncOptions {
    fn default() -> Self {
        Self {
            faults: "",
            rtr: RtrAttr::default(),
            rts: RtsAttr::default(),
            qp: |b| b,
            cqe: 256,
            private_port: None,
            cq: AsyncCq::with_thread,
        }
    }
}

/// Connected devices on 127.0.`net`.2 and 127.0.`net`.3. Each test has a net of its own.
pub(crate) fn async_pair(net: u8) -> (AsyncSide, AsyncSide) {
    async_pair_with(net, &AsyncOptions::default())
}

pub(crate) fn async_pair_with(net: u8, options: &AsyncOptions) -> (AsyncSide, AsyncSide) {
    let open = |host| {
        let builder = Device::builder().address([127, 0, net, host]).faults(options.faults);
        options.private_port.map_or(builder.clone(), |port| builder.private_port(port)).open().unwrap()
    };
    let (a, b) = (open(2), open(3));
    let (a_cq, b_cq) = ((options.cq)(&a, options.cqe).unwrap(), (options.cq)(&b, options.cqe).unwrap());
    connect_async((a, a_cq), (b, b_cq), options)
}

pub(crate) fn connect_async(
    a: (Device, AsyncCq),
    b: (Device, AsyncCq),
    options: &AsyncOptions,
) -> (AsyncSide, AsyncSide) {
    let make = |(device, cq): (Device, AsyncCq)| {
        let pd = device.alloc_pd().unwrap();
        let qp = cq.create_qp(&pd, options.qp).unwrap();
        (device, pd, cq, qp)
    };
    let (a, b) = (make(a), make(b));
    let (to_a, to_b) = (a.3.endpoint(), b.3.endpoint());
    let up = |(device, pd, cq, qp): (_, _, _, AsyncQp<userdma::Init>), peer| {
        let qp = qp.connect_with(&peer, &options.rtr, &options.rts).unwrap();
        AsyncSide { device, pd, cq, qp }
    };
    (up(a, to_b), up(b, to_a))
}

impl AsyncSide {
    /// A region with all rights, filled with a pattern.
    pub(crate) fn mr(&self, len: usize, seed: u8) -> Mr {
        let mr = self.pd.alloc(len, ALL).unwrap();
        mr.write(0, &pattern(len, seed)).unwrap();
        mr
    }
}
