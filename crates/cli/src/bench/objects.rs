//! What objects cost, in memory and in time: measured in a process of its own.
//!
//! Every figure is the growth of that process while many objects of a kind are made, divided by their number: of what it
//! has set aside (`VmData`), and of what is resident (`RssAnon`), when they are new and once all of each was used; and
//! the time that making one took.

use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use userdma::{AccessFlags, Cq, Device, Inline, Mr, Pd, Qp, QpBuilder, Rts, SendFlags, Wc};
use userdma_link::clock;

use super::spread::digits;
use crate::failure::Failure;
use crate::pair::addresses::Pair;

/// Everything that was found.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Objects {
    /// The process as it grows.
    pub(crate) process: Vec<Stage>,
    /// Kinds of objects.
    pub(crate) each: Vec<Each>,
    /// Bytes of a completion.
    pub(crate) completion_bytes: usize,
}

/// The process at some moment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Stage {
    /// What it has.
    pub(crate) what: String,
    /// Its resident memory, KiB.
    pub(crate) resident_kib: u64,
    /// Its threads.
    pub(crate) threads: usize,
    /// Its open descriptors.
    pub(crate) descriptors: usize,
    /// How long it took to get there from the stage before, microseconds; nothing for the first.
    pub(crate) took_us: Option<f64>,
}

/// What one object of a kind costs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Each {
    /// The kind.
    pub(crate) what: String,
    /// How many were made.
    pub(crate) count: u64,
    /// Bytes set aside.
    pub(crate) set_aside: u64,
    /// Bytes resident when it is new.
    pub(crate) resident_new: u64,
    /// Bytes resident once it was used.
    pub(crate) resident_used: u64,
    /// Microseconds to make one.
    pub(crate) create_us: f64,
}

/// What the kernel says of this process, in KiB.
#[derive(Clone, Copy)]
struct Memory {
    set_aside: u64,
    resident: u64,
}

