//! Other processes: this test program, started again to run one test's other side.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use userdma::{Device, Endpoint, Exchange, RemoteMr};

use super::ALL;

/// Another process: this test program, running one function of this file.
pub(crate) struct Other {
    pub(crate) child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Other {
    pub(crate) fn start(test: &str) -> Self {
        Self::start_as(test, "1", &[])
    }

    /// The other process finds `role` by [`role`], and more variables in its environment.
    pub(crate) fn start_as(test: &str, role: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, role)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The next line that begins with the mark; what the test harness prints is passed over.
    pub(crate) fn line(&mut self) -> String {
        let lines = (&mut self.out).lines().map(Result::unwrap);
        let mut marked = lines.filter_map(|line| line.split_once(MARK).map(|(_, rest)| rest.to_owned()));
        marked.next().expect("the other process says something")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn is_child() -> bool {
    role().is_some()
}

/// What this process was started as, if it is such another process.
pub(crate) fn role() -> Option<String> {
    std::env::var(CHILD).ok()
}

pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{MARK}{text}").and_then(|()| out.flush()).unwrap();
}

/// Opens memory to whoever sends its endpoint on the standard input, and sleeps for ever.
pub(crate) fn offer_memory(address: &str, len: usize) {
    let device = Device::open(address).unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(1).unwrap();
    let mr = pd.alloc(len, ALL).unwrap();
    let qp = pd.create_qp(&cq, &cq).build().unwrap();
    say(&hex(&(qp.endpoint(), mr.remote())));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let _qp = qp.connect(&unhex(&line)).unwrap();
    say("connected");
    std::thread::sleep(Duration::from_secs(60));
}

/// The parent's side of [`offer_memory`].
pub(crate) fn meet(other: &mut Other, ours: &Endpoint) -> (Endpoint, RemoteMr) {
    let theirs = unhex(&other.line());
    writeln!(other.child.stdin.as_mut().unwrap(), "{}", hex(ours)).unwrap();
    assert_eq!(other.line(), "connected");
    theirs
}

pub(crate) fn hex<T: Exchange>(value: &T) -> String {
    let mut bytes = vec![0; T::LEN];
    value.encode(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex<T: Exchange>(text: &str) -> T {
    let digits = text.trim().as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    T::decode(&bytes)
}

pub(crate) const CHILD: &str = "USERDMA_TEST_CHILD";
/// Begins what one process says to the other.
pub(crate) const MARK: &str = "#>";
