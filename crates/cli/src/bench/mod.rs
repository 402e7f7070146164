//! `userdma bench`: this library beside plain sockets and other programs, in the same run.
//!
//! What counts is a ratio of neighbours: each round measures both, and the median over the rounds of the rounds' ratios is
//! judged.

mod cache_line;
mod facts;
mod goals;
mod markdown;
mod memcpy;
pub(crate) mod objects;
mod report;
mod run;
mod series;
mod session;
mod spread;
mod svg;
mod text;
pub(crate) mod tools;

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::pair::cpu;

use facts::Facts;
use goals::{GOALS, Goal, Metric};
use report::{Comparison, Report};
use series::{Curve, Series};
use spread::Spread;

/// Measures (or reads what was measured), prints, and judges if asked to.
///
/// # Errors
/// A file cannot be written; something could not be measured; with `--check`, a ratio is not what it must be.
pub fn run(args: &BenchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let selection = Selection::new(args.only.as_deref())?;
    if args.list {
        return selection.list(out);
    }
    let report = match &args.from {
        Some(path) => read(path)?,
        None => selection.measure(args),
    };
    write_all(args, &report, out)?;
    let failed: Vec<_> =
        report.series.iter().filter(|one| one.failure.is_some()).map(|one| &*one.id).collect();
    if !failed.is_empty() {
        return Err(Failure::new(format!("could not be measured: {}", failed.join(", "))));
    }
    if report.objects.is_none() && selection.has_objects && args.from.is_none() {
        return Err(Failure::new("could not be measured: objects"));
    }
    let missed: Vec<_> =
        report.comparisons.iter().filter(|one| one.is_met() == Some(false)).map(|one| &*one.name).collect();
    if args.check && !missed.is_empty() {
        return Err(Failure::new(format!("not as it must be: {}", missed.join("; "))));
    }
    Ok(())
}

/// What is to be measured.
struct Selection {
    goals: Vec<&'static Goal>,
    has_curves: bool,
    has_objects: bool,
}

impl Selection {
    /// Everything, or that whose goal is `only` or whose name contains it.
    fn new(only: Option<&str>) -> Result<Self, Failure> {
        let Some(only) = only else {
            return Ok(Self { goals: GOALS.iter().collect(), has_curves: true, has_objects: true });
        };
        let is_wanted = |goal: &&Goal| goal.id.eq_ignore_ascii_case(only) || goal.name.contains(only);
        let selection = Self {
            goals: GOALS.iter().filter(is_wanted).collect(),
            has_curves: only == CURVES,
            has_objects: only == OBJECTS,
        };
        if selection.goals.is_empty() && !selection.has_curves && !selection.has_objects {
            return Err(Failure::new(format!(
                "--only {only} fits nothing that `userdma bench --list` shows"
            )));
        }
        Ok(selection)
    }

    fn list(&self, out: &mut impl Write) -> Result<(), Failure> {
        for Goal { id, name, must, stretch, .. } in &self.goals {
            let bound = |word, bound: &Option<_>| {
                bound.map_or(String::new(), |b: goals::Bound| format!("  {word} {b}"))
            };
            writeln!(out, "{id:<4} {name:<64}{}{}", bound("must be", must), bound("at best", stretch))?;
        }
        if self.has_curves {
            writeln!(out, "     {CURVES:<64}  latency and bandwidth over message size")?;
        }
        if self.has_objects {
            writeln!(out, "     {OBJECTS:<64}  memory and time that objects cost")?;
        }
        Ok(())
    }

    /// What has to be measured for it, neighbours side by side.
    fn series(&self) -> Vec<Series> {
        let is_needed = |series: &Series| {
            self.goals.iter().any(|goal| [goal.ours, goal.reference].contains(&series.id.as_str()))
        };
        let mut list: Vec<_> = series::all().into_iter().filter(is_needed).collect();
        if self.has_curves {
            list.extend(series::curves());
        }
        list
    }