/// Measures in a child process.
pub(super) fn measure() -> Result<Objects, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .arg("bench-objects")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(Failure::new(format!("the process that measures objects: {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Failure::new(error.to_string()))
}

/// In the child: measures and prints.
///
/// # Errors
/// An object could not be made or used.
pub(crate) fn run(out: &mut impl std::io::Write) -> Result<(), Failure> {
    // What it opens stays open: memory that it gave back would be found by those that come after it.
    let mut objects = Objects { process: Vec::new(), each: Vec::new(), completion_bytes: size_of::<Wc>() };
    let (device, _first) = process(&mut objects.process)?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(4096)?;
    let each = &mut objects.each;
    queue_pairs(each, &pd, &cq)?;
    each.push(per_object("CQ of 1024 entries", 200, || Ok(device.create_cq(1024)?), |_| Ok(()))?);
    let mut vectors = vec![vec![0; 64]; MRS];
    let register = || Ok(pd.register(vectors.pop().unwrap_or_default(), AccessFlags::LOCAL_WRITE)?);
    each.push(per_object("MR of 64 bytes, its memory not counted", MRS as u64, register, |_| Ok(()))?);
    each.push(per_object("MW", 20_000, || Ok(pd.alloc_mw()?), |_| Ok(()))?);
    each.push(per_object("PD", 1000, || Ok(device.alloc_pd()?), |_| Ok(()))?);
    serde_json::to_writer(&mut *out, &objects).map_err(|error| Failure::new(error.to_string()))
}

/// What a process grows by with its first device, its first queue pair, and the next device, which is returned.
fn process(stages: &mut Vec<Stage>) -> Result<(Device, Qp<Rts>), Failure> {
    let Pair { a, b, private_port } = Pair::choose(None)?;
    let open = |address| {
        let builder = Device::builder().address(address);
        private_port.map_or(builder.clone(), |port| builder.private_port(port)).open()
    };
    stage(stages, "without a device", None)?;
    let start = clock::now();
    let device = open(a)?;
    stage(stages, "one device open", Some(us(start)))?;
    let (pd, cq) = (device.alloc_pd()?, device.create_cq(128)?);
    let start = clock::now();
    let qp = connected(pd.create_qp(&cq, &cq))?;
    stage(stages, "and a queue pair, connected", Some(us(start)))?;
    let landing = pd.alloc(1024, AccessFlags::LOCAL_WRITE)?;
    traffic(&qp, &cq, &landing, 512)?;
    stage(stages, "that has sent and received 128 messages of 512 bytes", None)?;
    let start = clock::now();
    let second = open(b)?;
    stage(stages, "and a second device", Some(us(start)))?;
    Ok((second, qp))
}

fn queue_pairs(each: &mut Vec<Each>, pd: &Pd, cq: &Cq) -> Result<(), Failure> {
    let landing = &pd.alloc(1024, AccessFlags::LOCAL_WRITE)?;
    let default = || pd.create_qp(cq, cq);
    let small =
        || default().max_send_wr(16).max_recv_wr(16).max_send_sge(1).max_recv_sge(1).max_inline_data(0);
    let large = || {
        default().max_send_wr(4096).max_recv_wr(4096).max_send_sge(32).max_recv_sge(32).max_inline_data(1024)
    };
    let used = |inline: usize| move |qp: &Qp<Rts>| traffic(qp, cq, landing, inline);
    each.push(per_object("QP 16 + 16, 1 element, no inline data", 200, || connected(small()), used(0))?);
    each.push(per_object("QP as it is by default", 100, || connected(default()), used(512))?);
    let name = "QP 4096 + 4096, 32 elements, 1024 inline";
    each.push(per_object(name, 4, || connected(large()), used(1024))?);
    Ok(())
}

/// A queue pair that is connected to itself.
fn connected(builder: QpBuilder) -> Result<Qp<Rts>, Failure> {
    let qp = builder.build()?;
    let peer = qp.endpoint();
    Ok(qp.connect(&peer)?)
}

/// Uses every place of both queues: messages of `inline` bytes to itself.
fn traffic(qp: &Qp<Rts>, cq: &Cq, landing: &Mr, inline: usize) -> Result<(), Failure> {
    let bytes = vec![0; inline];
    for id in 0..u64::from(qp.cap().max_recv_wr) {
        qp.post_recv(id, &landing.slice(..))?;
    }
    for id in 0..u64::from(qp.cap().max_send_wr) {
        qp.post_send(id, Inline(&bytes), SendFlags::SIGNALED)?;
        if id % 16 == 15 {
            cq.wait_for(32, None)?;
        }
    }
    Ok(())
}

fn per_object<T>(
    what: &str,
    count: u64,
    mut make: impl FnMut() -> Result<T, Failure>,
    exercise: impl Fn(&T) -> Result<(), Failure>,
) -> Result<Each, Failure> {
    let before = memory()?;
    let mut objects = Vec::new();
    let start = clock::now();
    for _ in 0..count {
        objects.push(make()?);
    }
    let create_us = us(start) / count as f64;
    let new = memory()?;
    objects.iter().try_for_each(exercise)?;
    let used = memory()?;
    // They stay, so that the next kind does not find memory that these have given back.
    std::mem::forget(objects);
    let each = |now: u64, then: u64| now.saturating_sub(then) * 1024 / count;
    Ok(Each {
        what: what.to_owned(),
        count,
        set_aside: each(new.set_aside, before.set_aside),
        resident_new: each(new.resident, before.resident),
        resident_used: each(used.resident, before.resident),
        create_us,
    })
}

fn us(start: userdma_verbs::Time) -> f64 {
    clock::now().since(start).as_nanos() as f64 / 1e3
}

fn stage(stages: &mut Vec<Stage>, what: &str, took_us: Option<f64>) -> Result<(), Failure> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    // One of them reads the folder.
    let descriptors = fs::read_dir("/proc/self/fd")?.count() - 1;
    let resident_kib = memory()?.resident;
    stages.push(Stage { what: what.to_owned(), resident_kib, threads, descriptors, took_us });
    Ok(())
}

fn memory() -> Result<Memory, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
            .ok_or_else(|| Failure::new(format!("/proc/self/status has no {name}")))
    };
    Ok(Memory { set_aside: field("VmData:")?, resident: field("RssAnon:")? })
}

impl std::fmt::Display for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<52} {:>13} {:>8} {:>11} {:>9}",
            "this process", "resident, KiB", "threads", "descriptors", "took, µs"
        )?;
        for Stage { what, resident_kib, threads, descriptors, took_us } in &self.process {
            let took = took_us.map(digits).unwrap_or_default();
            writeln!(f, "{what:<52} {resident_kib:>13} {threads:>8} {descriptors:>11} {took:>9}")?;
        }
        writeln!(
            f,
            "\n{:<44} {:>10} {:>13} {:>14} {:>10}",
            "each, bytes", "set aside", "resident, new", "resident, used", "made in, µs"
        )?;
        for Each { what, set_aside, resident_new, resident_used, create_us, .. } in &self.each {
            let took = digits(*create_us);
            writeln!(f, "{what:<44} {set_aside:>10} {resident_new:>13} {resident_used:>14} {took:>10}")?;
        }
        writeln!(f, "\none completion: {} bytes", self.completion_bytes)
    }
}

const MRS: usize = 20_000;
