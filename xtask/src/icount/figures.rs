//! Figures and the file that holds the accepted ones.

use std::fmt;
use std::str::FromStr;

/// Instructions that one phase of one message takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// Message and phase.
    pub(super) name: String,
    pub(super) count: f64,
}

/// What a compiler's code takes on a kind of processor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    /// Compiler and processor.
    pub(super) machine: String,
    pub(super) figures: Vec<Figure>,
}

impl Figures {
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.count)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Instructions a message, by phase; written by `cargo xtask icount --accept`.")?;
        writeln!(f, "{}", self.machine)?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "{:24} {:.1}", figure.name, figure.count))
    }
}

impl FromStr for Figures {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let machine = lines.next().ok_or("figures.txt names no compiler")?.to_owned();
        Ok(Self { machine, figures: lines.map(parse).collect::<Result<_, _>>()? })
    }
}

fn parse(line: &str) -> Result<Figure, String> {
    let wrong = || format!("figures.txt: not a name and a count: {line:?}");
    let (name, count) = line.rsplit_once(' ').ok_or_else(wrong)?;
    let count: f64 = count.parse().map_err(|_| wrong())?;
    if !(count.is_finite() && count > 0.0) {
        return Err(wrong());
    }
    Ok(Figure { name: name.trim().to_owned(), count })
}

/// The count in what valgrind says.
pub(super) fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let figures = Figures {
            machine: "rustc 1.2.3 (abc 2026-01-01)".into(),
            figures: vec![
                Figure { name: "write-8 post".into(), count: 252.0 },
                Figure { name: "read-64k complete".into(), count: 12345.5 },
            ],
        };
        assert_eq!(figures.to_string().parse(), Ok(figures.clone()));
        assert_eq!(figures.get("write-8 post"), Some(252.0));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for line in ["write-8", "write-8 post x", "write-8 post -1", "write-8 post NaN"] {
            let error = format!("rustc\n{line}\n").parse::<Figures>().unwrap_err();
            assert!(error.contains(line), "{error}");
        }
        assert!("# nothing\n".parse::<Figures>().is_err());
    }

    #[test]
    fn the_count_is_found() {
        let said = "==1== \n==1== Events    : Ir\n==1== Collected : 25200\n==1== I   refs:      25,200\n";
        assert_eq!(collected(said), Some(25200));
        assert_eq!(collected("==1== Events"), None);
    }
}
