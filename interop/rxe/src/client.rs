//! The client: posts operations, checks what comes back, and tells the server by the ledger what took effect.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use userdma::{RKey, RemoteMr, SendFlags, Wc, WcOpcode, WcStatus};

use crate::Setup;
use crate::end::End;
use crate::ledger::{Entry, number};
use crate::model::Model;
use crate::ops::{Aim, Expect, Key, Kind, Op, Run, Step, status_name};
use crate::options::{Options, Plant};
use crate::pattern::{ATOMICS, GUARD, IMM0, POISON, Role, bytes, source_of};
use crate::report::Report;
use crate::side::Side;

/// Operations that are posted at once.
const DEPTH: u32 = 120;
/// How long an operation may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What each FETCH_ADD adds.
const ADDEND: u64 = 0x1122_3344_5566_7788;
/// What the first COMPARE_SWAP swaps in.
const SWAP0: u64 = 0xa0a1_a2a3_a4a5_a6a7;

/// Works through all operations and has the server judge them.
pub(crate) fn run(options: &Options, side: &Side<'_>, mut stream: TcpStream) -> Setup<Report> {
    let steps: Vec<Step> =
        options.operations.split(',').map(|text| Step::parse(text, options.mtu)).collect::<Result<_, _>>()?;
    let mut client = Client::new(options, side, read_windows(options, side, &mut stream)?);
    for step in &steps {
        match step {
            Step::Sleep(time) => std::thread::sleep(*time),
            Step::Run(run) => {
                if !client.run(run)? {
                    break;
                }
            }
        }
    }
    client.settle(&mut stream)?;
    client.check_end()?;
    Ok(client.report)
}

/// The server's windows: the first is in `struct peer`, several are told in a line `mw KEY...`.
fn read_windows(options: &Options, side: &Side<'_>, stream: &mut TcpStream) -> Setup<Vec<RKey>> {
    if options.windows < 2 {
        return Ok(vec![side.peer.window]);
    }
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    let line = String::from_utf8(line)?;
    let keys: Option<Vec<RKey>> = line.strip_prefix("mw ").and_then(|keys| {
        keys.split_whitespace().map(|key| Some(RKey::new(u32::try_from(number(key)?).ok()?))).collect()
    });
    match keys {
        Some(keys) if keys.len() == options.windows => Ok(keys),
        _ => Err(format!("the server told '{line}', not {} window keys", options.windows).into()),
    }
}

/// An operation that was posted.
#[derive(Clone, Copy, Debug)]
struct Pending {
    off: u64,
    len: u64,
    /// Where its bytes land: offset in the landing region.
    at: usize,
    /// What an atomic must find.
    old: u64,
}

struct Client<'a> {
    options: &'a Options,
    side: &'a Side<'a>,
    windows: Vec<RKey>,
    model: Model,
    ledger: Vec<Entry>,
    report: Report,
    write_cursor: u64,
    read_cursor: u64,
    writes: u32,
    messages: u32,
    swaps: u64,
    next_window: usize,
}

impl<'a> Client<'a> {
    fn new(options: &'a Options, side: &'a Side<'a>, windows: Vec<RKey>) -> Self {
        Self {
            options,
            side,
            windows,
            model: Model::new(options.region_len),
            ledger: Vec::new(),
            report: Report::default(),
            write_cursor: ATOMICS,
            read_cursor: ATOMICS,
            writes: 0,
            messages: 0,
            swaps: 0,
            next_window: 0,
        }
    }

    /// All sizes of a step; false ends the work.
    fn run(&mut self, run: &Run) -> Setup<bool> {
        if matches!(self.side.qp, End::Datagrams(_)) && !run.op.kind.is_datagram() {
            return Err(format!("{}: no datagram does that", run.op.name).into());
        }
        for &len in &run.sizes {
            if len + 4096 > self.options.region_len as u64 {
                return Err(format!("{}: {len} bytes are too many for the region", run.op.name).into());
            }
            println!("  {} size {len} count {}", run.op.name, run.count);
            let most = if self.options.one_by_one { 1 } else { self.at_once(&run.op, len) };
            let mut left = run.count;
            while left > 0 {
                let count = left.min(most);
                if !self.run_batch(run, len, count)? {
                    return Ok(false);
                }
                left -= count;
            }
        }
        Ok(true)
    }

    /// How many fit the landing region and the send queue.
    fn at_once(&self, op: &Op, len: u64) -> u32 {
        if !op.kind.fetches() {
            return DEPTH;
        }
        let room = (self.side.landing.len() - GUARD) as u64 / (len + GUARD as u64);
        u32::try_from(room).unwrap_or(DEPTH).clamp(1, DEPTH)
    }

