//! Operations and how they are asked for: `NAME[:SIZE[:COUNT]][@OFFSET][=STATUS[/STATUS...]]`.

use std::time::Duration;

use userdma::{Mtu, WcStatus};

use crate::ledger::number;

/// What is posted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Send,
    SendSolicited,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    /// A COMPARE_SWAP that swaps.
    Cas,
    /// A COMPARE_SWAP that does not.
    CasNo,
    Faa,
}

/// Where in the server's region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Aim {
    Inside,
    /// At its end.
    Behind,
    /// Half its size before the end.
    Across,
    /// Four bytes off an atomic's place.
    Unaligned,
}

/// With which key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Key {
    Region,
    /// One that nobody has.
    Wrong,
    /// The first window that was not invalidated yet.
    Window,
    /// The last one that was.
    Stale,
}

/// An operation with its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Op {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) aim: Aim,
    pub(crate) key: Key,
}

impl Kind {
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::Cas | Self::CasNo | Self::Faa)
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }

    /// Whether bytes come back.
    pub(crate) fn fetches(self) -> bool {
        self == Self::Read || self.is_atomic()
    }

    /// Whether a datagram can do it.
    pub(crate) fn is_datagram(self) -> bool {
        matches!(self, Self::Send | Self::SendSolicited | Self::SendImm)
    }

    /// Whether it takes a receive.
    pub(crate) fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendSolicited | Self::SendImm | Self::SendInv | Self::WriteImm)
    }
}

const fn op(name: &'static str, kind: Kind, aim: Aim, key: Key) -> Op {
    Op { name, kind, aim, key }
}

/// Every operation that has a name.
const OPS: [Op; 25] = [
    op("send", Kind::Send, Aim::Inside, Key::Region),
    op("send_se", Kind::SendSolicited, Aim::Inside, Key::Region),
    op("send_imm", Kind::SendImm, Aim::Inside, Key::Region),
    op("send_inv", Kind::SendInv, Aim::Inside, Key::Window),
    op("write", Kind::Write, Aim::Inside, Key::Region),
    op("write_imm", Kind::WriteImm, Aim::Inside, Key::Region),
    op("read", Kind::Read, Aim::Inside, Key::Region),
    op("cas", Kind::Cas, Aim::Inside, Key::Region),
    op("cas_no", Kind::CasNo, Aim::Inside, Key::Region),
    op("faa", Kind::Faa, Aim::Inside, Key::Region),
    op("mwwrite", Kind::Write, Aim::Inside, Key::Window),
    op("mwread", Kind::Read, Aim::Inside, Key::Window),
    op("stale_write", Kind::Write, Aim::Inside, Key::Stale),
    op("stale_read", Kind::Read, Aim::Inside, Key::Stale),
    op("badkey_write", Kind::Write, Aim::Inside, Key::Wrong),
    op("badkey_write_imm", Kind::WriteImm, Aim::Inside, Key::Wrong),
    op("badkey_read", Kind::Read, Aim::Inside, Key::Wrong),
    op("badkey_cas", Kind::Cas, Aim::Inside, Key::Wrong),
    op("badkey_faa", Kind::Faa, Aim::Inside, Key::Wrong),
    op("oob_write", Kind::Write, Aim::Behind, Key::Region),
    op("oob_read", Kind::Read, Aim::Behind, Key::Region),
    op("oob_cas", Kind::Cas, Aim::Behind, Key::Region),
    op("across_write", Kind::Write, Aim::Across, Key::Region),
    op("across_read", Kind::Read, Aim::Across, Key::Region),
    op("unal_cas", Kind::Cas, Aim::Unaligned, Key::Region),
];

/// How an operation may end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// With this completion.
    Completed(WcStatus),
    /// The post itself is refused.
    PostRefused,
}

const OUTCOMES: [(&str, Outcome); 14] = [
    ("ok", Outcome::Completed(WcStatus::Success)),
    ("loc_len", Outcome::Completed(WcStatus::LocLenErr)),
    ("loc_qp", Outcome::Completed(WcStatus::LocQpOpErr)),
    ("loc_prot", Outcome::Completed(WcStatus::LocProtErr)),
    ("flush", Outcome::Completed(WcStatus::WrFlushErr)),
    ("bind", Outcome::Completed(WcStatus::MwBindErr)),
    ("bad_resp", Outcome::Completed(WcStatus::BadRespErr)),
    ("loc_access", Outcome::Completed(WcStatus::LocAccessErr)),
    ("inv_req", Outcome::Completed(WcStatus::RemInvReqErr)),
    ("access", Outcome::Completed(WcStatus::RemAccessErr)),
    ("op", Outcome::Completed(WcStatus::RemOpErr)),
    ("retry", Outcome::Completed(WcStatus::RetryExcErr)),
    ("rnr", Outcome::Completed(WcStatus::RnrRetryExcErr)),
    ("post", Outcome::PostRefused),
];

