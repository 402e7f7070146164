//! What a run found, as it is kept in a file.

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::goals::{Bound, Goal, Metric};
use super::objects::Objects;
use super::spread::Spread;

/// A whole run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Which form the file has: [`FORMAT`].
    pub(crate) format: u32,
    /// Where and when.
    pub(crate) facts: Facts,
    /// How many rounds were to be made.
    pub(crate) rounds: u32,
    /// Milliseconds of a measurement; those of the curves took a fifth.
    pub(crate) slice_ms: u64,
    /// Everything measured.
    pub(crate) series: Vec<Measured>,
    /// What was compared.
    pub(crate) comparisons: Vec<Comparison>,
    /// What objects cost.
    pub(crate) objects: Option<Objects>,
}

/// One thing in all rounds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// Its name, as comparisons use it.
    pub(crate) id: String,
    /// What it is.
    pub(crate) about: String,
    /// Which program did it.
    pub(crate) tool: String,
    /// Which memory the bytes came from and went to.
    pub(crate) memory: String,
    /// Bytes of a message, for points of a curve.
    pub(crate) len: Option<usize>,
    /// Each round's figures; nothing where it was not measured.
    pub(crate) rounds: Vec<Option<Figures>>,
    /// Why it ended early.
    pub(crate) failure: Option<String>,
    /// Why it was not measured at all.
    pub(crate) absent: Option<String>,
}

/// What one measurement may tell.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Half of a round trip, or what one operation takes, microseconds.
    pub(crate) half_trip_us: Option<f64>,
    /// Billions of bytes a second.
    pub(crate) gb_per_s: Option<f64>,
    /// Millions of messages a second.
    pub(crate) m_per_s: Option<f64>,
    /// CPU seconds of all processes for 10^9 bytes.
    pub(crate) cpu_s_per_gb: Option<f64>,
}

/// Something of ours beside something else.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// The goal's name, as `U1`; empty for what is only shown.
    pub(crate) goal: String,
    /// What is compared.
    pub(crate) name: String,
    /// Which figure.
    pub(crate) metric: Metric,
    /// The series in the numerator.
    pub(crate) ours: String,
    /// The series in the denominator.
    pub(crate) reference: String,
    /// Its rounds, if there are any.
    pub(crate) ours_spread: Option<Spread>,
    /// Its rounds.
    pub(crate) reference_spread: Option<Spread>,
    /// The rounds' ratios.
    pub(crate) ratio: Option<Spread>,
    /// What the median ratio must be.
    pub(crate) must: Option<Bound>,
    /// What it might be at best.
    pub(crate) stretch: Option<Bound>,
}

impl Report {
    /// The form that this program writes and reads.
    pub(crate) const FORMAT: u32 = 1;

    /// The series called `id`.
    pub(crate) fn series(&self, id: &str) -> Option<&Measured> {
        self.series.iter().find(|measured| measured.id == id)
    }
}

impl Measured {
    /// A figure in each round that has it, with the round.
    pub(crate) fn values(&self, metric: Metric) -> impl Iterator<Item = (usize, f64)> + '_ {
        let value = move |(round, figures): (usize, &Option<Figures>)| Some((round, metric.of((*figures)?)?));
        self.rounds.iter().enumerate().filter_map(value)
    }

    /// The spread of a figure.
    pub(crate) fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::of(self.values(metric).map(|(_, value)| value).collect())
    }
}

impl Comparison {
    /// Compares what `goal` says: each round's neighbours, never figures of different rounds.
    pub(crate) fn new(goal: &Goal, series: &[Measured]) -> Self {
        let find = |id: &str| series.iter().find(|measured| measured.id == id);
        let (ours, reference) = (find(goal.ours), find(goal.reference));
        let ratios = ours.zip(reference).map(|(ours, reference)| {
            let of_round = |round| {
                reference.values(goal.metric).find_map(|(other, value)| (other == round).then_some(value))
            };
            ours.values(goal.metric).filter_map(|(round, value)| Some(value / of_round(round)?)).collect()
        });
        let spread = |measured: Option<&Measured>| measured.and_then(|m| m.spread(goal.metric));
        Self {
            goal: goal.id.to_owned(),
            name: goal.name.to_owned(),
            metric: goal.metric,
            ours: goal.ours.to_owned(),
            reference: goal.reference.to_owned(),
            ours_spread: spread(ours),
            reference_spread: spread(reference),
            ratio: ratios.and_then(Spread::of),
            must: goal.must,
            stretch: goal.stretch,
        }
    }

    /// The same figures, of which nothing is demanded.
    pub(crate) fn without_bounds(self) -> Self {
        Self { must: None, stretch: None, ..self }
    }

    /// Whether the ratio is what it must be; `None` if nothing is demanded or known.
    pub(crate) fn is_met(&self) -> Option<bool> {
        Some(self.must?.holds(self.ratio?.median))
    }

    /// Whether the ratio is what it might be at best.
    pub(crate) fn is_stretch_met(&self) -> Option<bool> {
        Some(self.stretch?.holds(self.ratio?.median))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bench) fn measured(id: &str, half_trips_us: &[Option<f64>]) -> Measured {
        let figures =
            |us: &Option<f64>| us.map(|us| Figures { half_trip_us: Some(us), ..Figures::default() });
        Measured {
            id: id.to_owned(),
            about: format!("about {id}"),
            tool: "userdma".to_owned(),
            memory: "inline".to_owned(),
            len: None,
            rounds: half_trips_us.iter().map(figures).collect(),
            failure: None,
            absent: None,
        }
    }

    pub(in crate::bench) const GOAL: Goal = Goal {
        id: "U1",
        name: "SEND of 8 bytes",
        metric: Metric::HalfTripUs,
        ours: "ours",
        reference: "theirs",
        must: Some(Bound::AtMost(1.5)),
        stretch: Some(Bound::AtMost(1.3)),
    };

    #[test]
    fn the_median_of_the_rounds_ratios_is_judged() {
        // Ratios 1.4, 1.6, 1.2: neighbours, though the machine has become three times slower in between.
        let ours = measured("ours", &[Some(1.4), Some(3.2), Some(3.6)]);
        let theirs = measured("theirs", &[Some(1.0), Some(2.0), Some(3.0)]);
        let judged = Comparison::new(&GOAL, &[ours, theirs]);
        assert!((judged.ratio.unwrap().median - 1.4).abs() < 1e-9);
        assert_eq!((judged.is_met(), judged.is_stretch_met()), (Some(true), Some(false)));
    }

    #[test]
    fn rounds_without_a_neighbour_do_not_count() {
        let ours = measured("ours", &[Some(1.0), None, Some(6.0)]);
        let theirs = measured("theirs", &[None, Some(1.0), Some(3.0)]);
        let judged = Comparison::new(&GOAL, &[ours, theirs]);
        assert_eq!(judged.ratio, Some(Spread { min: 2.0, median: 2.0, max: 2.0 }));
        assert_eq!(judged.is_met(), Some(false));
        assert_eq!(Comparison::new(&GOAL, &[]).is_met(), None, "nothing measured is nothing met");
    }
}
