//! `USERDMA_AGENT`: which agents a process has to do with. Its parts stand between commas:
//!
//! * a word of letters and digits sets processes apart, as tests do: those with different words have different agents, and share
//!   no port;
//! * `service=1000` trusts a service of that user beside one of root's;
//! * `service=off` asks no service.

use std::sync::OnceLock;

/// What the variable says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Setting {
    pub(crate) word: String,
    pub(crate) service: Trust,
}

/// Whose service hands out slots, beside that of this process's own user.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Trust {
    /// Root's.
    #[default]
    Root,
    /// Root's, or that of the user with this number.
    User(u32),
    /// Nobody's: the user's own agent is asked, whatever else is there.
    Nobody,
}

/// What it says in this process, as it was when somebody asked first.
pub(crate) fn setting() -> &'static Setting {
    static SETTING: OnceLock<Setting> = OnceLock::new();
    SETTING.get_or_init(|| Setting::parse(&std::env::var(VARIABLE).unwrap_or_default()))
}

impl Setting {
    fn parse(text: &str) -> Self {
        let mut setting = Self::default();
        for part in text.split(',').map(str::trim) {
            match part.strip_prefix("service=") {
                Some("off") => setting.service = Trust::Nobody,
                Some(user) => match user.parse() {
                    Ok(user) => setting.service = Trust::User(user),
                    Err(_) => tracing::error!(
                        "{VARIABLE}={text}: `{part}` names no user: `service=` wants a number or `off`, so that only root's \
                         service is trusted"
                    ),
                },
                None => setting.word.extend(part.chars().filter(char::is_ascii_alphanumeric)),
            }
        }
        setting.word.truncate(MAX_WORD);
        setting
    }

    /// Whether a service of user `uid` is to be trusted by a process of user `ours`.
    pub(crate) fn trusts(&self, uid: u32, ours: u32) -> bool {
        match self.service {
            Trust::Nobody => false,
            Trust::Root => uid == ROOT || uid == ours,
            Trust::User(named) => uid == ROOT || uid == ours || uid == named,
        }
    }
}

const VARIABLE: &str = "USERDMA_AGENT";
const ROOT: u32 = 0;
/// With it the longest name, of a lock on an IPv6 address, fits into the 107 bytes of a socket's name.
const MAX_WORD: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_alone_is_a_word() {
        for (text, word) in [("", ""), ("job7", "job7"), ("a-b c", "abc"), (&"x".repeat(30), &"x".repeat(24))]
        {
            assert_eq!(Setting::parse(text), Setting { word: word.to_owned(), service: Trust::Root });
        }
    }

    #[test]
    fn a_service_is_trusted_if_it_is_roots_our_own_or_named() {
        let trusted = |text: &str| [0, 7, 900, 1000].map(|uid| Setting::parse(text).trusts(uid, 7));
        assert_eq!(trusted("word"), [true, true, false, false]);
        assert_eq!(trusted("word, service=900"), [true, true, true, false]);
        assert_eq!(trusted("service=off,word"), [false; 4]);
        assert_eq!(trusted("service=somebody"), [true, true, false, false]);
        assert_eq!(Setting::parse("service=900,word").word, "word");
    }
}
