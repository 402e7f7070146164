//! The median of rounds, and the extremes.

use serde::{Deserialize, Serialize};

use crate::measure::rounds::median;

/// Values of one figure in all rounds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The smallest.
    pub(crate) min: f64,
    /// The median.
    pub(crate) median: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without a value.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        // It sorts.
        let median = median(&mut values);
        Some(Self { min: *values.first()?, median, max: *values.last()? })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} … {})", digits(self.median), digits(self.min), digits(self.max))
    }
}

/// Three digits that count.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        small if small >= 0.9995 || small == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_extremes() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(spread, Spread { min: 1.0, median: 2.5, max: 10.0 });
        assert_eq!(spread.to_string(), "2.50 (1.00 … 10.0)");
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn three_digits_count() {
        let shown = [1234.5, 99.96, 12.345, 9.996, 1.0, 0.1234, 0.0].map(digits);
        assert_eq!(shown, ["1234", "100", "12.3", "10.0", "1.00", "0.123", "0.00"]);
    }
}
