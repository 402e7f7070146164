//! What the floors below tell by `tracing` becomes lines of the library's own log: a kernel that has stopped segmenting, no agent,
//! a packet that is too long for its path.
//!
//! Some of it is told inside the gate, where nothing may wait for a pipe that nobody reads: a line that has no room is lost.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::log::{self, Level};

/// From now on they do. Called before the first device is opened.
pub(crate) fn install() {
    // A second time changes nothing.
    let _ = tracing::subscriber::set_global_default(Lines);
}

/// Passes events on as lines; spans are nothing to it.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        log::is_on(level(metadata))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        log::tell_if_room(level(event.metadata()), format_args!("{line}"));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn level(metadata: &Metadata<'_>) -> Level {
    match *metadata.level() {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        tracing::Level::DEBUG | tracing::Level::TRACE => Level::Debug,
    }
}

/// An event as people read it: the message, and its values in parentheses.
#[derive(Debug, Default)]
struct Line {
    message: String,
    values: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Strings have room for everything.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let comma = if self.values.is_empty() { "" } else { ", " };
            write!(self.values, "{comma}{} {value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values.as_str() {
            "" => f.write_str(&self.message),
            values => write!(f, "{} ({values})", self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps what [`Lines`] would tell.
    struct Kept(Arc<Mutex<Vec<(Level, String)>>>);

    impl Subscriber for Kept {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            Lines.new_span(span)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().unwrap().push((level(event.metadata()), line.to_string()));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn an_event_is_a_line_with_its_values_behind_it() {
        let told = Arc::default();
        tracing::subscriber::with_default(Kept(Arc::clone(&told)), || {
            let remote = std::net::Ipv4Addr::LOCALHOST;
            tracing::warn!(link = 3, why = "no room", %remote, "packets travel {}", "alone");
            tracing::error!("the device stops");
        });
        let told = told.lock().unwrap();
        assert_eq!(
            told[0],
            (Level::Warn, "packets travel alone (link 3, why no room, remote 127.0.0.1)".to_owned())
        );
        assert_eq!(told[1], (Level::Error, "the device stops".to_owned()));
    }
}
