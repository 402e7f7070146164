//! Does one thing with two devices again and again, so that `cargo xtask icount` can count the instructions of one phase of it.
//!
//!     userdma-icount MESSAGE PHASE ROUNDS
//!     userdma-icount --list
//!
//! Nothing here reads a clock or does IO: the same program on the same compiler takes the same instructions, on a loaded
//! machine too. Only the chosen phase runs inside `measured`, which callgrind is told to watch.
#![forbid(unsafe_code)]

mod conversation;

use std::process::ExitCode;

use conversation::{Conversation, Message, Phase};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => list(),
        [message, phase, rounds] => match (Message::named(message), Phase::named(phase), rounds.parse()) {
            (Some(message), Some(phase), Ok(rounds)) => run(message, phase, rounds),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn list() -> ExitCode {
    for message in Message::ALL {
        for phase in Phase::ALL {
            println!("{} {}", message.name(), phase.name());
        }
    }
    ExitCode::SUCCESS
}

fn run(message: Message, phase: Phase, rounds: u32) -> ExitCode {
    let mut conversation = Conversation::new(message);
    // Queues grow to their usual size, and rings go round once.
    for _ in 0..WARM_UP {
        conversation.round(None);
    }
    for _ in 0..rounds {
        conversation.round(Some(phase));
    }
    println!("{} completions", conversation.completions());
    if conversation.completions() == u64::from(WARM_UP + rounds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: userdma-icount MESSAGE PHASE ROUNDS, or --list");
    ExitCode::from(2)
}

/// Rounds before the first that counts: more than a queue has places.
const WARM_UP: u32 = 200;
