//! A run as people read it in a terminal.

use super::goals::Metric;
use super::report::{Comparison, Report};
use super::series::{BANDWIDTH, Curve, LATENCY};
use super::spread::digits;

/// Everything that was found.
pub(super) fn of(report: &Report) -> String {
    let facts = &report.facts;
    let mut out = match facts.pinned {
        Some([a, b]) => format!("pinned to CPU {a} and CPU {b}"),
        None => "NOT pinned: there are not two CPUs, or the system refuses; spinning measures the scheduler"
            .into(),
    };
    if let Some(most) = facts.others.iter().copied().reduce(f64::max) {
        out += &format!("; others used up to {:.0} % of the machine's CPU time", most * 100.0);
    }
    out += "\n\n";
    for comparison in &report.comparisons {
        out += &lines(report, comparison);
    }
    for (curves, metric) in [(&LATENCY, Metric::HalfTripUs), (&BANDWIDTH, Metric::GbPerS)] {
        curves.iter().for_each(|curve| out += &points(report, curve, metric));
    }
    if let Some(objects) = &report.objects {
        out += &objects.to_string();
    }
    out
}

fn lines(report: &Report, comparison: &Comparison) -> String {
    let Comparison { goal, name, metric, ours, reference, ratio, must, stretch, .. } = comparison;
    let mut out = format!("{goal}{}{name}", if goal.is_empty() { "" } else { "  " });
    let sides = [(ours, comparison.ours_spread), (reference, comparison.reference_spread)];
    for (id, spread) in sides {
        let Some(measured) = report.series(id) else { continue };
        let label = format!("{}: {}", measured.tool, measured.about);
        let unit = metric.unit();
        let spread = spread.map(|spread| format!("{spread} {unit}"));
        let absent = measured.absent.as_ref().map(|why| format!("ABSENT: {why}"));
        let failed = measured.failure.as_ref().map(|why| format!("FAILED: {why}"));
        let said: Vec<_> = [spread, absent, failed].into_iter().flatten().collect();
        out += &format!("\n    {label:<76} {}", said.join("; "));
    }
    if let Some(ratio) = ratio {
        out += &format!("\n    {:<76} {ratio} ×", "ratio");
        for (word, bound, is_met) in
            [("must be", must, comparison.is_met()), ("at best", stretch, comparison.is_stretch_met())]
        {
            if let Some((bound, is_met)) = bound.zip(is_met) {
                out += &format!("   {word} {bound}: {}", if is_met { "met" } else { "MISSED" });
            }
        }
    }
    out + "\n\n"
}

fn points(report: &Report, curve: &Curve, metric: Metric) -> String {
    let points: Vec<_> = super::points(report, curve, metric);
    if points.is_empty() {
        return String::new();
    }
    let words = points.iter().map(|(len, spread)| format!("{}: {}", size(*len), digits(spread.median)));
    format!("{}, {}\n    {}\n", curve.name, metric.unit(), words.collect::<Vec<_>>().join("  "))
}

/// Bytes as people say them.
pub(super) fn size(len: usize) -> String {
    match len {
        0..1024 => format!("{len} B"),
        1024..1_048_576 => format!("{} KiB", len >> 10),
        _ => format!("{} MiB", len >> 20),
    }
}
