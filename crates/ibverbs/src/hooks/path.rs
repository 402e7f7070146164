//! Which paths lead to what we serve, and where it lies instead.
//!
//! All of it is pure: a path is looked at, joined with the directory that it is relative to, and copied with another
//! beginning, into memory of the caller's. Nothing here allocates, locks or asks the kernel.

use std::ffi::{CStr, c_char};

/// What every path contains that leads to something we serve. A path without it is left alone after one look.
const NEEDLE: &[u8] = b"infiniband";

/// The directories that we serve. Nobody else's path is changed.
const SERVED: [&[u8]; 5] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_verbs",
    b"/sys/class/infiniband_mad",
    DEVICES.as_bytes(),
    NODES.as_bytes(),
];

/// Where the devices themselves are; the classes hold links to them.
pub(super) const DEVICES: &str = "/sys/devices/platform/userdma_infiniband";
/// Where the device nodes are.
pub(super) const NODES: &str = "/dev/infiniband";

/// Whether a path may lead to what we serve. It allocates and changes nothing, and takes a nanosecond for each character.
///
/// # Safety
/// `path` is null or a string. (An address in the first page, as programs use to see `EFAULT`, is not looked at.)
#[inline]
pub(super) unsafe fn concerns(path: *const c_char) -> bool {
    if path.addr() < 4096 {
        return false;
    }
    let mut at = path.cast::<u8>();
    // SAFETY: `at` does not pass the end of the string, as every byte before it was looked at and is not the end.
    unsafe {
        while *at != 0 {
            if *at == NEEDLE[0] && starts_with(at) {
                return true;
            }
            at = at.add(1);
        }
    }
    false
}

/// Whether the needle is here. It has no zero, so a string that ends early differs there.
///
/// # Safety
/// `at` is a string.
unsafe fn starts_with(at: *const u8) -> bool {
    // SAFETY: the byte at `i` is looked at only if the `i` bytes before it are those of the needle, not the end.
    NEEDLE.iter().enumerate().all(|(i, &byte)| unsafe { *at.add(i) } == byte)
}

/// A path in memory of its own, with room for what the kernel takes.
pub(super) struct PathBuffer {
    bytes: [u8; MAX],
    len: usize,
}

impl PathBuffer {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; MAX], len: 0 }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The path for C. There is always a zero behind it, and none in it unless one was pushed.
    pub(super) fn as_c(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }

    /// Adds bytes; whether there was room.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.len + bytes.len();
        if end >= MAX {
            return false;
        }
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.bytes[end] = 0;
        self.len = end;
        true
    }

    /// Takes the last component away; of the root nothing.
    fn pop(&mut self) {
        self.len = self.as_bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.bytes[self.len] = 0;
    }

    /// Fills the buffer with what `fill` writes, which returns how much.
    pub(super) fn fill(&mut self, fill: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let filled = fill(&mut self.bytes[..MAX - 1]).filter(|&len| len < MAX);
        self.len = filled.unwrap_or(0);
        self.bytes[self.len] = 0;
        filled.is_some()
    }
}

/// What a path comes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// Nothing of ours, or too long.
    Elsewhere,
    /// It was in a directory of ours and left it again: what is written out is to be used, and not ours.
    Left,
    /// Something we serve: what is written out is its place under our root.
    Served(Kind),
}

/// What stands there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A file, directory or link as it lies there.
    Plain,
    /// A character device, for which a link stands.
    Node,
    /// The character device of the connection manager, which opens as no file does.
    ConnectionManager,
    /// A count, to be brought up to date before it is read.
    Counter,
}

/// Writes to `out` the path that `path`, relative to the directory `base`, has under `root`.
///
/// Up to a directory of ours dots are resolved by their letters. Below it they are left to the kernel, which follows our
/// links as it follows sysfs's.
pub(super) fn place(root: &[u8], base: &[u8], path: &[u8], out: &mut PathBuffer) -> Outcome {
    let relative_to: &[u8] = if path.first() == Some(&b'/') { b"" } else { base };
    let mut plain = PathBuffer::new();
    let mut seen = false;
    let parts = relative_to.split(|&byte| byte == b'/').chain(path.split(|&byte| byte == b'/'));
    for part in parts.filter(|part| !part.is_empty()) {
        let depth = depth(plain.as_bytes());
        seen |= depth.is_some();
        let fits = match part {
            b"." => true,
            b".." if depth.is_none_or(|depth| depth == 0) => {
                plain.pop();
                true
            }
            _ => plain.push(b"/") && plain.push(part),
        };
        if !fits {
            return Outcome::Elsewhere;
        }
    }
    let is_served = depth(plain.as_bytes()).is_some();
    if !is_served && !seen {
        return Outcome::Elsewhere;
    }
    let slash: &[u8] = if path.last() == Some(&b'/') || plain.len == 0 { b"/" } else { b"" };
    let root = if is_served { root } else { b"" };
    match out.push(root) && out.push(plain.as_bytes()) && out.push(slash) {
        false => Outcome::Elsewhere,
        true if is_served => Outcome::Served(kind(plain.as_bytes())),
        true => Outcome::Left,
    }
}

