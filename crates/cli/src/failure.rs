//! Why the program ends with a status other than 0.

use std::io;

/// A sentence for people. It becomes `userdma: …` on standard error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    message: String,
    is_silent: bool,
}

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_silent: false }
    }

    /// One that has been told already, or that nobody is left to be told of.
    pub fn silent() -> Self {
        Self { message: String::new(), is_silent: true }
    }

    /// Whether nothing is to be said.
    pub const fn is_silent(&self) -> bool {
        self.is_silent
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Writing to standard output failed. If its reader has gone (`| head`), that is no news.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::silent() } else { Self::new(error.to_string()) }
    }
}

impl From<userdma::Error> for Failure {
    fn from(error: userdma::Error) -> Self {
        Self::new(error.to_string())
    }
}
