//! The page `docs/benchmarks.md`, made from a report.

use std::fmt::Write;

use super::facts::Facts;
use super::objects::Objects;
use super::report::{Comparison, Measured, Report};
use super::series::SMALL_BUFFER;
use super::spread::{Spread, digits};

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut out = String::from(HEAD);
    out += &machine(report);
    out += "\n## Goals\n\n";
    out += GOALS;
    out += &comparisons(report, |comparison| !comparison.goal.is_empty());
    out += "\n## Besides\n\n";
    out += &comparisons(report, |comparison| comparison.goal.is_empty());
    if report.series.iter().any(|measured| measured.len.is_some()) {
        out += PICTURES;
    }
    out += "\n## What was measured\n\n| name | what | program | memory | rounds |\n|---|---|---|---|---|\n";
    let is_told = |one: &&Measured| one.len.is_none() || one.failure.is_some();
    report.series.iter().filter(is_told).for_each(|one| out += &series(one));
    if let Some(found) = &report.objects {
        out += &objects(found);
    }
    out
}

fn machine(report: &Report) -> String {
    let facts = &report.facts;
    let Facts { date, version, kernel, cpu, cpus, clock_source, tcp_congestion_control, .. } = facts;
    let bytes = |value: Option<usize>| value.map_or("unknown".to_owned(), |value| value.to_string());
    let pinned = facts.pinned.map_or("**not pinned**".to_owned(), |[a, b]| format!("CPU {a} and CPU {b}"));
    let build = if facts.is_optimized { "" } else { ", **not optimized**" };
    let mut rows = vec![
        ("date, version", format!("{date}, userdma {version}{build}")),
        ("kernel, CPUs", format!("{kernel}, {cpus} × {cpu}")),
        ("the two sides run on", pinned),
        ("clock source, TCP", format!("{clock_source}, {tcp_congestion_control}")),
        ("`rmem_max`, `wmem_max`", format!("{}, {}", bytes(facts.rmem_max), bytes(facts.wmem_max))),
        ("receive buffer", format!("{} bytes, or {SMALL_BUFFER} where it is said", bytes(facts.recv_buffer))),
        ("rounds", format!("{}, {} ms for a measurement", report.rounds, report.slice_ms)),
    ];
    if let Some(others) = Spread::of(facts.others.iter().map(|share| share * 100.0).collect()) {
        let Spread { min, median, max } = others;
        let text =
            format!("{median:.0} % of all CPU time ({min:.0} … {max:.0}), looked at before each round");
        rows.push(("used by others", text));
    }
    let mut out = String::from("| | |\n|---|---|\n");
    rows.iter().for_each(|(name, value)| put(&mut out, format_args!("| {name} | {value} |")));
    if Spread::of(facts.others.clone()).is_some_and(|others| others.median > QUIET) {
        out += BUSY;
    }
    out
}

fn comparisons(report: &Report, is_wanted: impl Fn(&Comparison) -> bool) -> String {
    let mut out = String::from(
        "| goal | what | unit | ours | beside it | ratio | must be | at best |\n|---|---|---|---|---|---|---|---|\n",
    );
    for comparison in report.comparisons.iter().filter(|one| is_wanted(one)) {
        let Comparison { goal, name, metric, ours, reference, ratio, must, stretch, .. } = comparison;
        let side = |id: &str, spread: Option<Spread>| match (spread, report.series(id)) {
            (Some(spread), _) => spread.to_string(),
            (None, Some(Measured { absent: Some(_), .. })) => "absent".to_owned(),
            (None, _) => "failed".to_owned(),
        };
        let judged = |bound: &Option<super::goals::Bound>, is_met: Option<bool>| match (bound, is_met) {
            (None, _) => String::new(),
            (Some(bound), Some(true)) => format!("{bound}: met"),
            (Some(bound), Some(false)) => format!("{bound}: **missed**"),
            (Some(bound), None) => format!("{bound}: unknown"),
        };
        put(
            &mut out,
            format_args!(
                "| {goal} | {name} | {} | {} | {} | {} | {} | {} |",
                metric.unit(),
                side(ours, comparison.ours_spread),
                side(reference, comparison.reference_spread),
                ratio.map_or(String::new(), |ratio| ratio.to_string()),
                judged(must, comparison.is_met()),
                judged(stretch, comparison.is_stretch_met()),
            ),
        );
    }
    out
}

