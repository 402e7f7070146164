//! Two devices in one process, connected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod asynch;
pub(crate) mod offer;
pub(crate) mod stream;

use std::time::Duration;

use userdma::{
    AccessFlags, Cq, Device, DeviceBuilder, Mr, Pd, Qp, QpBuilder, RtrAttr, Rts, RtsAttr, Wc, WcStatus,
};

/// Everything remote and local.
pub(crate) const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Longer than anything here takes.
pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// One side.
pub(crate) struct Side {
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp<Rts>,
}

/// How a pair is made.
pub(crate) struct Options {
    pub(crate) faults: &'static str,
    pub(crate) rtr: RtrAttr,
    pub(crate) rts: RtsAttr,
    pub(crate) qp: fn(QpBuilder) -> QpBuilder,
    pub(crate) cqe: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { faults: "", rtr: RtrAttr::default(), rts: RtsAttr::default(), qp: |b| b, cqe: 1024 }
    }
}

/// Connected devices on 127.0.`net`.2 and 127.0.`net`.3. Each test has a net of its own.
pub(crate) fn pair(net: u8) -> (Side, Side) {
    pair_with(net, &Options::default())
}

pub(crate) fn pair_with(net: u8, options: &Options) -> (Side, Side) {
    let open = |host| Device::builder().address([127, 0, net, host]).faults(options.faults).open().unwrap();
    connect(&open(2), &open(3), options)
}

pub(crate) fn pair_on(a: DeviceBuilder, b: DeviceBuilder) -> (Side, Side) {
    connect(&a.open().unwrap(), &b.open().unwrap(), &Options::default())
}

pub(crate) fn connect(a: &Device, b: &Device, options: &Options) -> (Side, Side) {
    let make = |device: &Device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(options.cqe).unwrap();
        let qp = (options.qp)(pd.create_qp(&cq, &cq)).build().unwrap();
        (device.clone(), pd, cq, qp)
    };
    let (a, b) = (make(a), make(b));
    let (to_a, to_b) = (a.3.endpoint(), b.3.endpoint());
    let up = |(device, pd, cq, qp): (_, _, _, Qp<userdma::Init>), peer| {
        let qp = qp.connect_with(&peer, &options.rtr, &options.rts).unwrap();
        Side { device, pd, cq, qp }
    };
    (up(a, to_b), up(b, to_a))
}

impl Side {
    /// A region with all rights, filled with a pattern.
    pub(crate) fn mr(&self, len: usize, seed: u8) -> Mr {
        let mr = self.pd.alloc(len, ALL).unwrap();
        mr.write(0, &pattern(len, seed)).unwrap();
        mr
    }

    /// The next completion, which must be a success.
    pub(crate) fn done(&self, wr_id: u64) -> Wc {
        let wc = self.next();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc:?}");
        wc
    }

    /// The next completion.
    pub(crate) fn next(&self) -> Wc {
        self.cq.wait_for(1, LONG).unwrap().pop().expect("a completion comes")
    }

    /// The next completion, by polling.
    pub(crate) fn poll(&self) -> Wc {
        loop {
            if let Some(wc) = self.cq.poll_one().unwrap() {
                return wc;
            }
        }
    }
}

/// Bytes that differ from those of other seeds and offsets.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0] ^ seed).collect()
}

/// What an array of completions starts with.
pub(crate) const EMPTY: Wc = Wc::new(0, WcStatus::GeneralErr, userdma::WcOpcode::Send, userdma::Qpn::new(0));
