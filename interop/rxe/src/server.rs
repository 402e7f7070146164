//! The server: has receives posted, checks each that completes, and judges its memory by the client's ledger.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use userdma::{Wc, WcFlags, WcOpcode, WcStatus};
use userdma_link::clock;
use userdma_verbs::Time;

use crate::Setup;
use crate::ledger::{Entry, Message};
use crate::model::Model;
use crate::options::{Options, Plant};
use crate::pattern::{GUARD, IMM0, POISON, Role, bytes, source_of};
use crate::report::Report;
use crate::side::{Side, stride};

/// Work request number of the first receive.
const RECV0: u64 = 1000;
/// How long messages that the ledger names may take to complete here.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing may come after them.
const QUIET: Duration = Duration::from_millis(20);

/// Posts the receives that are there from the start.
pub(crate) fn post_first(options: &Options, side: &Side<'_>) -> Setup<()> {
    if options.receive_delay.is_none() {
        for ordinal in 0..options.receives {
            post_receive(options, side, u32::try_from(ordinal)?)?;
        }
    }
    Ok(())
}

/// Serves until the client's ledger is complete, then judges.
pub(crate) fn run(options: &Options, side: &Side<'_>, mut stream: TcpStream) -> Setup<Report> {
    tell_windows(options, side, &mut stream)?;
    let mut server = Server {
        options,
        side,
        posted: u32::try_from(options.receives)?,
        messages: Vec::new(),
        errors: 0,
        report: Report::default(),
        late: options.receive_delay.map(|delay| clock::now() + delay),
    };
    let ledger = server.serve(&mut stream)?;
    server.judge(&ledger)?;
    let line = match server.report.first_failure() {
        Some(failure) => format!("fail {failure}\n"),
        None => format!("ok {}\n", server.report.passed()),
    };
    // A client that is gone does not want to know.
    let _ = stream.set_nonblocking(false).and_then(|()| stream.write_all(line.as_bytes()));
    Ok(server.report)
}

fn tell_windows(options: &Options, side: &Side<'_>, stream: &mut TcpStream) -> Setup<()> {
    if options.windows < 2 {
        return Ok(());
    }
    let keys: Vec<String> = side.window_keys().map(|key| format!("{:#x}", key.get())).collect();
    Ok(stream.write_all(format!("mw {}\n", keys.join(" ")).as_bytes())?)
}

/// Where the receive of this ordinal lands.
fn slot(options: &Options, ordinal: u32) -> usize {
    ordinal as usize % options.receives * stride(options)
}

/// A receive's place before anything arrives: no byte is right yet.
fn blank(options: &Options, ordinal: u32) -> Vec<u8> {
    let mut image = vec![POISON; stride(options)];
    for (byte, coming) in
        image[GUARD..].iter_mut().zip(bytes(source_of(ordinal), options.receive_len, Role::Client))
    {
        *byte = !coming;
    }
    image
}

fn post_receive(options: &Options, side: &Side<'_>, ordinal: u32) -> Setup<()> {
    let at = slot(options, ordinal);
    side.landing.write(at, &blank(options, ordinal))?;
    let place = side.landing.slice(at + GUARD..at + GUARD + options.receive_len);
    Ok(side.qp.post_recv(RECV0 + u64::from(ordinal), &place)?)
}

struct Server<'a> {
    options: &'a Options,
    side: &'a Side<'a>,
    posted: u32,
    messages: Vec<Message>,
    errors: u32,
    report: Report,
    /// When the first receives are to be posted, if not yet.
    late: Option<Time>,
}

