//! The bound of everything between two cores: a number to and fro, through a cache line for each direction.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

use userdma_link::clock;

use super::report::Figures;
use crate::failure::Failure;
use crate::measure::rounds::median;
use crate::pair::cpu;

/// A line of its own, and its neighbour, which processors fetch with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Two threads, the second on `cpu`, spin for so long.
pub(super) fn measure(slice_ns: u64, cpu: usize) -> Result<Figures, Failure> {
    let (there, back) = (Line::default(), Line::default());
    let half_trips_us = std::thread::scope(|scope| {
        scope.spawn(|| echo(cpu, &there, &back));
        lead(slice_ns, &there, &back)
    });
    let mut half_trips_us = half_trips_us;
    if half_trips_us.is_empty() {
        return Err(Failure::new("no round trip in time"));
    }
    Ok(Figures { half_trip_us: Some(median(&mut half_trips_us)), ..Figures::default() })
}

fn lead(slice_ns: u64, there: &Line, back: &Line) -> Vec<f64> {
    let mut half_trips_us = Vec::new();
    let mut next = 1;
    let start = clock::now();
    let mut before = start;
    while before.since(start).as_nanos() < slice_ns.into() {
        for _ in 0..WINDOW {
            there.0.store(next, Ordering::Release);
            while back.0.load(Ordering::Acquire) != next {
                spin_loop();
            }
            next += 1;
        }
        let now = clock::now();
        half_trips_us.push(now.since(before).as_nanos() as f64 / (2 * WINDOW) as f64 / 1000.0);
        before = now;
    }
    there.0.store(STOP, Ordering::Release);
    half_trips_us
}

fn echo(cpu: usize, there: &Line, back: &Line) {
    // On one CPU with the other thread it is slow, and still right.
    cpu::pin(cpu);
    let mut last = 0;
    loop {
        match there.0.load(Ordering::Acquire) {
            STOP => return,
            value if value != last => {
                last = value;
                back.0.store(value, Ordering::Release);
            }
            _ => spin_loop(),
        }
    }
}

const WINDOW: u64 = 256;
const STOP: u64 = u64::MAX;