/// How many components below a directory of ours a path is.
fn depth(path: &[u8]) -> Option<usize> {
    SERVED.iter().find_map(|served| {
        let below = path.strip_prefix(*served)?;
        let is_within = below.is_empty() || below[0] == b'/';
        is_within.then(|| below.iter().filter(|&&byte| byte == b'/').count())
    })
}

impl Kind {
    /// Whether it is a character device.
    pub(super) fn is_node(self) -> bool {
        matches!(self, Self::Node | Self::ConnectionManager)
    }
}

fn kind(path: &[u8]) -> Kind {
    match path.strip_prefix(NODES.as_bytes()) {
        Some(b"/rdma_cm") => return Kind::ConnectionManager,
        Some(rest) if rest.starts_with(b"/uverbs") => return Kind::Node,
        _ => {}
    }
    let mut parts = path.rsplit(|&byte| byte == b'/').skip(1);
    match parts.next() {
        Some(b"counters" | b"hw_counters") => Kind::Counter,
        _ => Kind::Plain,
    }
}

/// Whether a pattern may name directories of ours that it does not spell out, as `/sys/class/infiniband*`.
pub(super) fn is_pattern_of_ours(pattern: &[u8]) -> bool {
    let rest =
        pattern.strip_prefix(b"/sys/class/infiniband").or_else(|| pattern.strip_prefix(b"/dev/infiniband"));
    rest.is_some_and(|rest| rest.iter().take_while(|&&byte| byte != b'/').any(|byte| b"*?[{".contains(byte)))
}

/// The bytes of a string.
///
/// # Safety
/// `path` is a string that outlives the result and does not change.
pub(super) unsafe fn bytes<'a>(path: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// `PATH_MAX`.
const MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(base: &str, path: &str) -> (Outcome, String) {
        let mut out = PathBuffer::new();
        let outcome = place(b"/r", base.as_bytes(), path.as_bytes(), &mut out);
        (outcome, String::from_utf8(out.as_bytes().to_vec()).unwrap())
    }

    fn served(base: &str, path: &str) -> String {
        match of(base, path) {
            (Outcome::Served(Kind::Plain), place) => place,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn only_paths_with_the_word_are_looked_at() {
        // SAFETY: strings, null, and an address that is not looked at.
        let concerns = |path: &CStr| unsafe { concerns(path.as_ptr()) };
        assert!(concerns(c"/sys/class/infiniband") && concerns(c"infiniband/x") && concerns(c"/iinfiniband"));
        assert!(!concerns(c"") && !concerns(c"/etc/passwd") && !concerns(c"/sys/class/infiniban"));
        // SAFETY: as above.
        assert!(unsafe {
            !super::concerns(std::ptr::null()) && !super::concerns(std::ptr::without_provenance(1))
        });
    }

    #[test]
    fn however_a_path_is_spelled_it_leads_to_the_same_place() {
        let place = "/r/sys/class/infiniband/x";
        for path in
            ["/sys/class/infiniband/x", "//sys/./class//infiniband/x", "/sys/class/net/../infiniband/x"]
        {
            assert_eq!(served("/home", path), place, "{path}");
        }
        assert_eq!(served("/", "sys/class/infiniband/x"), place);
        assert_eq!(served("/sys/class/net", "../infiniband/x"), place);
        assert_eq!(served("/home", "/sys/class/infiniband/x/"), format!("{place}/"));
    }

    #[test]
    fn below_our_directories_the_kernel_goes_up() {
        assert_eq!(served("/", "/sys/class/infiniband/x/../.."), "/r/sys/class/infiniband/x/../..");
        assert_eq!(of("/", "/sys/class/infiniband/.."), (Outcome::Left, "/sys/class".to_owned()));
        assert_eq!(of("/", "/dev/infiniband/../../"), (Outcome::Left, "/".to_owned()));
    }

    #[test]
    fn names_that_only_begin_like_ours_are_not_ours() {
        for path in
            ["/sys/class/infiniband_srp", "/tmp/infiniband", "/sys/class", "/dev/infiniband0", "infiniband"]
        {
            assert_eq!(of("/tmp", path).0, Outcome::Elsewhere, "{path}");
        }
        let long = format!("/sys/class/infiniband/{}", "x".repeat(MAX));
        assert_eq!(of("/", &long).0, Outcome::Elsewhere);
    }

    #[test]
    fn nodes_and_counts_are_told() {
        assert_eq!(of("/", "/dev/infiniband/uverbs0").0, Outcome::Served(Kind::Node));
        assert_eq!(of("/", "/dev/infiniband").0, Outcome::Served(Kind::Plain));
        assert_eq!(of("/dev", "infiniband//rdma_cm").0, Outcome::Served(Kind::ConnectionManager));
        let count = "/sys/class/infiniband/x/ports/1/hw_counters/sent_pkts";
        assert_eq!(of("/", count).0, Outcome::Served(Kind::Counter));
    }

    #[test]
    fn patterns_may_leave_the_directory_open() {
        assert!(is_pattern_of_ours(b"/sys/class/infiniband*/*") && is_pattern_of_ours(b"/dev/infiniband?"));
        assert!(!is_pattern_of_ours(b"/sys/class/infiniband/*") && !is_pattern_of_ours(b"/sys/class/net/*"));
    }
}