    fn measure(&self, args: &BenchArgs) -> Report {
        let objects = self
            .has_objects
            .then(objects::measure)
            .and_then(|found| found.inspect_err(|failure| eprintln!("FAILED objects: {failure}")).ok());
        let cpus = cpu::two();
        let is_pinned = cpus.is_some_and(|[first, _]| cpu::pin(first));
        let mut facts = Facts::look(cpus.map_or(1, |_| cpu_count()), cpus.filter(|_| is_pinned));
        let (rounds, slice_ms) = if args.quick { (2, 20) } else { (7, 300) };
        let plan = run::Plan {
            rounds: args.rounds.unwrap_or(rounds),
            slice_ms: args.slice.unwrap_or(slice_ms),
            addresses: args.addresses,
            cpus,
        };
        let series = run::all(&plan, &self.series(), &mut facts);
        let comparisons = self.goals.iter().map(|goal| Comparison::new(goal, &series));
        // So short a run shows that everything works, and not how well.
        let comparisons =
            comparisons.map(|one| if args.quick { one.without_bounds() } else { one }).collect();
        let (rounds, slice_ms) = (plan.rounds, plan.slice_ms);
        Report { format: Report::FORMAT, facts, rounds, slice_ms, series, comparisons, objects }
    }
}

/// All CPUs of the machine that are online; after pinning only one is allowed.
fn cpu_count() -> usize {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count().max(2)
}

/// A curve's points: bytes, and what was measured.
fn points(report: &Report, curve: &Curve, metric: Metric) -> Vec<(usize, Spread)> {
    let prefix = format!("{}/", curve.id);
    let of_curve = report.series.iter().filter(|measured| measured.id.starts_with(&prefix));
    of_curve.filter_map(|measured| Some((measured.len?, measured.spread(metric)?))).collect()
}

fn read(path: &Path) -> Result<Report, Failure> {
    let problem = |why: String| Failure::new(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| problem(error.to_string()))?;
    if report.format != Report::FORMAT {
        return Err(problem(format!("format {} is not known", report.format)));
    }
    Ok(report)
}

/// Writes what was asked for; for people, unless something else goes to standard output.
fn write_all(args: &BenchArgs, report: &Report, out: &mut impl Write) -> Result<(), Failure> {
    let mut is_taken = false;
    let mut write = |path: &Path, text: &str, out: &mut dyn Write| {
        if path == Path::new("-") {
            is_taken = true;
            return Ok(out.write_all(text.as_bytes())?);
        }
        fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    };
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(report).map_err(|error| Failure::new(error.to_string()))?;
        write(path, &(text + "\n"), out)?;
    }
    if let Some(dir) = &args.svg {
        fs::create_dir_all(dir)?;
        write(&dir.join("latency.svg"), &svg::latency(report), out)?;
        write(&dir.join("bandwidth.svg"), &svg::bandwidth(report), out)?;
    }
    if let Some(path) = &args.markdown {
        write(path, &markdown::page(report), out)?;
    }
    if !is_taken {
        out.write_all(text::of(report).as_bytes())?;
    }
    Ok(())
}

const CURVES: &str = "curves";
const OBJECTS: &str = "objects";

#[cfg(test)]
mod tests {
    use super::series::{BANDWIDTH, LATENCY};
    use super::*;

    #[test]
    fn a_goal_is_chosen_by_its_id_or_by_words() {
        let names = |only| Selection::new(Some(only)).map(|s| s.goals.len()).unwrap_or(0);
        assert_eq!((names("u9"), names("nothing")), (1, 0));
        assert!(names("SEND of 8 bytes") > 3 && Selection::new(Some("objects")).is_ok());
        assert_eq!(Selection::new(Some("U9")).unwrap().series().len(), 2);
    }

    #[test]
    fn a_report_comes_back_from_its_file() {
        let report = sample();
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    /// A small report with everything in it.
    pub(in crate::bench) fn sample() -> Report {
        use report::tests::{GOAL, measured};
        let mut series =
            vec![measured("ours", &[Some(1.25), None]), measured("theirs", &[Some(1.0), Some(2.0)])];
        for (index, curve) in LATENCY.iter().chain(&BANDWIDTH).enumerate() {
            for power in 0..3_usize {
                let mut point = measured(&format!("{}/{}", curve.id, 1 << (4 * power)), &[]);
                point.len = Some(1 << (4 * power));
                let value = 1.5 + (index + 10 * power) as f64;
                point.rounds = vec![Some(report::Figures {
                    half_trip_us: Some(value),
                    gb_per_s: Some(value),
                    ..report::Figures::default()
                })];
                series.push(point);
            }
        }
        let mut absent = measured("other", &[]);
        absent.absent = Some("qperf is not installed".to_owned());
        series.push(absent);
        Report {
            format: Report::FORMAT,
            facts: Facts::look(2, Some([0, 1])),
            rounds: 2,
            slice_ms: 20,
            comparisons: vec![Comparison::new(&GOAL, &series)],
            series,
            objects: None,
        }
    }
}