    /// Posts `count` alike and checks them. False ends the work.
    fn run_batch(&mut self, run: &Run, len: u64, count: u32) -> Setup<bool> {
        let mut pending = Vec::new();
        for i in 0..count {
            let signaled = self.options.signals_all || i + 1 == count;
            match self.post(run, len, i, signaled)? {
                Ok(posted) => pending.push(posted),
                Err(refusal) => return Ok(self.refused(run, &refusal)),
            }
        }
        if run.expect.is_refusal() {
            self.report.fail(format!("{}: the post should have been refused", run.op.name));
            return Ok(false);
        }
        let first = if self.options.signals_all { 0 } else { count - 1 };
        for i in first..count {
            let Some(posted) = pending.get(i as usize) else { continue };
            if !self.take_completion(run, i, posted)? {
                return Ok(false);
            }
        }
        if run.expect.is_success() {
            for posted in &pending {
                self.check_landed(&run.op, posted)?;
            }
        }
        self.report.pass(count);
        Ok(true)
    }

    fn refused(&mut self, run: &Run, refusal: &userdma::Error) -> bool {
        println!("  post refused: {refusal}");
        if run.expect.allows_refusal() {
            self.report.pass(1);
        } else {
            self.report.fail(format!("{}: the post was refused: {refusal}", run.op.name));
        }
        run.expect.allows_refusal()
    }

    /// Posts one operation. The inner error is a refusal of the post.
    fn post(
        &mut self,
        run: &Run,
        len: u64,
        i: u32,
        signaled: bool,
    ) -> Setup<Result<Pending, userdma::Error>> {
        let op = &run.op;
        let off = self.place(op, len, run.at);
        let src = source_of(if op.kind.is_write() { self.writes } else { self.messages });
        let mut posted = Pending { off, len, at: 0, old: 0 };
        if op.kind.fetches() {
            posted.at = self.prepare_landing(i, off, len)?;
            posted.old = self.model.word(off).unwrap_or(0);
        } else if self.options.plant == Some(Plant::Src) && len > 0 {
            self.flip(src + len / 2)?;
        }
        let entry = self.entry(op, &posted, src);
        let result = self.post_one(op, &posted, src, u64::from(i), signaled);
        if result.is_ok() {
            self.record(op, &run.expect, &posted, entry);
        }
        Ok(result.map(|()| posted))
    }

    fn post_one(
        &self,
        op: &Op,
        posted: &Pending,
        src: u64,
        wr_id: u64,
        signaled: bool,
    ) -> Result<(), userdma::Error> {
        let side = self.side;
        // Both lie inside regions, as `run` and `prepare_landing` saw to.
        let len = usize::try_from(posted.len).unwrap_or(usize::MAX);
        let src = usize::try_from(src).unwrap_or(usize::MAX);
        let mut flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let whole = if op.kind.fetches() {
            side.landing.slice(posted.at..posted.at + len)
        } else {
            side.region.slice(src..src + len)
        };
        let list: &[_] = if len == 0 { &[] } else { std::slice::from_ref(&whole) };
        let remote = self.remote(op, posted);
        let imm = IMM0.wrapping_add(self.messages);
        let compare = if op.kind == Kind::CasNo { !posted.old } else { posted.old };
        let qp = match &side.qp {
            End::Connection(qp) => qp,
            End::Datagrams(end) => {
                flags.set(SendFlags::SOLICITED, op.kind == Kind::SendSolicited);
                return end.post_send(wr_id, list, (op.kind == Kind::SendImm).then_some(imm), flags);
            }
        };
        match op.kind {
            Kind::Send => qp.post_send(wr_id, list, flags),
            Kind::SendSolicited => {
                flags |= SendFlags::SOLICITED;
                qp.post_send(wr_id, list, flags)
            }
            Kind::SendImm => qp.post_send_with_imm(wr_id, list, imm, flags),
            Kind::SendInv => qp.post_send_with_inv(wr_id, list, self.window_key(Key::Window), flags),
            Kind::Write => qp.post_write(wr_id, list, remote, flags),
            Kind::WriteImm => qp.post_write_with_imm(wr_id, list, remote, imm, flags),
            Kind::Read => qp.post_read(wr_id, list, remote, flags),
            Kind::Cas | Kind::CasNo => {
                qp.post_compare_swap(wr_id, &whole, remote, compare, self.swap_value(), flags)
            }
            Kind::Faa => qp.post_fetch_add(wr_id, &whole, remote, ADDEND, flags),
        }
    }

    fn swap_value(&self) -> u64 {
        SWAP0.wrapping_add(self.swaps)
    }

