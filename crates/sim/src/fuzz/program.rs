//! Programs: what bytes mean. A program is a setup and steps; a step is a tag byte and a few bytes more.
//!
//! Everything is read from the front, a byte or two at a time, so that a fuzzer's small change stays a small change
//! and a seed can be written ([`Step::write`]).

use arbitrary::{Arbitrary, Result, Unstructured};
use userdma_verbs::QpType;
use userdma_wire::{ExtHeaders, Opcode};

/// Which half of the queue pair is under test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Most packets are requests.
    Responder,
    /// Most packets are answers.
    Requester,
}

/// A whole program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) setup: Setup,
    pub(super) steps: Vec<Step>,
}

/// How the queue pair under test is made: three bytes of bits.
#[derive(Arbitrary, Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Setup {
    /// Bits 0 to 2 REMOTE_WRITE, _READ, _ATOMIC; 3 stays in RTR; 4 MTU 1024, else 256; 5 tiny completion queues;
    /// 6 every send is signaled; 7 IPv6.
    pub(super) bits: u8,
    /// Bits 0 to 2 READs outstanding, for datagrams bit 0 a shared receive queue; 3 to 5 `rnr_retry`; 6 and 7 `retry_cnt`.
    pub(super) limits: u8,
    /// How far before the wrap of the PSNs both sides begin.
    pub(super) before_wrap: u8,
}

/// What happens next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Request(Request),
    Answer(Answer),
    Recv(Recv),
    Post(Post),
    /// Time passes: a power of two of nanoseconds.
    Wait(u8),
    /// A region is deregistered.
    Deregister(u8),
    /// A packet of any bytes; the queue pair's number and the ICRC are made right.
    Raw(Vec<u8>),
    /// The owner polls.
    Poll,
    /// The owner modifies the queue pair.
    Modify(u8),
    /// Owed acknowledgements leave.
    Release,
}

/// A packet with everything that its opcode wants, each part a little wrong or not.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Request {
    pub(super) opcode: u8,
    /// See the constants.
    pub(super) flags: u8,
    /// Distance from the expected PSN; the extremes stand for half the space.
    pub(super) psn: i8,
    pub(super) key: u8,
    pub(super) offset: i16,
    pub(super) len: u16,
    /// Operands, immediate data, syndrome.
    pub(super) operands: [u8; 2],
    /// As [`payload_len`] reads it.
    pub(super) payload: u8,
}

impl Request {
    pub(super) const ACK_REQ: u8 = 1 << 0;
    pub(super) const SOLICITED: u8 = 1 << 1;
    pub(super) const WRONG_PKEY: u8 = 1 << 2;
    pub(super) const LONG_PAD: u8 = 1 << 3;
    pub(super) const HUGE: u8 = 1 << 4;
    pub(super) const FAR: u8 = 1 << 5;
    pub(super) const STRANGER: u8 = 1 << 6;
    pub(super) const BAD_ICRC: u8 = 1 << 7;

    /// The opcode: a byte that is none stands for one that is.
    pub(super) fn opcode(&self) -> Opcode {
        Opcode::from_byte(self.opcode).unwrap_or(Opcode::ALL[usize::from(self.opcode) % Opcode::ALL.len()])
    }

    /// The same of another service than the reliable connection, where that has such an opcode.
    pub(super) fn of_service(self, service: QpType) -> Self {
        let bits = match service {
            QpType::Uc => 0x20,
            QpType::Ud => 0x60,
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => return self,
        };
        let opcode = self.opcode() as u8 & 0x1f | bits;
        if Opcode::from_byte(opcode).is_some() { Self { opcode, ..self } } else { self }
    }

