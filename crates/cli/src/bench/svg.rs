//! Pictures over message size: plain SVG, both axes logarithmic, readable on a light and on a dark page.

use std::fmt::Write;

use super::goals::Metric;
use super::points;
use super::report::Report;
use super::series::{BANDWIDTH, Curve, LATENCY};
use super::spread::{Spread, digits};
use super::text::size;

/// Half round trips.
pub(super) fn latency(report: &Report) -> String {
    let title = "Half round trip over message size, µs (lower is better)";
    chart(title, &LATENCY.each_ref().map(|curve| line(report, curve, Metric::HalfTripUs)))
}

/// Goodput.
pub(super) fn bandwidth(report: &Report) -> String {
    let title = "Goodput over message size, GB/s (higher is better)";
    chart(title, &BANDWIDTH.each_ref().map(|curve| line(report, curve, Metric::GbPerS)))
}

/// A named line: bytes, and what was measured.
struct Line {
    name: &'static str,
    points: Vec<(usize, Spread)>,
}

fn line(report: &Report, curve: &Curve, metric: Metric) -> Line {
    Line { name: curve.name, points: points(report, curve, metric) }
}

/// Where values are on the page.
struct Scale {
    /// Powers of ten at the bottom and at the top.
    decades: [i32; 2],
}

impl Scale {
    fn of(lines: &[Line]) -> Self {
        let values =
            lines.iter().flat_map(|line| &line.points).flat_map(|(_, spread)| [spread.min, spread.max]);
        let values = values.filter(|value| *value > 0.0);
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        // Nothing measured: a frame without lines.
        let (low, high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        let floor = power(low.log10().floor());
        Self { decades: [floor, power(high.log10().ceil()).max(floor + 1)] }
    }

    fn x(len: usize) -> f64 {
        LEFT + (len as f64).log2() / MAX_LOG2 * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let [low, high] = self.decades.map(f64::from);
        BOTTOM - (value.max(1e-12).log10() - low) / (high - low) * (BOTTOM - TOP)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "logarithms of measured figures are small")]
fn power(log: f64) -> i32 {
    log as i32
}

fn chart(title: &str, lines: &[Line]) -> String {
    let scale = Scale::of(lines);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"24\">{title}</text>\n",
        title = escape(title)
    );
    axes(&mut out, &scale);
    for (index, line) in lines.iter().enumerate() {
        draw(&mut out, &scale, index, line);
        legend(&mut out, index, line.name);
    }
    out + "</svg>\n"
}

fn axes(out: &mut String, scale: &Scale) {
    for power in (0..=22).step_by(2) {
        let x = Scale::x(1 << power);
        let label = size(1 << power);
        put(out, format_args!("<path class=\"grid\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/>"));
        put(out, format_args!("<text class=\"x\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>", BOTTOM + 18.0));
    }
    for decade in scale.decades[0]..=scale.decades[1] {
        let value = 10_f64.powi(decade);
        let y = scale.y(value);
        let label = if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") };
        put(out, format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>"));
        put(
            out,
            format_args!("<text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>", LEFT - 8.0, y + 4.0),
        );
    }
}

/// A line through the medians; a bar at each from the smallest to the largest round.
fn draw(out: &mut String, scale: &Scale, index: usize, line: &Line) {
    let mut path = String::new();
    for (number, (len, spread)) in line.points.iter().enumerate() {
        let step = if number == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", Scale::x(*len), scale.y(spread.median));
    }
    put(out, format_args!("<g class=\"s{index}\">"));
    if !path.is_empty() {
        put(out, format_args!("<path class=\"line\" d=\"{path}\"/>"));
    }
    for (len, spread) in &line.points {
        let (x, y) = (Scale::x(*len), scale.y(spread.median));
        let told = format!("{}, {}: {}", line.name, size(*len), digits(spread.median));
        put(
            out,
            format_args!(
                "<path class=\"bar\" d=\"M{x:.1} {:.1}V{:.1}\"/><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\">\
             <title>{}</title></circle>",
                scale.y(spread.min),
                scale.y(spread.max),
                escape(&told)
            ),
        );
    }
    put(out, format_args!("</g>"));
}

fn legend(out: &mut String, index: usize, name: &str) {
    let x = LEFT + 220.0 * index as f64;
    let y = HEIGHT - 14.0;
    put(
        out,
        format_args!(
            "<g class=\"s{index}\"><path class=\"line\" d=\"M{x:.1} {:.1}h26\"/></g>\
         <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 4.0,
            x + 32.0,
            escape(name)
        ),
    );
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 736.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 386.0;
/// 4 MiB.
const MAX_LOG2: f64 = 22.0;
/// Colours that are told apart by people who see few of them, and dashes for those who see none.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}\
.x{text-anchor:middle;font-size:11px}.y{text-anchor:end;font-size:11px}\
.grid{stroke:#8c959f;stroke-opacity:.35;fill:none}.line{fill:none;stroke-width:2.2}.bar{fill:none;stroke-width:1.2}\
.s0{stroke:#0060c0;fill:#0060c0}.s1{stroke:#c04a00;fill:#c04a00}.s2{stroke:#2a7d3b;fill:#2a7d3b}\
.s1 .line{stroke-dasharray:7 4}.s2 .line{stroke-dasharray:2 3}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.grid{stroke:#9198a1}\
.s0{stroke:#58a6ff;fill:#58a6ff}.s1{stroke:#ff9d57;fill:#ff9d57}.s2{stroke:#5fd07a;fill:#5fd07a}}";

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    /// Opening and closing tags in order; nothing left over and nothing that has to be escaped.
    fn check_well_formed(text: &str) {
        let mut open = Vec::new();
        for piece in text.split('<').skip(1) {
            let (tag, content) = piece.split_once('>').expect("a tag ends");
            assert!(!content.contains('>'), "{piece}");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{piece}"),
                None if tag.ends_with('/') => {}
                None => open.extend(tag.split_whitespace().next()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn pictures_are_well_formed_and_have_every_point() {
        for text in [latency(&sample()), bandwidth(&sample())] {
            check_well_formed(&text);
            assert_eq!((text.matches("<circle").count(), text.matches("class=\"line\"").count()), (9, 6));
            assert!(text.contains("prefers-color-scheme:dark") && !text.contains("NaN"), "{text}");
        }
    }

    #[test]
    fn nothing_measured_is_an_empty_frame() {
        let mut report = sample();
        report.series.clear();
        let text = latency(&report);
        check_well_formed(&text);
        assert!(!text.contains("<circle") && !text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn words_cannot_break_it() {
        check_well_formed(&chart("a < b & \"c\"", &[Line { name: "<x>", points: Vec::new() }]));
    }
}