    /// Where in the server's region the operation acts.
    fn place(&mut self, op: &Op, len: u64, at: Option<u64>) -> u64 {
        let end = self.options.region_len as u64;
        match op.aim {
            Aim::Behind => return end,
            Aim::Across => return end - len / 2,
            Aim::Unaligned => return at.unwrap_or(0) + 4,
            Aim::Inside => {}
        }
        let cursor = match op.kind {
            Kind::Read => &mut self.read_cursor,
            Kind::Write | Kind::WriteImm => &mut self.write_cursor,
            Kind::Cas | Kind::CasNo | Kind::Faa => return at.unwrap_or(0),
            Kind::Send | Kind::SendSolicited | Kind::SendImm | Kind::SendInv => return 0,
        };
        if let Some(at) = at {
            return at;
        }
        if *cursor + len > end {
            *cursor = ATOMICS;
        }
        let off = *cursor;
        // One byte stays untouched in between, and every alignment occurs.
        *cursor += len + 1;
        off
    }

    fn remote(&self, op: &Op, posted: &Pending) -> RemoteMr {
        let region = self.side.peer.region.slice(posted.off, posted.len);
        let rkey = match op.key {
            Key::Region => region.rkey,
            Key::Wrong => RKey::new(region.rkey.get() ^ 0x5500),
            Key::Window | Key::Stale => self.window_key(op.key),
        };
        RemoteMr { rkey, ..region }
    }

    fn window_key(&self, key: Key) -> RKey {
        let index = if key == Key::Stale { self.next_window.saturating_sub(1) } else { self.next_window };
        self.windows.get(index.min(self.windows.len() - 1)).copied().unwrap_or(RKey::new(0))
    }

    /// Makes the place where the i-th operation of a batch lands wrong in every byte; where it is.
    fn prepare_landing(&self, i: u32, off: u64, len: u64) -> Setup<usize> {
        let len = usize::try_from(len)?;
        let at = GUARD + i as usize * (len + GUARD);
        let mut image = vec![POISON; len + 2 * GUARD];
        if let Some(coming) = self.model.get(off, len as u64) {
            for (byte, coming) in image[GUARD..].iter_mut().zip(coming) {
                *byte = !coming;
            }
        }
        self.side.landing.write(at - GUARD, &image)?;
        Ok(at)
    }

    /// What the operation does at the server, if it succeeds.
    fn entry(&self, op: &Op, posted: &Pending, src: u64) -> Option<Entry> {
        let Pending { off, len, old, .. } = *posted;
        let imm = IMM0.wrapping_add(self.messages);
        let compare = if op.kind == Kind::CasNo { !old } else { old };
        match op.kind {
            Kind::Send | Kind::SendSolicited => Some(Entry::Send { len }),
            Kind::SendImm => Some(Entry::SendImm { len, imm }),
            Kind::SendInv => Some(Entry::SendInv { len, rkey: self.window_key(Key::Window).get() }),
            Kind::Write => Some(Entry::Write { off, len, src }),
            Kind::WriteImm => Some(Entry::WriteImm { off, len, src, imm }),
            Kind::Read => None,
            Kind::Cas | Kind::CasNo => Some(Entry::Cas { off, compare, swap: self.swap_value() }),
            Kind::Faa => Some(Entry::Faa { off, add: ADDEND }),
        }
    }

    /// Notes an operation that was posted in the model and the ledger, as far as it will take effect.
    fn record(&mut self, op: &Op, expect: &Expect, posted: &Pending, entry: Option<Entry>) {
        if !expect.is_success() {
            let inside = self.model.get(posted.off, posted.len).is_some();
            if expect.is_unsure() && op.kind.is_write() && inside {
                self.note(Entry::Maybe { off: posted.off, len: posted.len });
            }
            return;
        }
        if let Some(entry) = entry {
            self.note(entry);
        }
        self.writes += u32::from(op.kind.is_write());
        self.messages += u32::from(op.kind.takes_receive());
        self.swaps += u64::from(matches!(op.kind, Kind::Cas | Kind::CasNo));
        self.next_window += usize::from(op.kind == Kind::SendInv);
    }

    fn note(&mut self, entry: Entry) {
        self.model.apply(&entry);
        self.ledger.push(entry);
    }

