//! What the demo shows: text for people, or at the end one JSON object.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::failure::{self, Failure};

/// The screen.
#[derive(Debug)]
pub(super) struct Screen {
    is_json: bool,
    has_colour: bool,
    is_terminal: bool,
    has_progress: bool,
    report: Report,
    /// Why the text is not complete: the first error of writing it.
    failure: Option<Failure>,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    ok: bool,
    failure: Option<String>,
    steps: Vec<Step>,
    figures: Value,
}

#[derive(Debug, Default, Serialize)]
struct Step {
    name: String,
    ok: bool,
    lines: Vec<String>,
    packets: Vec<String>,
    verified: Vec<String>,
    wrong: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Style {
    Bold,
    Dim,
    Green,
    Red,
    Cyan,
}

impl Screen {
    /// Text on standard output, in colour if that is a terminal and `NO_COLOR` is not set; or JSON.
    pub(super) fn new(is_json: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            is_json,
            has_colour: is_terminal && !is_set("NO_COLOR") && !is_dumb,
            is_terminal,
            has_progress: false,
            report: Report::default(),
            failure: None,
        }
    }

    /// The first line.
    pub(super) fn title(&mut self, text: &str) {
        let text = self.paint(Style::Bold, text);
        self.print(&text);
        self.print("");
    }

    /// A line before the first step.
    pub(super) fn plain(&mut self, text: &str) {
        self.print(text);
    }

    /// A step begins. `about` explains it.
    pub(super) fn begin(&mut self, name: &str, title: &str, about: &[&str]) {
        self.report.steps.push(Step { name: name.to_owned(), ..Step::default() });
        let line = format!("\n{}", self.paint(Style::Bold, title));
        self.print(&line);
        about.iter().for_each(|line| self.print(&format!("   {line}")));
    }

    /// A part of a step.
    pub(super) fn part(&mut self, text: &str) {
        self.push(|step| &mut step.lines, text);
        let line = format!("  {}", self.paint(Style::Cyan, text));
        self.print(&line);
    }

    /// What somebody did or has.
    pub(super) fn line(&mut self, text: &str) {
        self.push(|step| &mut step.lines, text);
        self.print(&format!("    {text}"));
    }

    /// A packet.
    pub(super) fn packet(&mut self, text: &str) {
        self.push(|step| &mut step.packets, text);
        let line = format!("    {}", self.paint(Style::Dim, text));
        self.print(&line);
    }

    /// Something was compared and is right.
    pub(super) fn verified(&mut self, text: &str) {
        self.push(|step| &mut step.verified, text);
        let line = format!("  {} {text}", self.paint(Style::Green, "✓"));
        self.print(&line);
    }

    /// Something was compared and is wrong.
    pub(super) fn wrong(&mut self, text: &str) {
        self.push(|step| &mut step.wrong, text);
        let line = format!("  {} {text}", self.paint(Style::Red, "✗"));
        self.print(&line);
    }

    /// The step is over.
    ///
    /// # Errors
    /// What it showed could not be written.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        if let Some(step) = self.report.steps.last_mut() {
            step.ok = step.wrong.is_empty();
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// What is going on, for as long as it takes: on a terminal one line that changes.
    pub(super) fn progress(&mut self, text: &str) {
        if self.is_json {
            return;
        }
        if self.is_terminal {
            self.write(&format!("\r\x1b[K  {text}"));
            self.has_progress = true;
        } else {
            self.write(&format!("  {text}\n"));
        }
    }

    /// Figures for JSON.
    pub(super) fn figures(&mut self, figures: Value) {
        self.report.figures = figures;
    }

    /// The last word.
    ///
    /// # Errors
    /// Something went wrong, and has been said, unless it is that nothing can be said.
    pub(super) fn finish(mut self, failure: Option<Failure>, capture: Option<&Path>) -> Result<(), Failure> {
        let wrong: Vec<String> = self
            .report
            .steps
            .iter()
            .filter(|step| !step.wrong.is_empty())
            .map(|step| step.name.clone())
            .collect();
        let done = self.report.steps.iter().filter(|step| step.ok).count();
        self.report.ok = failure.is_none() && wrong.is_empty();
        let is_ok = self.report.ok;
        self.report.failure = match failure {
            Some(failure) => Some(failure.to_string()),
            None if is_ok => None,
            None => Some(format!("wrong in: {}", wrong.join(", "))),
        };
        if let (Some(path), false) = (capture, self.is_json) {
            let path = path.display();
            self.print(&format!(
                "\nThe packets of the steps are in {path}: `userdma capture {path}`, or Wireshark."
            ));
        }
        let last = match &self.report.failure {
            None => self.paint(Style::Green, &format!("✓ {done} steps, every byte as it should be")),
            Some(failure) => self.paint(Style::Red, &format!("✗ FAILED: {failure}")),
        };
        self.print(&format!("\n{last}"));
        if self.is_json {
            let text = serde_json::to_string_pretty(&self.report).map_err(|e| Failure::new(e.to_string()))?;
            self.write(&format!("{text}\n"));
        }
        match (&self.report.failure, self.failure) {
            (None, None) => Ok(()),
            (Some(failure), None) if self.is_json => Err(Failure::new(failure.clone())),
            (Some(_), None) => Err(Failure::silent()),
            (_, Some(failure)) => Err(failure),
        }
    }

    fn push(&mut self, list: impl FnOnce(&mut Step) -> &mut Vec<String>, text: &str) {
        if let Some(step) = self.report.steps.last_mut() {
            list(step).push(text.to_owned());
        }
    }

    fn print(&mut self, line: &str) {
        if self.is_json {
            return;
        }
        let erase = if std::mem::take(&mut self.has_progress) { "\r\x1b[K" } else { "" };
        self.write(&format!("{erase}{line}\n"));
    }

    /// Writes to standard output. Whoever read it may have gone (`| head`): the demo goes on, and its status tells how it
    /// went. Any other error ends it with the step.
    fn write(&mut self, text: &str) {
        let mut out = std::io::stdout().lock();
        let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = result
            && error.kind() != ErrorKind::BrokenPipe
        {
            self.failure.get_or_insert(failure::output(error).into());
        }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if !self.has_colour {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Green => 32,
            Style::Red => 31,
            Style::Cyan => 36,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