impl Server<'_> {
    /// Takes completions until the client has sent its ledger.
    fn serve(&mut self, stream: &mut TcpStream) -> Setup<String> {
        let mut text = Vec::new();
        let mut piece = vec![0; 1 << 16];
        stream.set_nonblocking(!self.options.sleeps)?;
        loop {
            self.post_late()?;
            if !self.options.sleeps && self.serve_one(Duration::from_millis(1))? {
                continue;
            }
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => text.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
            if text.ends_with(b"end\n") {
                break;
            }
        }
        Ok(String::from_utf8(text)?)
    }

    fn post_late(&mut self) -> Setup<()> {
        if self.late.is_some_and(|due| clock::now() >= due) {
            self.late = None;
            for ordinal in 0..self.posted {
                post_receive(self.options, self.side, ordinal)?;
            }
            println!("  posted {} receives", self.posted);
        }
        Ok(())
    }

    /// Takes one completion, if there is one in time.
    fn serve_one(&mut self, timeout: Duration) -> Setup<bool> {
        let Some(wc) = self.side.next_wc(timeout)? else { return Ok(false) };
        self.check_receive(&wc)?;
        if wc.status == WcStatus::Success && !self.options.sleeps {
            post_receive(self.options, self.side, self.posted)?;
            self.posted += 1;
        }
        Ok(true)
    }

    fn check_receive(&mut self, wc: &Wc) -> Setup<()> {
        let ordinal = u32::try_from(wc.wr_id.wrapping_sub(RECV0))?;
        let seen = u32::try_from(self.messages.len())? + self.errors;
        if ordinal != seen {
            self.report.fail(format!("receive {ordinal} completed in place {seen}"));
        }
        if wc.status != WcStatus::Success {
            println!("  receive {ordinal} ended: {}", wc.status.as_str());
            self.errors += 1;
            return Ok(());
        }
        let message = message_of(wc, self.side.qp.head_len() as u64);
        self.messages.push(message);
        if let Some(imm) = wc.imm().filter(|&imm| imm != IMM0.wrapping_add(ordinal)) {
            self.report
                .fail(format!("receive {ordinal}: immediate {imm:#x}, should be {:#x}", IMM0 + ordinal));
        }
        self.check_payload(ordinal, message)
    }

    fn check_payload(&mut self, ordinal: u32, message: Message) -> Setup<()> {
        let carried = match message {
            Message::Send { len } | Message::SendImm { len, .. } | Message::SendInv { len, .. } => {
                usize::try_from(len)?
            }
            // Its receive holds no payload and is never touched.
            Message::WriteImm { .. } => 0,
        };
        let head = self.side.qp.head_len();
        let len = self.options.receive_len - head;
        if carried > len {
            self.report.fail(format!("receive {ordinal}: {carried} bytes in a buffer of {len}"));
            return Ok(());
        }
        let at = slot(self.options, ordinal);
        let mut got = self.side.landing.to_vec(at..at + stride(self.options))?;
        match self.options.plant {
            Some(Plant::Recv) if carried > 0 => got[GUARD + head + carried - 1] ^= 1,
            Some(Plant::Guard) => got[GUARD - 1] ^= 1,
            Some(Plant::Recv | Plant::Src | Plant::Read | Plant::Region) | None => {}
        }
        let mut want = blank(self.options, ordinal);
        // Of what stands before a datagram only the sender is the same on all devices.
        self.check_sender(ordinal, &got[GUARD..GUARD + head]);
        want[GUARD..GUARD + head].copy_from_slice(&got[GUARD..GUARD + head]);
        let payload = GUARD + head..GUARD + head + carried;
        want[payload].copy_from_slice(&bytes(source_of(ordinal), carried, Role::Client));
        // GUARD is 64.
        self.report.same(&format!("receive {ordinal}, {carried} bytes"), -64, &got, &want);
        Ok(())
    }

    /// The header before a datagram names its sender: an IPv6 header, or zeros and then an IPv4 one.
    fn check_sender(&mut self, ordinal: u32, head: &[u8]) {
        let peer = self.side.peer.endpoint.gid;
        let told = match peer.ip() {
            IpAddr::V4(_) => head.get(32..36),
            IpAddr::V6(_) => head.get(8..24),
        };
        if !head.is_empty() && told.is_none_or(|told| !peer.bytes().ends_with(told)) {
            self.report.fail(format!("receive {ordinal}: it came from {peer}, its header is {head:02x?}"));
        }
    }

    /// Judges everything by the ledger.
    fn judge(&mut self, text: &str) -> Setup<()> {
        let entries = match Entry::parse_all(text) {
            Ok(entries) => entries,
            Err(wrong) => {
                self.report.fail(wrong);
                return Ok(());
            }
        };
        let told: Vec<Message> = entries.iter().filter_map(Entry::message).collect();
        self.take_rest(told.len())?;
        self.check_messages(&told);
        let failed = entries.iter().any(|entry| matches!(entry, Entry::Failed { .. }));
        if self.errors > 0 && !failed && !self.options.errors_expected {
            let errors = self.errors;
            self.report
                .fail(format!("{errors} receives ended in error, but no operation of the client's did"));
        }
        self.check_refusals(&entries)?;
        self.check_region(&entries)
    }

    /// A request that was refused ends the connection at this side, too, and the program is told of it.
    fn check_refusals(&mut self, entries: &[Entry]) -> Setup<()> {
        let has_failed =
            |name: &str| entries.iter().any(|e| matches!(e, Entry::Failed { status } if status == name));
        let refused = ["access", "inv_req", "op"].into_iter().any(has_failed);
        if (refused || self.errors > 0) && !self.side.is_in_error() {
            self.report
                .fail(format!("a request was refused, but the queue pair is in {:?}", self.side.qp.state()));
        }
        if has_failed("access") && !self.side.saw_access_error()? {
            self.report.fail("an access was refused, but no event says so");
        }
        Ok(())
    }

    /// Takes what is still to complete, and sees that nothing comes beyond it.
    fn take_rest(&mut self, messages: usize) -> Setup<()> {
        let end = clock::now() + PATIENCE;
        while self.messages.len() + (self.errors as usize) < messages && clock::now() < end {
            self.serve_one(QUIET)?;
        }
        while self.serve_one(QUIET)? {}
        Ok(())
    }

    fn check_messages(&mut self, told: &[Message]) {
        for (k, (seen, told)) in self.messages.iter().zip(told).enumerate() {
            if seen == told {
                self.report.pass(1);
            } else {
                self.report.fail(format!("receive {k} is {seen:?}, should be {told:?}"));
            }
        }
        if self.messages.len() != told.len() {
            let seen = self.messages.len();
            self.report.fail(format!("{seen} messages arrived, the client sent {}", told.len()));
        }
    }

    fn check_region(&mut self, entries: &[Entry]) -> Setup<()> {
        let mut model = Model::new(self.options.region_len);
        for entry in entries {
            if !model.apply(entry) {
                self.report.fail(format!("the ledger leaves the region: '{entry}'"));
            }
        }
        let mut region = self.side.region.to_vec(..)?;
        if self.options.plant == Some(Plant::Region) {
            let middle = region.len() / 2;
            region[middle] ^= 1;
        }
        if model.check(&region, &mut self.report) {
            let changes = entries.iter().filter(|entry| changes_memory(entry)).count();
            self.report.pass(u32::try_from(changes)?);
        }
        Ok(())
    }
}

/// What a receive tells; the first `head_len` bytes are not the message's.
fn message_of(wc: &Wc, head_len: u64) -> Message {
    let len = u64::from(wc.byte_len).saturating_sub(head_len);
    if wc.opcode == WcOpcode::RecvRdmaWithImm {
        Message::WriteImm { len, imm: wc.imm_data }
    } else if wc.flags.contains(WcFlags::WITH_INV) {
        Message::SendInv { len, rkey: wc.invalidated_rkey.get() }
    } else if wc.flags.contains(WcFlags::WITH_IMM) {
        Message::SendImm { len, imm: wc.imm_data }
    } else {
        Message::Send { len }
    }
}

fn changes_memory(entry: &Entry) -> bool {
    matches!(entry, Entry::Write { .. } | Entry::WriteImm { .. } | Entry::Cas { .. } | Entry::Faa { .. })
}
