//! What A asks B, and what B answers.

use serde::{Deserialize, Serialize};
use userdma::Wc;

use super::pattern::{Difference, Part};
use crate::measure::Order;

/// A wish of A's.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Request {
    /// Open the device and register memory: [`Reply::Opened`].
    Open,
    /// Make a new queue pair in place of the one before: [`Reply::QpCreated`].
    CreateQp,
    /// Exchange endpoints over the connection and connect: [`Reply::Connected`], after the exchange.
    Connect,
    /// Post a receive into these places (offset, length): [`Reply::Done`].
    PostRecv {
        /// Its identifier.
        wr_id: u64,
        /// Where.
        list: Vec<(usize, usize)>,
    },
    /// Make the region what the parts say, zero elsewhere: [`Reply::Done`].
    Fill(Vec<Part>),
    /// Compare the region with what the parts say, zero elsewhere: [`Reply::Checked`].
    Check {
        /// What must be there.
        parts: Vec<Part>,
        /// Whether to damage a byte first.
        plant_fault: bool,
    },
    /// Wait for so many completions: [`Reply::Completions`].
    Completions(usize),
    /// Read eight bytes as a number: [`Reply::Number`].
    Load(usize),
    /// Write eight bytes: [`Reply::Done`].
    Store(usize, u64),
    /// The queue pair's state: [`Reply::State`].
    QpState,
    /// Make what measurements need, exchanging endpoints: [`Reply::Done`], after the exchange.
    PrepareMeasurements,
    /// Take part in a measurement: [`Reply::Ready`], then what the measurement is.
    Measure(Order),
    /// The measurement is over: [`Reply::Measured`].
    EndMeasurement,
}

/// An answer of B's.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Reply {
    /// It did not work.
    Failed(String),
    /// It worked.
    Done,
    /// The device is open.
    Opened(Opened),
    /// The queue pair is there.
    QpCreated {
        /// Its number.
        qpn: u32,
        /// Its first PSN.
        psn: u32,
        /// Its state.
        state: String,
    },
    /// The states that the queue pair went through.
    Connected(Vec<String>),
    /// The first difference, if there is one.
    Checked(Option<Difference>),
    /// Completions, in their order.
    Completions(Vec<Completion>),
    /// A number.
    Number(u64),
    /// A state.
    State(String),
    /// The measurement may begin.
    Ready,
    /// How it went on B's side.
    Measured {
        /// CPU time of the process since the request, nanoseconds.
        cpu_ns: u64,
        /// What was wrong with the memory at the end.
        difference: Option<Difference>,
    },
}

/// What B has opened.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Opened {
    /// Its process.
    pub pid: u32,
    /// The device's name.
    pub device: String,
    /// The region's first address.
    pub addr: u64,
    /// Its bytes.
    pub len: usize,
    /// Its key for local work requests.
    pub lkey: u32,
    /// Its key for peers.
    pub rkey: u32,
    /// Its rights.
    pub access: String,
}

/// A completion in words.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Completion {
    /// As posted.
    pub wr_id: u64,
    /// Which operation.
    pub opcode: String,
    /// How it ended.
    pub status: String,
    /// Whether that is success.
    pub is_success: bool,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
}

impl From<&Wc> for Completion {
    fn from(wc: &Wc) -> Self {
        Self {
            wr_id: wc.wr_id,
            opcode: super::side::opcode_name(wc.opcode).to_owned(),
            status: wc.status.as_str().to_owned(),
            is_success: wc.status == userdma::WcStatus::Success,
            byte_len: wc.byte_len,
            imm: wc.imm(),
        }
    }
}
