//! `userdma demo`: RDMA at work between two processes, step by step; then figures.

mod measured;
mod recorder;
mod screen;
mod steps;
mod table;

use std::time::Duration;

use userdma::AccessFlags;

use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::measure::Setup;
use crate::measure::rounds::prepare;
use crate::pair::addresses::Pair;
use crate::pair::cpu;
use crate::pair::process::SecondProcess;
use crate::pair::protocol::{Opened, Request};
use crate::pair::side::Side;
use crate::pair::watchdog::Watchdog;

use recorder::Recorder;
use screen::Screen;

/// Runs the demo.
///
/// # Errors
/// A step did not happen, or a byte was wrong: it has been said on the screen.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    check_arguments(args)?;
    // A file that cannot be written should be known before, not after.
    let capture = args.capture.as_deref().map(recorder::create).transpose()?;
    let watchdog = Watchdog::start("start", timeout(args));
    let mut screen = Screen::new(args.json);
    let result = Demo::start(args, &watchdog, &mut screen).and_then(|mut demo| {
        let result = demo.all(args, &watchdog, &mut screen);
        let kept = capture.map_or(Ok(()), |file| demo.recorder.keep(file));
        result.and(kept)
    });
    let result = result.map_err(|failure| match watchdog.death() {
        Some(death) => Failure::new(format!("{failure}; {death}")),
        None => failure,
    });
    // The second process is ended before the last word: what it may have to say comes first.
    drop(watchdog);
    screen.finish(result.err(), args.capture.as_deref())
}

/// Everything that the steps use.
struct Demo {
    pair: Pair,
    cpus: Option<[usize; 2]>,
    machine: table::Machine,
    a: Side,
    b: SecondProcess,
    b_opened: Opened,
    recorder: Recorder,
    plant_fault: Option<String>,
}

impl Demo {
    fn start(args: &DemoArgs, watchdog: &Watchdog, screen: &mut Screen) -> Result<Self, Failure> {
        let cpus = cpu::two();
        let machine = table::Machine::look(cpus.is_some());
        if let Some([a, _]) = cpus {
            cpu::pin(a);
        }
        let (pair, a) = Side::open_first(args.addresses, AccessFlags::LOCAL_WRITE)?;
        let mut b = SecondProcess::start(&pair, cpus.map(|[_, b]| b), watchdog)?;
        let b_opened: Opened = b.ask(&Request::Open)?;
        let recorder = Recorder::new(pair.port())?;
        let demo =
            Self { pair, cpus, machine, a, b, b_opened, recorder, plant_fault: args.plant_fault.clone() };
        demo.introduce(screen);
        Ok(demo)
    }

    fn introduce(&self, screen: &mut Screen) {
        let Self { pair, cpus, b_opened, .. } = self;
        let cpu =
            |side: usize| cpus.map_or_else(|| "any cpu".to_owned(), |cpus| format!("cpu {}", cpus[side]));
        screen.title("RDMA without RDMA hardware: two processes, real RoCE v2 packets");
        let b_pid = b_opened.pid;
        screen.plain(&format!("host A   {}   process {:<8} {:<8} asks", pair.a, std::process::id(), cpu(0)));
        screen.plain(&format!(
            "host B   {}   process {b_pid:<8} {:<8} owns the memory that is reached",
            pair.b,
            cpu(1)
        ));
        screen.plain(&format!("device   {} in each process, UDP port {}", b_opened.device, pair.port()));
        if let Some(port) = pair.private_port {
            screen.plain(&format!(
                "         (4791 is taken on this machine, see `userdma devices`; so it is {port})"
            ));
        }
    }

    /// All steps, then the measurement.
    fn all(&mut self, args: &DemoArgs, watchdog: &Watchdog, screen: &mut Screen) -> Result<(), Failure> {
        for step in steps::ALL {
            watchdog.step(step.name, timeout(args));
            screen.begin(step.name, step.title, step.about);
            (step.run)(self, screen)
                .map_err(|failure| Failure::new(format!("step \"{}\": {failure}", step.name)))?;
            screen.end()?;
        }
        if args.seconds > 0.0 {
            watchdog.step("measurement", timeout(args));
            screen.begin("measurement", "12 The same machine, measured", &[]);
            self.measure(args, watchdog, screen)
                .map_err(|failure| Failure::new(format!("step \"measurement\": {failure}")))?;
            screen.end()?;
        }
        Ok(())
    }

    fn measure(&mut self, args: &DemoArgs, watchdog: &Watchdog, screen: &mut Screen) -> Result<(), Failure> {
        let mut rig = prepare(&self.a, Setup::default(), self.pair.a, &mut self.b)?;
        let plan = measured::Plan { seconds: args.seconds, timeout: timeout(args), watchdog };
        let samples = measured::all(&mut rig, &mut self.b, &plan, screen)?;
        let table = table::Table::new(&samples, self.machine);
        table.print(screen);
        Ok(())
    }

    /// Whether the step with this name is to find a damaged byte.
    fn plants(&self, name: &str) -> bool {
        self.plant_fault.as_deref() == Some(name)
    }
}

fn check_arguments(args: &DemoArgs) -> Result<(), Failure> {
    let Some(name) = &args.plant_fault else { return Ok(()) };
    let names: Vec<_> = steps::ALL.iter().filter(|step| step.has_check).map(|step| step.name).collect();
    if names.contains(&name.as_str()) {
        return Ok(());
    }
    Err(Failure::new(format!("no step \"{name}\" that checks memory; there are: {}", names.join(", "))))
}

fn timeout(args: &DemoArgs) -> Duration {
    Duration::from_secs_f64(args.step_timeout)
}
