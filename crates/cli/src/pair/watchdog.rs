//! The watchdog: a thread that ends the program when a step takes too long or the second process dies, and says which
//! step it was. Whatever hangs, the program does not. Or it ends the second process only: whoever waits for that gets an
//! error, and may go on with something else.

use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use userdma_link::clock;
use userdma_verbs::Time;

/// A handle to the watchdog. When it is dropped the second process is ended and the watchdog is off.
#[derive(Debug)]
pub struct Watchdog {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    step: String,
    deadline: Time,
    /// What may be done about a step that takes too long.
    advice: &'static str,
    child: Option<Child>,
    is_off: bool,
    /// Only the second process is ended.
    is_sparing: bool,
    /// The process was found dead at the last look.
    has_died: bool,
}

impl Watchdog {
    /// Starts it, with a first step.
    pub fn start(step: &str, timeout: Duration) -> Self {
        Self::new(step, timeout, false)
    }

    /// Starts one that ends the second process only, when a step takes too long.
    pub fn start_sparing(step: &str, timeout: Duration) -> Self {
        Self::new(step, timeout, true)
    }

    fn new(step: &str, timeout: Duration, is_sparing: bool) -> Self {
        let state = State {
            step: step.to_owned(),
            deadline: clock::now() + timeout,
            advice: "",
            child: None,
            is_off: false,
            is_sparing,
            has_died: false,
        };
        let state = Arc::new(Mutex::new(state));
        let watched = Arc::clone(&state);
        std::thread::spawn(move || watch(&watched));
        Self { state }
    }

    /// From now on this step runs, and may take so long.
    pub fn step(&self, step: &str, timeout: Duration) {
        let mut state = lock(&self.state);
        step.clone_into(&mut state.step);
        state.deadline = clock::now() + timeout;
    }

    /// From now on this is said of a step that takes too long.
    pub fn advise(&self, advice: &'static str) {
        lock(&self.state).advice = advice;
    }

    /// Watches a process, which must live as long as the watchdog.
    pub fn look_after(&self, child: Child) {
        lock(&self.state).child = Some(child);
    }

    /// What became of the second process, if it has ended badly, or does within 100 ms: why something else went wrong.
    pub fn death(&self) -> Option<String> {
        for _ in 0..10 {
            let status = lock(&self.state).child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = status {
                return (!status.success()).then(|| death_notice(status));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.is_off = true;
        end(&mut state);
    }
}

fn watch(state: &Mutex<State>) {
    loop {
        std::thread::sleep(INTERVAL);
        let mut state = lock(state);
        if state.is_off {
            return;
        }
        let death = state.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if death.is_some() && !std::mem::replace(&mut state.has_died, true) {
            // Whoever waits for the process may be about to say why: only if it does not, this is all that is known.
            continue;
        }
        let why = match death {
            Some(status) => death_notice(status),
            None if clock::now() > state.deadline => format!("it takes too long{}", state.advice),
            None => continue,
        };
        end(&mut state);
        if state.is_sparing {
            return;
        }
        eprintln!("\nuserdma: FAILED in step \"{}\": {why}", state.step);
        std::process::exit(1);
    }
}

fn death_notice(status: ExitStatus) -> String {
    format!("the second process ended early ({status})")
}

/// Ends the second process, if it lives.
fn end(state: &mut State) {
    if let Some(mut child) = state.child.take() {
        // Both fail only if it is gone already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

const INTERVAL: Duration = Duration::from_millis(50);
