//! Runs programs of the oracle on all processors. `cargo xtask oracle` builds and starts it.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use userdma_sim::oracle::{self, Case, Failure, Report, parse_seed};

const USAGE: &str = "\
oracle: random verbs programs on simulated devices, and a model that knows what must be true

  --seed S      the first program's seed, decimal or 0x…; otherwise another one each time
  --count N     how many programs (1000)
  --seconds T   end after this time, whatever the count (and without --count: run for this time)
  --threads N   how many at once; otherwise as many as there are processors
  --case TEXT   this one program, as a failure has named it
  --shrink      leave out of a program that fails whatever can be left out
  --trace       print every packet: of a failure, or of the one program of --case
";

/// What is asked for.
#[derive(Debug)]
struct Options {
    seed: u64,
    count: Option<u64>,
    seconds: Option<u64>,
    threads: Option<usize>,
    case: Option<Case>,
    shrink: bool,
    trace: bool,
}

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    /// Programs that were begun, and that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    stop: AtomicBool,
    report: Mutex<Report>,
    failure: Mutex<Option<Box<Failure>>>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("oracle: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match &options.case {
        Some(case) if options.trace && !options.shrink => {
            oracle::trace(case).iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Some(case) => match oracle::run(case) {
            Ok(report) => {
                println!("{report}");
                ExitCode::SUCCESS
            }
            Err(failure) => fail(&failure, &options),
        },
        None => run_many(&options),
    }
}

fn run_many(options: &Options) -> ExitCode {
    let count = options.count.unwrap_or(if options.seconds.is_some() { u64::MAX } else { 1000 });
    let threads = options.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get()));
    println!("oracle: programs from seed {:#x} on, {threads} at once", options.seed);
    let shared = Shared::default();
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| work(&shared, options.seed, count))).collect();
        watch(&shared, options.seconds, || workers.iter().all(thread::ScopedJoinHandle::is_finished));
    });
    let report = shared.report.into_inner().unwrap_or_default();
    println!("{report}");
    let failure = shared.failure.into_inner().ok().flatten();
    match failure {
        None => {
            println!("oracle: {} programs from seed {:#x}, no violation", report.programs, options.seed);
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("oracle: program {} of those from {:#x}", failure.case, options.seed);
            fail(&failure, options)
        }
    }
}

/// Runs one program after the other.
fn work(shared: &Shared, seed: u64, count: u64) {
    let mut mine = Report::default();
    while !shared.stop.load(Ordering::Relaxed) {
        let number = shared.begun.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            break;
        }
        match oracle::run(&Case::whole(seed.wrapping_add(number))) {
            Ok(report) => mine += report,
            Err(failure) => {
                shared.stop.store(true, Ordering::Relaxed);
                if let Ok(mut first) = shared.failure.lock() {
                    // The one with the smallest seed is named, as far as it has been found.
                    let is_earlier = |other: &Failure| {
                        failure.case.seed.wrapping_sub(seed) < other.case.seed.wrapping_sub(seed)
                    };
                    if first.as_deref().is_none_or(is_earlier) {
                        *first = Some(failure);
                    }
                }
            }
        }
        shared.ended.fetch_add(1, Ordering::Relaxed);
    }
    if let Ok(mut report) = shared.report.lock() {
        *report += mine;
    }
}

/// Tells how far it has come, every few seconds, and ends it when its time is over.
fn watch(shared: &Shared, seconds: Option<u64>, is_done: impl Fn() -> bool) {
    let mut ticks: u64 = 0;
    while !is_done() {
        thread::sleep(TICK);
        ticks += 1;
        if ticks.is_multiple_of(TICKS_PER_SECOND) {
            let now = ticks / TICKS_PER_SECOND;
            if seconds.is_some_and(|most| now >= most) {
                shared.stop.store(true, Ordering::Relaxed);
            }
            if now.is_multiple_of(5) {
                println!("  {now:>5} s  {} programs", shared.ended.load(Ordering::Relaxed));
            }
        }
    }
}

/// Prints a failure, made small if that is asked for.
fn fail(failure: &Failure, options: &Options) -> ExitCode {
    if !options.shrink {
        if options.trace {
            println!("{failure:#}")
        } else {
            println!("{failure}")
        }
        println!("smaller with --shrink");
        return ExitCode::FAILURE;
    }
    println!("program {}: {}", failure.case, failure.what);
    println!("leaving out what can be left out …");
    // If it is a panic, it was told once; now it happens some thousand times.
    std::panic::set_hook(Box::new(|_| {}));
    let Some(small) = oracle::shrink(&failure.case) else {
        println!("it does not fail again, which is a fault of the oracle");
        return ExitCode::FAILURE;
    };
    if let Err(small) = oracle::run(&small) {
        if options.trace { println!("{small:#}") } else { println!("{small}") }
    }
    println!("the whole program: cargo xtask oracle --case {}", failure.case);
    ExitCode::FAILURE
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let seed = || u64::from(std::process::id()) << 40 ^ random_bits();
    let mut options = Options {
        seed: seed(),
        count: None,
        seconds: None,
        threads: None,
        case: None,
        shrink: false,
        trace: false,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--seed" => options.seed = parse_seed(&value()?)?,
            "--count" => options.count = Some(number(&value()?)?),
            "--seconds" => options.seconds = Some(number(&value()?)?),
            "--threads" => options.threads = Some(usize::try_from(number(&value()?)?).unwrap_or(1).max(1)),
            "--case" => options.case = Some(value()?.parse()?),
            "--shrink" => options.shrink = true,
            "--trace" => options.trace = true,
            "-h" | "--help" => return Ok(None),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(Some(options))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("'{text}': {error}"))
}

/// Bits that are others in each run: the standard library seeds its hash maps with them.
fn random_bits() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

const TICKS_PER_SECOND: u64 = 20;
const TICK: Duration = Duration::from_millis(1000 / TICKS_PER_SECOND);
