//! The states of a connection. Each has the data that only it needs.

use std::time::Duration;

use userdma_wire::mad::MAD_LEN;

/// Where a connection stands.
#[derive(Debug)]
pub(super) enum State {
    /// Nothing is going on: not begun, refused, given up, or over.
    Idle,
    /// The REQ waits for its answer.
    ReqSent(Asking),
    /// The owner is to answer the REQ.
    ReqReceived {
        /// What the peer is told if it asks again.
        mra: Option<Mad>,
    },
    /// The REP waits for the RTU.
    RepSent(Asking),
    /// The owner is to answer the REP.
    RepReceived {
        /// What the peer is told if it answers again.
        mra: Option<Mad>,
    },
    /// Both sides are connected.
    Established {
        /// The RTU, if we sent it: the peer may not have got it, and send its REP again.
        rtu: Option<Mad>,
        /// What goes on about an alternate path.
        lap: LapState,
    },
    /// The DREQ waits for its answer.
    DreqSent(Asking),
    /// The owner is to answer the DREQ.
    DreqReceived {
        /// The DREQ's transaction id.
        transaction_id: u64,
    },
    /// Over, until nothing of it can be under way any more.
    Timewait {
        /// The DREP, if we sent one: the peer may not have got it.
        drep: Option<Mad>,
    },
    /// Refused (or, of a question for datagrams, answered): the answer is repeated for a while if the peer asks again.
    Answered {
        /// The answer.
        answer: Mad,
        /// A DREQ, if the peer may have got a REP and think that it is connected: no REJ is ever answered, a DREQ is.
        goodbye: Option<Asking>,
    },
    /// The SIDR_REQ waits for its answer.
    SidrReqSent(Asking),
    /// The owner is to answer the SIDR_REQ.
    SidrReqReceived,
}

/// What goes on about an alternate path.
#[derive(Debug)]
pub(super) enum LapState {
    /// Nothing.
    Quiet,
    /// The LAP waits for its answer.
    Sent(Asking),
    /// The owner is to answer the LAP of this transaction.
    Received(u64),
    /// The last answer, which is repeated if the peer asks again.
    Answered(u64, Mad),
}

/// A message that waits for its answer, and is sent again.
#[derive(Debug)]
pub(super) struct Asking {
    /// The message.
    pub(super) mad: Mad,
    /// Times that it may still be sent again.
    pub(super) retries_left: u8,
    /// How long to wait for an answer each time.
    pub(super) wait: Duration,
    /// Whether the peer has asked for patience since it was sent last.
    pub(super) is_patient: bool,
}

/// A message that is kept.
#[derive(Debug)]
pub(super) struct Mad(Box<[u8; MAD_LEN]>);

impl Mad {
    pub(super) fn new(mad: [u8; MAD_LEN]) -> Self {
        Self(Box::new(mad))
    }

    pub(super) fn bytes(&self) -> [u8; MAD_LEN] {
        *self.0
    }
}

impl Asking {
    pub(super) fn new(mad: [u8; MAD_LEN], retries: u8, wait: Duration) -> Self {
        Self { mad: Mad::new(mad), retries_left: retries, wait, is_patient: false }
    }
}

impl State {
    /// The state's name in the standard's words.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::ReqSent(_) => "REQ sent",
            Self::ReqReceived { .. } => "REQ received",
            Self::RepSent(_) => "REP sent",
            Self::RepReceived { .. } => "REP received",
            Self::Established { .. } => "established",
            Self::DreqSent(_) => "DREQ sent",
            Self::DreqReceived { .. } => "DREQ received",
            Self::Timewait { .. } => "timewait",
            Self::Answered { .. } => "answered",
            Self::SidrReqSent(_) => "SIDR_REQ sent",
            Self::SidrReqReceived => "SIDR_REQ received",
        }
    }

    /// Whether the owner has not yet said what is to become of a request.
    pub(super) const fn is_undecided(&self) -> bool {
        matches!(self, Self::ReqReceived { .. } | Self::SidrReqReceived)
    }

    /// Whether it only waits for time to pass, and needs no owner.
    pub(super) const fn is_lingering(&self) -> bool {
        matches!(self, Self::Timewait { .. } | Self::Answered { .. })
    }

    /// Whether the peer knows both queue pairs, so that it must be told when ours goes.
    pub(super) const fn is_connected(&self) -> bool {
        matches!(
            self,
            Self::RepSent(_)
                | Self::RepReceived { .. }
                | Self::Established { .. }
                | Self::DreqSent(_)
                | Self::DreqReceived { .. }
        )
    }

    /// Whether packets of our queue pair may be under way, or the peer may still speak of it: its number must not be another's.
    pub(super) const fn guards_number(&self) -> bool {
        self.is_connected()
            || matches!(
                self,
                Self::ReqSent(_) | Self::Timewait { .. } | Self::Answered { goodbye: Some(_), .. }
            )
    }

    /// The message that waits for an answer, if one does.
    pub(super) const fn asking(&mut self) -> Option<&mut Asking> {
        match self {
            Self::ReqSent(asking)
            | Self::RepSent(asking)
            | Self::DreqSent(asking)
            | Self::SidrReqSent(asking)
            | Self::Answered { goodbye: Some(asking), .. }
            | Self::Established { lap: LapState::Sent(asking), .. } => Some(asking),
            Self::Idle
            | Self::ReqReceived { .. }
            | Self::RepReceived { .. }
            | Self::Established { .. }
            | Self::DreqReceived { .. }
            | Self::Timewait { .. }
            | Self::Answered { .. }
            | Self::SidrReqReceived => None,
        }
    }
}