fn series(measured: &Measured) -> String {
    let Measured { id, about, tool, memory, failure, absent, .. } = measured;
    let count = measured.rounds.iter().flatten().count();
    let why = [absent, failure].into_iter().flatten().fold(String::new(), |text, why| text + ": " + why);
    let why = why.replace(['\n', '|'], " ");
    format!("| `{id}` | {about} | {tool} | {memory} | {count}{why} |\n")
}

fn objects(Objects { process, each, completion_bytes }: &Objects) -> String {
    let mut out = String::from(OBJECTS);
    out += "| | resident, KiB | threads | descriptors | took, µs |\n|---|---|---|---|---|\n";
    for stage in process {
        let took = stage.took_us.map(digits).unwrap_or_default();
        let (what, kib) = (&stage.what, stage.resident_kib);
        put(
            &mut out,
            format_args!("| {what} | {kib} | {} | {} | {took} |", stage.threads, stage.descriptors),
        );
    }
    out += "\n| object, bytes each | made | set aside | resident, new | resident, used | time to make one, µs |\n\
            |---|---|---|---|---|---|\n";
    for one in each {
        let (what, count, took) = (&one.what, one.count, digits(one.create_us));
        let (aside, new, used) = (one.set_aside, one.resident_new, one.resident_used);
        put(&mut out, format_args!("| {what} | {count} | {aside} | {new} | {used} | {took} |"));
    }
    put(&mut out, format_args!("\nA completion takes {completion_bytes} bytes."));
    out
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

const HEAD: &str = "\
# Benchmarks

<!-- Made by `userdma bench`: do not edit. -->

This page is made by the program from one run, whose every value is in [benchmarks/run.json](benchmarks/run.json):

```text
userdma bench --json docs/benchmarks/run.json --svg docs/benchmarks --markdown docs/benchmarks.md
```

`userdma bench --from FILE --markdown FILE` makes it again. Two processes on loopback, each pinned to a CPU where the system
allows it, and other programs as children on the same two CPUs, take turns: each round measures everything once. A figure is the
median of the rounds, with the smallest and the largest behind it. A ratio is the median of the *rounds'* ratios, not the
quotient of the medians: machines drift by the minute, neighbours less. Take ratios rather than figures.

";

/// The share of CPU time that others may use while figures are taken.
const QUIET: f64 = 0.1;
const BUSY: &str = "
**The machine was busy with other things while this was measured.** Both sides of a ratio suffered, but not alike: what waits for
the scheduler (sleeping, streams, two processes at a time) is slower than it is, means are worse than medians, and verdicts are
to be confirmed on a quiet machine.
";

const GOALS: &str = "\
Of times and CPU time less is better, of rates and bandwidths more. *Must be* is what the project asks of itself, *at best* what
the machine makes look possible.

";

const PICTURES: &str = "
## Over message size

SEND/RECV by polling beside UDP and TCP sockets that spin, and streams. UDP datagrams end at 65,507 bytes. Messages up to 64
bytes are sent inline in the first picture, everything else comes from and goes to pages. Bars go from the smallest round to the
largest.

![half round trip over message size](benchmarks/latency.svg)

![goodput over message size](benchmarks/bandwidth.svg)
";

const OBJECTS: &str = "
## What objects cost

In a process of its own: the growth while many objects of a kind are made, divided by their number. *Set aside* is `VmData`,
*resident* is `RssAnon` of `/proc/self/status`, new and once every place of their queues had been used. Times include the
connecting of queue pairs (each to itself) and the first touch of memory.

";

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn the_page_in_the_repository_is_made_from_the_run_in_the_repository() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let report = super::super::read(&docs.join("benchmarks/run.json")).unwrap();
        assert!(page(&report) == std::fs::read_to_string(docs.join("benchmarks.md")).unwrap());
        for (name, text) in [("latency", svg::latency(&report)), ("bandwidth", svg::bandwidth(&report))] {
            assert!(text == std::fs::read_to_string(docs.join(format!("benchmarks/{name}.svg"))).unwrap());
        }
    }

    #[test]
    fn a_page_tells_goal_ratio_tool_and_what_is_absent() {
        let page = page(&sample());
        for line in [
            "| U1 | SEND of 8 bytes | µs | 1.25 (1.25 … 1.25) | 1.50 (1.00 … 2.00) | 1.25 (1.25 … 1.25) | ≤ 1.5: met | ≤ 1.3: met |",
            "| `ours` | about ours | userdma | inline | 1 |",
            "| `other` | about other | userdma | inline | 0: qperf is not installed |",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}