    fn read(u: &mut Unstructured<'_>) -> Result<Self> {
        let [opcode, flags, psn] = u.arbitrary()?;
        let mut request = Self { opcode, flags, psn: psn.cast_signed(), ..Self::default() };
        let headers = request.opcode().info().headers;
        if headers.intersects(NAMES_MEMORY) {
            (request.key, request.offset) = (u.arbitrary()?, u.arbitrary()?);
        }
        if headers.contains(ExtHeaders::RETH) {
            request.len = u.arbitrary()?;
        }
        if headers.intersects(HAS_OPERANDS) {
            request.operands = u.arbitrary()?;
        }
        request.payload = u.arbitrary()?;
        Ok(request)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([self.opcode, self.flags, self.psn.cast_unsigned()]);
        let headers = self.opcode().info().headers;
        if headers.intersects(NAMES_MEMORY) {
            out.push(self.key);
            out.extend(self.offset.to_le_bytes());
        }
        if headers.contains(ExtHeaders::RETH) {
            out.extend(self.len.to_le_bytes());
        }
        if headers.intersects(HAS_OPERANDS) {
            out.extend(self.operands);
        }
        out.push(self.payload);
    }
}

const NAMES_MEMORY: ExtHeaders = ExtHeaders::RETH.union(ExtHeaders::ATOMIC).union(ExtHeaders::IETH);
const HAS_OPERANDS: ExtHeaders =
    ExtHeaders::ATOMIC.union(ExtHeaders::IMM).union(ExtHeaders::AETH).union(ExtHeaders::ATOMIC_ACK);

/// An answer to what the queue pair has asked.
#[derive(Arbitrary, Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    /// As [`Answer::kind`] reads it.
    pub(super) kind: u8,
    /// Distance from the oldest PSN without an answer.
    pub(super) psn: i8,
    /// The syndrome, where the kind does not say it.
    pub(super) syndrome: u8,
    /// How much longer the payload is than it should be.
    pub(super) more: i8,
}

/// What an answer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AnswerKind {
    /// What the request at this PSN asked for.
    Fit,
    /// An acknowledgement with the syndrome.
    Acknowledge,
    /// READ data, at this place of its message.
    Read(Opcode),
    /// An atomic's result.
    Atomic,
}

impl Answer {
    pub(super) fn kind(&self) -> AnswerKind {
        match self.kind & 7 {
            0..=2 => AnswerKind::Fit,
            3 => AnswerKind::Acknowledge,
            4 => AnswerKind::Read(Opcode::RcReadResponseFirst),
            5 => AnswerKind::Read(Opcode::RcReadResponseMiddle),
            6 if self.kind & 8 == 0 => AnswerKind::Read(Opcode::RcReadResponseLast),
            6 => AnswerKind::Read(Opcode::RcReadResponseOnly),
            _ => AnswerKind::Atomic,
        }
    }
}

/// A receive.
#[derive(Arbitrary, Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Recv {
    /// 0 one element, 1 two, 2 a wrong key, 3 none.
    pub(super) kind: u8,
    pub(super) len: u16,
}

/// A send work request.
#[derive(Arbitrary, Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Post {
    pub(super) kind: u8,
    /// Bits 0 to 3 as `SendFlags` has them; 4 a wrong local key.
    pub(super) flags: u8,
    pub(super) len: u16,
}

impl Step {
    fn read(role: Role, u: &mut Unstructured<'_>) -> Result<Self> {
        let tag: u8 = u.arbitrary()?;
        let (most, some): (fn(_) -> _, fn(_) -> _) = match role {
            Role::Responder => (Self::request, Self::answer),
            Role::Requester => (Self::answer, Self::request),
        };
        match tag {
            ..SOME => most(u),
            SOME..RECV => some(u),
            RECV..POST => u.arbitrary().map(Self::Recv),
            POST..WAIT => u.arbitrary().map(Self::Post),
            WAIT..DEREGISTER => u.arbitrary().map(Self::Wait),
            DEREGISTER..RAW => u.arbitrary().map(Self::Deregister),
            RAW..POLL => {
                let len: u8 = u.arbitrary()?;
                let len = usize::from(len).min(u.len());
                Ok(Self::Raw(u.bytes(len)?.to_vec()))
            }
            POLL..MODIFY => Ok(Self::Poll),
            MODIFY..RELEASE => u.arbitrary().map(Self::Modify),
            RELEASE.. => Ok(Self::Release),
        }
    }

