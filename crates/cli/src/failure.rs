//! Why the program ends with a status other than 0.

use std::io;

/// A sentence for people. It becomes `userdma: …` on standard error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    message: String,
    kind: Option<io::ErrorKind>,
    is_silent: bool,
}

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: None, is_silent: false }
    }

    /// One that has been told already.
    pub fn silent() -> Self {
        Self { message: String::new(), kind: None, is_silent: true }
    }

    /// Whether nothing is to be said.
    pub const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Whether somebody who was to read (as in `| head`) has gone.
    pub fn is_broken_pipe(&self) -> bool {
        self.kind == Some(io::ErrorKind::BrokenPipe)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { message: error.to_string(), kind: Some(error.kind()), is_silent: false }
    }
}

impl From<userdma::Error> for Failure {
    fn from(error: userdma::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// The error with the words that it is one of writing to standard output. An interruption stays as it is: it is no failure.
pub(crate) fn output(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    io::Error::new(error.kind(), format!("standard output: {error}"))
}