    /// Waits for the i-th completion of the batch and holds it against what was expected.
    fn take_completion(&mut self, run: &Run, i: u32, posted: &Pending) -> Setup<bool> {
        let name = run.op.name;
        let Some(wc) = self.side.next_wc(PATIENCE)? else {
            self.report.fail(format!("{name}: no completion in {} s", PATIENCE.as_secs()));
            return Ok(false);
        };
        if wc.status != WcStatus::Success {
            println!(
                "  work request {} ended: {} (vendor {:#x})",
                wc.wr_id,
                wc.status.as_str(),
                wc.vendor_err
            );
            self.ledger.push(Entry::Failed { status: status_name(wc.status).into() });
            if !self.side.is_in_error() {
                self.report
                    .fail(format!("{name} failed, but the queue pair is in {:?}", self.side.qp.state()));
            }
        }
        if !run.expect.allows(wc.status) {
            self.report.fail(format!(
                "{name} ended with {} ({})",
                status_name(wc.status),
                wc.status.as_str()
            ));
            return Ok(false);
        }
        if wc.wr_id != u64::from(i) {
            self.report.fail(format!("{name}: completion of work request {}, should be {i}", wc.wr_id));
        }
        if wc.status == WcStatus::Success {
            self.check_completion(&run.op, &wc, posted);
        }
        Ok(true)
    }

    fn check_completion(&mut self, op: &Op, wc: &Wc, posted: &Pending) {
        let opcode = match op.kind {
            Kind::Send | Kind::SendSolicited | Kind::SendImm | Kind::SendInv => WcOpcode::Send,
            Kind::Write | Kind::WriteImm => WcOpcode::RdmaWrite,
            Kind::Read => WcOpcode::RdmaRead,
            Kind::Cas | Kind::CasNo => WcOpcode::CompSwap,
            Kind::Faa => WcOpcode::FetchAdd,
        };
        if wc.opcode != opcode {
            self.report.fail(format!("{}: completion says {:?}, should be {opcode:?}", op.name, wc.opcode));
        }
        if op.kind.fetches() && u64::from(wc.byte_len) != posted.len {
            self.report.fail(format!(
                "{}: completion says {} bytes, should be {}",
                op.name, wc.byte_len, posted.len
            ));
        }
    }

    /// What came back: the model's bytes or the atomic's old value, and nothing around them.
    fn check_landed(&mut self, op: &Op, posted: &Pending) -> Setup<()> {
        if !op.kind.fetches() {
            return Ok(());
        }
        let len = usize::try_from(posted.len)?;
        let mut got = self.side.landing.to_vec(posted.at - GUARD..posted.at + len + GUARD)?;
        if self.options.plant == Some(Plant::Read) && len > 0 {
            got[GUARD + len - 1] ^= 1;
        }
        let mut want = vec![POISON; len + 2 * GUARD];
        if op.kind.is_atomic() {
            want[GUARD..GUARD + 8].copy_from_slice(&posted.old.to_ne_bytes());
        } else if let Some(coming) = self.model.get(posted.off, posted.len) {
            want[GUARD..GUARD + len].copy_from_slice(coming);
        }
        let what = format!("{}, {len} bytes from {:#x}", op.name, posted.off);
        // GUARD is 64.
        self.report.same(&what, -64, &got, &want);
        Ok(())
    }

    fn flip(&self, at: u64) -> Setup<()> {
        let at = usize::try_from(at)?;
        let mut byte = [0];
        self.side.region.read(at, &mut byte)?;
        Ok(self.side.region.write(at, &[byte[0] ^ 1])?)
    }

    /// Gives the server the ledger and takes its verdict.
    fn settle(&mut self, stream: &mut TcpStream) -> Setup<()> {
        let mut text = String::from("vt 1\n");
        for entry in &self.ledger {
            text.push_str(&format!("{entry}\n"));
        }
        text.push_str("end\n");
        let mut answer = String::new();
        stream.set_read_timeout(Some(PATIENCE))?;
        let told = stream
            .write_all(text.as_bytes())
            .and_then(|()| stream.shutdown(Shutdown::Write))
            .and_then(|()| stream.read_to_string(&mut answer));
        let answer = answer.trim_end();
        println!("  server: {answer}");
        if let Err(e) = told {
            self.report.fail(format!("the server did not take the ledger or answer it: {e}"));
        } else if !answer.starts_with("ok") {
            self.report.fail(format!("server: {}", if answer.is_empty() { "no verdict" } else { answer }));
        }
        Ok(())
    }

    /// No completion too many, and our own region as it was.
    fn check_end(&mut self) -> Setup<()> {
        while let Some(wc) = self.side.ready_wc()? {
            self.report.fail(format!("a completion too many, of work request {}", wc.wr_id));
        }
        let region = self.side.region.to_vec(..)?;
        let want = bytes(0, self.options.region_len, Role::Client);
        self.report.same("the client's own region", 0, &region, &want);
        Ok(())
    }
}