    fn request(u: &mut Unstructured<'_>) -> Result<Self> {
        Request::read(u).map(Self::Request)
    }

    fn answer(u: &mut Unstructured<'_>) -> Result<Self> {
        u.arbitrary().map(Self::Answer)
    }

    /// The bytes that read as this step.
    pub(super) fn write(&self, role: Role, out: &mut Vec<u8>) {
        match self {
            Self::Request(request) => {
                out.push(if role == Role::Responder { 0 } else { SOME });
                request.write(out);
            }
            Self::Answer(Answer { kind, psn, syndrome, more }) => {
                out.push(if role == Role::Responder { SOME } else { 0 });
                out.extend([*kind, psn.cast_unsigned(), *syndrome, more.cast_unsigned()]);
            }
            Self::Recv(Recv { kind, len }) => {
                out.extend([RECV, *kind]);
                out.extend(len.to_le_bytes());
            }
            Self::Post(Post { kind, flags, len }) => {
                out.extend([POST, *kind, *flags]);
                out.extend(len.to_le_bytes());
            }
            Self::Wait(exponent) => out.extend([WAIT, *exponent]),
            Self::Deregister(which) => out.extend([DEREGISTER, *which]),
            Self::Raw(bytes) => {
                let len = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
                out.extend([RAW, len]);
                out.extend(bytes.iter().take(len.into()));
            }
            Self::Poll => out.push(POLL),
            Self::Modify(how) => out.extend([MODIFY, *how]),
            Self::Release => out.push(RELEASE),
        }
    }
}

/// Reads a program, to its end or to its longest length.
pub(super) fn read(role: Role, u: &mut Unstructured<'_>) -> Result<Program> {
    let setup = u.arbitrary()?;
    let mut steps = Vec::new();
    while !u.is_empty() && steps.len() < MAX_STEPS {
        steps.push(Step::read(role, u)?);
    }
    Ok(Program { setup, steps })
}

/// Bytes of payload that `code` stands for: itself, or from 250 on a length near the path MTU.
pub(super) fn payload_len(code: u8, mtu: usize) -> usize {
    match code {
        0xff => mtu,
        0xfe => mtu - 1,
        0xfd => mtu + 1,
        0xfc => mtu + 4,
        0xfb => mtu / 2,
        0xfa => 4 * mtu,
        short => usize::from(short),
    }
}

/// The code for a payload of `len` bytes, exactly or nearly.
pub(super) fn payload_code(len: usize, mtu: usize) -> u8 {
    if len >= mtu { 0xff } else { u8::try_from(len).unwrap_or(0xf9).min(0xf9) }
}

/// Steps of a program at most: what is longer is told as well by a shorter one.
const MAX_STEPS: usize = 96;

// The first tag of each kind.
const SOME: u8 = 0xa0;
const RECV: u8 = 0xb0;
const POST: u8 = 0xc4;
const WAIT: u8 = 0xd8;
const DEREGISTER: u8 = 0xe2;
const RAW: u8 = 0xe6;
const POLL: u8 = 0xec;
const MODIFY: u8 = 0xf2;
const RELEASE: u8 = 0xf9;

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut rng = SmallRng::seed_from_u64(25);
        for role in [Role::Responder, Role::Requester] {
            for _ in 0..200 {
                let bytes: Vec<u8> = (0..300).map(|_| rng.random()).collect();
                let program = read(role, &mut Unstructured::new(&bytes)).expect("bytes enough");
                let mut written = vec![program.setup.bits, program.setup.limits, program.setup.before_wrap];
                program.steps.iter().for_each(|step| step.write(role, &mut written));
                let again = read(role, &mut Unstructured::new(&written)).expect("bytes enough");
                assert_eq!((again.setup, again.steps), (program.setup, program.steps));
            }
        }
    }

    #[test]
    fn a_program_that_ends_early_goes_on_with_zeros() {
        let program = read(Role::Responder, &mut Unstructured::new(&[1, 2, 3, 0, 4])).expect("a program");
        assert_eq!(program.steps, [Step::Request(Request { opcode: 4, ..Request::default() })]);
    }
}
