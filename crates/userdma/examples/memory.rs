//! What objects cost in memory: the figures of `docs/limits.md`.
//!
//! ```text
//! cargo run --release -p userdma --example memory
//! ```
//!
//! Every figure is the growth of this process while many objects of a kind are made, divided by their number: of what it
//! has set aside (`VmData`), and of what is resident (`RssAnon`), when they are new and once all of each was used.

use std::error::Error;
use std::fs;

use userdma::{AccessFlags, Cq, Device, Inline, Mr, Pd, Qp, QpBuilder, Rts, SendFlags, Wc};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// What the kernel says of this process, in KiB.
#[derive(Clone, Copy)]
struct Memory {
    set_aside: u64,
    resident: u64,
}

fn main() -> Result {
    // What it opens stays open: memory that it gave back would be found by those that come after it.
    let (device, _first) = process()?;
    println!("\nper object, in bytes           set aside  resident, new  resident, used");
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(4096)?;
    queue_pairs(&pd, &cq)?;
    per_object("CQ of 1024 entries", 200, || device.create_cq(1024), |_| Ok(()))?;
    // The bytes of the vector itself are 64 more.
    per_object("MR", 20_000, || pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE), |_| Ok(()))?;
    per_object("MW", 20_000, || pd.alloc_mw(), |_| Ok(()))?;
    per_object("PD", 1000, || device.alloc_pd(), |_| Ok(()))?;
    println!("\none completion: {} bytes", size_of::<Wc>());
    Ok(())
}

/// What a process grows by with its first device, its first queue pair, and the next device, which is returned.
fn process() -> Result<(Device, Qp<Rts>)> {
    println!("this process                    resident, KiB  threads  descriptors");
    line("without a device")?;
    let device = Device::open("127.0.0.2")?;
    line("one device open")?;
    let (pd, cq) = (device.alloc_pd()?, device.create_cq(128)?);
    let qp = connected(pd.create_qp(&cq, &cq))?;
    line("and a queue pair")?;
    traffic(&qp, &cq, &pd.alloc(1024, AccessFlags::LOCAL_WRITE)?, 512)?;
    line("that has sent and received")?;
    let second = Device::open("127.0.0.3")?;
    line("and a second device")?;
    Ok((second, qp))
}

fn queue_pairs(pd: &Pd, cq: &Cq) -> Result {
    let landing = &pd.alloc(1024, AccessFlags::LOCAL_WRITE)?;
    let default = || pd.create_qp(cq, cq);
    let small =
        || default().max_send_wr(16).max_recv_wr(16).max_send_sge(1).max_recv_sge(1).max_inline_data(0);
    let large = || {
        default().max_send_wr(4096).max_recv_wr(4096).max_send_sge(32).max_recv_sge(32).max_inline_data(1024)
    };
    per_object(
        "QP 16+16, 1 element, 0 inline",
        200,
        || connected(small()),
        |qp| traffic(qp, cq, landing, 0),
    )?;
    per_object("QP as it is by default", 100, || connected(default()), |qp| traffic(qp, cq, landing, 512))?;
    per_object("QP 4096+4096, 32, 1024 inline", 4, || connected(large()), |qp| traffic(qp, cq, landing, 1024))
}

/// A queue pair that is connected to itself.
fn connected(builder: QpBuilder) -> std::result::Result<Qp<Rts>, userdma::Error> {
    let qp = builder.build()?;
    let peer = qp.endpoint();
    qp.connect(&peer)
}

/// Uses every place of both queues: messages of `inline` bytes to itself.
fn traffic(qp: &Qp<Rts>, cq: &Cq, landing: &Mr, inline: usize) -> Result {
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

fn per_object<T, E: Into<Box<dyn Error>>>(
    name: &str,
    count: u64,
    make: impl Fn() -> std::result::Result<T, E>,
    exercise: impl Fn(&T) -> Result,
) -> Result {
    let before = memory()?;
    let mut objects = Vec::new();
    for _ in 0..count {
        objects.push(make().map_err(Into::into)?);
    }
    let new = memory()?;
    for object in &objects {
        exercise(object)?;
    }
    let used = memory()?;
    // They stay, so that the next kind does not find memory that these have given back.
    std::mem::forget(objects);
    let each = |now: u64, then: u64| now.saturating_sub(then) * 1024 / count;
    println!(
        "{name:<30} {:>9} {:>14} {:>15}",
        each(new.set_aside, before.set_aside),
        each(new.resident, before.resident),
        each(used.resident, before.resident)
    );
    Ok(())
}

fn line(what: &str) -> Result {
    let threads = fs::read_dir("/proc/self/task")?.count();
    // One of them reads the folder.
    let descriptors = fs::read_dir("/proc/self/fd")?.count() - 1;
    println!("{what:<30} {:>14} {threads:>8} {descriptors:>12}", memory()?.resident);
    Ok(())
}

fn memory() -> Result<Memory> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    Ok(Memory { set_aside: field("VmData:")?, resident: field("RssAnon:")? })
}
