//! Other processes for tests: the test program itself, started again.
//!
//! A test that needs another process starts one that runs a test, as a rule the same, in a role. There [`role`] says that it is not
//! the first, and which part to play. What it says are lines with a mark, as the test harness prints on the same stream.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets the unexpected fails")]

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Another process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Other {
    /// The process.
    pub child: Child,
    out: BufReader<ChildStdout>,
}

impl Other {
    /// Runs `test` in a role.
    pub fn start(test: &str, role: &str) -> Self {
        Self::start_with(test, role, &[])
    }

    /// The same, with more in its environment.
    pub fn start_with(test: &str, role: &str, environment: &[(&str, &str)]) -> Self {
        Self::spawn(command(test).env(ROLE, role).envs(environment.iter().copied()))
    }

    /// Runs a [`command`] to which something was added.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// What it says next; what the test harness prints is passed over.
    pub fn line(&mut self) -> String {
        let lines = (&mut self.out).lines().map(Result::unwrap);
        let mut said = lines.filter_map(|line| line.split_once(MARK).map(|(_, said)| said.to_owned()));
        said.next().expect("the other process says something")
    }

    /// Writes a line to its standard input.
    pub fn tell(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    /// Kills it, and waits until it has gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program, to run one test whose input and output are ours.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Runs `test` in another process, and fails with what is printed there unless it passes; `false` in that process.
pub fn is_done_apart(test: &str, environment: &[(&str, &str)]) -> bool {
    if role().is_some() {
        return false;
    }
    let mut command = command(test);
    let output = command.env(ROLE, "apart").envs(environment.iter().copied()).stderr(Stdio::piped()).output();
    let output = output.unwrap();
    let [printed, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    // A name that is no test's passes, too.
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}{errors}");
    true
}

/// In another process: its role. `None` in the first.
pub fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Whether this is another process.
pub fn is_other() -> bool {
    role().is_some()
}

/// In another process: says something, in one line.
pub fn say(what: &str) {
    let mut out = io::stdout();
    writeln!(out, "{MARK}{what}").and_then(|()| out.flush()).unwrap();
}

const ROLE: &str = "USERDMA_TEST_ROLE";
/// Begins what another process says.
const MARK: &str = "#>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_has_a_role_is_told_and_says() {
        if let Some(role) = role() {
            let mut told = String::new();
            io::stdin().read_line(&mut told).unwrap();
            print!("of the harness, without an end of line ");
            return say(&format!("{role}, {}, {}", told.trim_end(), env::var("OF_ITS_OWN").unwrap()));
        }
        let test = "tests::another_process_has_a_role_is_told_and_says";
        let mut other = Other::start_with(test, "echo", &[("OF_ITS_OWN", "set")]);
        other.tell("called");
        assert_eq!(other.line(), "echo, called, set");
    }

    #[test]
    #[should_panic(expected = "0 passed")]
    fn what_is_no_test_is_not_done_apart() {
        is_done_apart("tests::none", &[]);
    }
}