/// The name that a status has in operations and in the ledger.
pub(crate) fn status_name(status: WcStatus) -> &'static str {
    OUTCOMES
        .iter()
        .find(|&&(_, outcome)| outcome == Outcome::Completed(status))
        .map_or("?", |&(name, _)| name)
}

/// The outcomes that are right for an operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Expect(Vec<Outcome>);

impl Expect {
    fn parse(text: Option<&str>) -> Result<Self, String> {
        let find = |name: &str| {
            let known = OUTCOMES.iter().find(|(known, _)| *known == name);
            known.map(|&(_, outcome)| outcome).ok_or_else(|| format!("unknown status {name}"))
        };
        text.unwrap_or("ok").split('/').map(find).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn allows(&self, status: WcStatus) -> bool {
        self.0.contains(&Outcome::Completed(status))
    }

    pub(crate) fn allows_refusal(&self) -> bool {
        self.0.contains(&Outcome::PostRefused)
    }

    /// Whether the only right outcome is a refused post.
    pub(crate) fn is_refusal(&self) -> bool {
        self.0.iter().all(|&outcome| outcome == Outcome::PostRefused)
    }

    /// Whether the only right outcome is success.
    pub(crate) fn is_success(&self) -> bool {
        self.0.iter().all(|&outcome| outcome == Outcome::Completed(WcStatus::Success))
    }

    /// Whether after it nobody knows if the bytes arrived.
    pub(crate) fn is_unsure(&self) -> bool {
        self.allows(WcStatus::RetryExcErr) || self.allows(WcStatus::WrFlushErr)
    }
}

/// A step of the client's work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Sleep(Duration),
    Run(Run),
}

/// `count` alike operations for each of the sizes in turn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    pub(crate) op: Op,
    pub(crate) sizes: Vec<u64>,
    pub(crate) count: u32,
    pub(crate) at: Option<u64>,
    pub(crate) expect: Expect,
}

impl Step {
    /// Reads one step.
    pub(crate) fn parse(text: &str, mtu: Mtu) -> Result<Self, String> {
        let wrong = || format!("cannot read the operation '{text}'");
        let (rest, status) = split(text, '=');
        let (rest, at) = split(rest, '@');
        let mut parts = rest.split(':');
        let name = parts.next().unwrap_or_default();
        let size = parts.next().unwrap_or("64");
        let count =
            parts.next().map_or(Some(1), number).and_then(|n| u32::try_from(n).ok()).ok_or_else(wrong)?;
        if name == "sleep" {
            return Ok(Self::Sleep(Duration::from_millis(number(size).ok_or_else(wrong)?)));
        }
        let op = *OPS.iter().find(|op| op.name == name).ok_or_else(wrong)?;
        let sizes = if op.kind.is_atomic() {
            vec![8]
        } else if size == "all" {
            let mtu = u64::from(mtu.bytes());
            vec![0, 1, 3, mtu - 1, mtu, mtu + 1, 5 * mtu, 1 << 20]
        } else {
            vec![number(size).ok_or_else(wrong)?]
        };
        let at = at.map(|at| number(at).ok_or_else(wrong)).transpose()?;
        let expect = Expect::parse(status).map_err(|e| format!("{}: {e}", wrong()))?;
        Ok(Self::Run(Run { op, sizes, count, at, expect }))
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Run {
        match Step::parse(text, Mtu::Mtu1024) {
            Ok(Step::Run(run)) => run,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn steps_are_read_as_vt_reads_them() {
        let plain = run("send");
        assert_eq!((plain.op.kind, plain.sizes, plain.count, plain.at), (Kind::Send, vec![64], 1, None));
        assert!(plain.expect.is_success());
        let full = run("badkey_write:5000:3@0x40=access/flush");
        assert_eq!((full.op.key, full.sizes, full.count, full.at), (Key::Wrong, vec![5000], 3, Some(64)));
        assert!(full.expect.allows(WcStatus::RemAccessErr) && full.expect.is_unsure());
        assert!(!full.expect.allows(WcStatus::Success));
        assert_eq!(run("read:all").sizes, [0, 1, 3, 1023, 1024, 1025, 5120, 1 << 20]);
        let atomic = run("faa:8:20@56");
        assert_eq!((atomic.sizes, atomic.count, atomic.at), (vec![8], 20, Some(56)));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for text in ["", "sendd", "send:x", "send:1:y", "send=bad", "write@q", "faa@56:8:20"] {
            assert!(Step::parse(text, Mtu::Mtu1024).is_err(), "{text:?}");
        }
    }
}
