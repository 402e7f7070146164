//! Other processes: the test program, started again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process that runs one test of this program, and is killed when this is dropped.
pub struct Other {
    pub child: Child,
    out: BufReader<ChildStdout>,
}

impl Other {
    /// Runs `test` with a `role`.
    pub fn start(test: &str, role: &str) -> Self {
        Self::start_with(test, role, &[])
    }

    /// The same, with more in its environment.
    pub fn start_with(test: &str, role: &str, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// What it says next; what the test harness prints is passed over.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "the other process says something");
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim().to_owned();
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the other process: its role; `None` if this is not one.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// In the other process: says something.
pub fn say(what: &str) {
    println!("{MARK}{what}");
    std::io::stdout().flush().unwrap();
}

const ROLE: &str = "USERDMA_TEST_OTHER";
const MARK: &str = "other: ";
