//! What A asks B, and what B answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use userdma::Wc;

use super::pattern::{Difference, Part};
use crate::measure::{Order, Setup};

/// A wish of A's. The answer is what the variant says, or a sentence about what went wrong.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Request {
    /// Open the device and register memory. Answer: [`Opened`].
    Open,
    /// Make a new queue pair in place of the one before. Answer: its number and first PSN, a pair of numbers.
    CreateQp,
    /// Exchange endpoints over the connection and connect. Answer: the names of the states gone through.
    Connect,
    /// Post a receive into these places (offset, length). Answer: nothing.
    PostRecv {
        /// Its identifier.
        wr_id: u64,
        /// Where.
        list: Vec<(usize, usize)>,
    },
    /// Make the region what the parts say, zero elsewhere. Answer: nothing.
    Fill(Vec<Part>),
    /// Compare the region with what the parts say, zero elsewhere. Answer: the first
    /// [`Difference`], if there is one.
    Check {
        /// What must be there.
        parts: Vec<Part>,
        /// Whether to damage a byte first.
        plant_fault: bool,
    },
    /// Wait for so many completions. Answer: a list of [`Completion`].
    Completions(usize),
    /// Read eight bytes. Answer: a number.
    Load(usize),
    /// Write eight bytes. Answer: nothing.
    Store(usize, u64),
    /// Answer: the name of the queue pair's state.
    QpState,
    /// Make what measurements need, exchanging endpoints: one more rig. Answer: nothing.
    PrepareMeasurements(Setup),
    /// Take part in a measurement. Answers: nothing when it may begin, nothing when this side's part is over.
    Measure(Order),
    /// The measurement is over. Answer: [`Measured`].
    EndMeasurement,
}

/// The answer to a request, encoded, or why there is none.
#[derive(Debug, Deserialize, Serialize)]
pub struct Answer(pub Result<Value, String>);

/// How a measurement went on B's side.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// CPU time of the process since the request, nanoseconds.
    pub cpu_ns: u64,
    /// What was wrong with the memory at the end.
    pub difference: Option<Difference>,
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
