//! What came back, in the notation of the table.

use std::fmt;

use userdma_wire::{NakCode, Operation, Packet, Position, Syndrome};

/// A response packet: what it is, and its PSN counted from the first right request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    what: String,
    psn: i64,
    msn: Option<u32>,
}

/// What came of a case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The answers, in order.
    pub answers: Vec<Answer>,
    /// Whether the queue pair still answers.
    pub lives: bool,
}

impl Answer {
    /// Reads a response; PSNs are counted from `first_psn`.
    pub fn of(packet: &Packet<'_>, first_psn: u32) -> Self {
        let info = packet.info();
        let what = match (info.op, packet.aeth()) {
            (Operation::ReadResponse, _) => format!("READ {}", position(info.position)),
            (Operation::AtomicAcknowledge, _) => "atomic ACK".to_owned(),
            (Operation::Acknowledge, Some(aeth)) => syndrome(aeth.syndrome()),
            (_, _) => format!("{:?}", packet.opcode()),
        };
        Self {
            what,
            psn: i64::from(packet.bth().psn().get()) - i64::from(first_psn),
            msn: packet.aeth().map(|aeth| aeth.msn().get()),
        }
    }

    /// Reads the notation of `probe_errors.txt`: `op 17 psn 0x2000 syn 0x1f msn 1`, PSNs counted from `first_psn`.
    pub fn of_listed(text: &str, first_psn: u32) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (opcode, psn) = match words[..] {
            ["op", opcode, "psn", psn, ..] => (opcode, psn),
            _ => return None,
        };
        let hex = |word: &str| i64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        let value = |name| words.iter().position(|&word| word == name).and_then(|at| words.get(at + 1));
        let what = match opcode {
            "13" => "READ First".to_owned(),
            "14" => "READ Middle".to_owned(),
            "15" => "READ Last".to_owned(),
            "16" => "READ Only".to_owned(),
            "17" => syndrome(Syndrome::from_byte(u8::try_from(hex(value("syn")?)?).ok()?)),
            "18" => "atomic ACK".to_owned(),
            _ => return None,
        };
        let msn = value("msn").and_then(|msn| msn.parse().ok());
        Some(Self { what, psn: hex(psn)? - i64::from(first_psn), msn })
    }
}

fn position(position: Position) -> &'static str {
    match position {
        Position::First => "First",
        Position::Middle => "Middle",
        Position::Last => "Last",
        Position::Only => "Only",
    }
}

fn syndrome(syndrome: Syndrome) -> String {
    match syndrome {
        Syndrome::Ack { .. } => "ACK".to_owned(),
        Syndrome::Rnr { .. } => "RNR NAK".to_owned(),
        Syndrome::Nak(code) => {
            let name = match code {
                NakCode::PsnSequence => "sequence",
                NakCode::InvalidRequest => "invalid request",
                NakCode::RemoteAccess => "remote access",
                NakCode::RemoteOperational => "remote operational",
                NakCode::InvalidRd => "invalid RD",
            };
            format!("NAK {name}")
        }
        Syndrome::Reserved(byte) => format!("syndrome {byte:#04x}"),
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:+}", self.what, self.psn)?;
        match self.msn {
            Some(msn) => write!(f, " msn {msn}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for answer in &self.answers {
            write!(f, "{answer}, ")?;
        }
        if self.answers.is_empty() {
            f.write_str("nothing, ")?;
        }
        f.write_str(if self.lives { "lives" } else { "error" })
    }
}
