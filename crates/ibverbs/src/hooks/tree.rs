//! The copy: a directory of this process's own, of real files, that stands for the directories that we serve.
//!
//! ```text
//!   /dev/shm/userdma-sys.Xa81Qk/     or in $XDG_RUNTIME_DIR, $TMPDIR, /tmp: the first in which it can be made
//!     dev/infiniband/uverbs0 -> /dev/null
//!     sys/class/infiniband/roce_eth0 -> ../../devices/platform/userdma_infiniband/roce_eth0/infiniband/roce_eth0
//!     …
//! ```
//!
//! It is made when somebody asks for the first time, and removed when the process exits. One that is killed leaves it; whoever
//! makes one next removes it then: a process locks its own (`flock`), so one that is not locked is nobody's. It can be read by
//! everybody, since a process may change its user later. A child of `fork` makes one of its own.

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use userdma_link::guard::GuardedFd;

use super::real;
use super::render::{self, Entry, Node};
use crate::devices;

/// The copy of one process. It is never freed: others may look at its path.
struct Tree {
    root: Vec<u8>,
    process: i32,
    /// Devices that are in it, as `devices` counts them.
    rendered: AtomicUsize,
    /// The directory, locked.
    lock: GuardedFd,
}

static TREE: AtomicPtr<Tree> = AtomicPtr::new(std::ptr::null_mut());
/// This process as far as it has run its handlers of `fork`: a child of `vfork` has another number.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The process that makes no copy: it could not, and has said why, or it ends.
static FAILED: AtomicI32 = AtomicI32::new(0);
/// Who makes or changes the copy, as process and thread; 0 nobody.
static MAKER: AtomicU64 = AtomicU64::new(0);

/// Notes the process, also in children.
pub(super) fn initialise() {
    note_process();
    // SAFETY: the handler stores to an atomic. If there is no memory for it, a child uses its parent's copy.
    unsafe { libc::pthread_atfork(None, None, Some(note_process)) };
}

extern "C" fn note_process() {
    PROCESS.store(process(), Ordering::Relaxed);
}

/// Where the copy lies; `None` if there is none and none can be made, or while this very thread makes it.
pub(super) fn root() -> Option<&'static [u8]> {
    if PROCESS.load(Ordering::Relaxed) == 0 {
        // The constructor of a library that is initialised before ours.
        note_process();
    }
    if process() != PROCESS.load(Ordering::Relaxed) {
        // Between `vfork` and `exec` the memory is the parent's, who waits: what is there can be used.
        return current().map(|tree| &*tree.root);
    }
    let tree = current().filter(|tree| tree.process == process());
    if let Some(tree) = tree.filter(|tree| tree.rendered.load(Ordering::Acquire) == devices::count()) {
        return Some(&tree.root);
    }
    if FAILED.load(Ordering::Relaxed) == process() {
        return None;
    }
    let _making = Making::begin()?;
    // An error of ours is the program's only in that it finds no devices.
    catch_unwind(make_or_complete).ok().flatten().map(|tree| &*tree.root)
}

/// Runs `f` with the hooks seeing what the kernel has.
pub(super) fn past_hooks<R>(f: impl FnOnce() -> R) -> R {
    // If this thread makes the copy already, it sees that as it is.
    let _making = Making::begin();
    f()
}

/// Brings the count at `path`, a place in the copy, up to date.
pub(super) fn refresh(path: &[u8]) {
    let path = Path::new(OsStr::from_bytes(path));
    let names = (path.file_name().and_then(OsStr::to_str), device_of(path));
    if let (Some(name), Some(device)) = names
        && let Some(text) = devices::stats(device).and_then(|stats| render::counter(&stats, name))
    {
        let Some(_making) = Making::begin() else { return };
        let new = path.with_extension("new");
        // If it cannot be written, the old count stays.
        let _ = write_file(&new, &text).and_then(|()| fs::rename(&new, path));
    }
}

/// The device whose directory a path leads through.
fn device_of(path: &Path) -> Option<&str> {
    let mut parts = path.components().rev().filter_map(|part| part.as_os_str().to_str());
    parts.find(|part| *part == "ports")?;
    parts.next()
}

/// Removes this process's copy. It makes no other: nobody would remove that.
pub(super) fn remove() {
    FAILED.store(process(), Ordering::Relaxed);
    if let Some(tree) = current().filter(|tree| tree.process == process()) {
        TREE.store(std::ptr::null_mut(), Ordering::Release);
        let _ = fs::remove_dir_all(OsStr::from_bytes(&tree.root));
    }
}

/// How much of a path lies before what programs know of it, whosever copy it is in.
pub(super) fn foreign_len(path: &[u8]) -> usize {
    let served: [&[u8]; 2] = [b"/sys/", b"/dev/"];
    let Some(at) = path.windows(PREFIX.len()).position(|part| part == PREFIX.as_bytes()) else { return 0 };
    let len = at + PREFIX.len() + RANDOM.len();
    let is_ours = path.get(len..).is_some_and(|rest| {
        served.iter().any(|served| rest.starts_with(served) || rest == &served[..served.len() - 1])
    });
    if is_ours { len } else { 0 }
}

fn current() -> Option<&'static Tree> {
    // SAFETY: null, or a tree that is never freed.
    unsafe { TREE.load(Ordering::Acquire).as_ref() }
}

fn make_or_complete() -> Option<&'static Tree> {
    let old = current();
    let tree = match old.filter(|tree| tree.process == process()) {
        Some(tree) => tree,
        None => {
            let made = make().inspect_err(complain).ok()?;
            let made = Box::leak(Box::new(made));
            TREE.store(made, Ordering::Release);
            if let Some(parents) = old {
                // The parent's is not locked for longer than the parent lives.
                // SAFETY: closes a number that nobody uses in this process.
                unsafe { libc::syscall(libc::SYS_close, parents.lock.as_raw_fd()) };
            }
            made
        }
    };
    let known = devices::count();
    let views = devices::views();
    let from = tree.rendered.load(Ordering::Relaxed);
    let entries = views.iter().take(known).skip(from).flat_map(render::device);
    write_all(&tree.root, entries).inspect_err(complain).ok()?;
    tree.rendered.store(known, Ordering::Release);
    Some(tree)
}

/// A directory with what does not depend on devices of ours.
fn make() -> io::Result<Tree> {
    // So that all are known.
    let _ = devices::list();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for base in bases() {
        sweep(&base);
        match make_in(&base) {
            Ok((root, lock)) => {
                let root = root.into_os_string().into_vec();
                write_all(&root, render::classes().into_iter().chain(real::entries()))?;
                let lock = OwnedFd::from(lock).into();
                return Ok(Tree { root, process: process(), rendered: AtomicUsize::new(0), lock });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Where a copy may lie, best first. Patterns must be able to spell it.
fn bases() -> impl Iterator<Item = PathBuf> {
    let of = |variable| std::env::var_os(variable).map(PathBuf::from);
    let fixed = ["/dev/shm", "/tmp"].map(|path| Some(PathBuf::from(path)));
    let [shm, tmp] = fixed;
    let all = [of("XDG_RUNTIME_DIR"), shm, of("TMPDIR"), tmp].into_iter().flatten();
    all.filter_map(|base| base.canonicalize().ok())
        .filter(|base| !base.as_os_str().as_bytes().iter().any(|byte| b"*?[]{}~\\".contains(byte)))
}

/// Makes and locks a directory.
fn make_in(base: &Path) -> io::Result<(PathBuf, File)> {
    for _ in 0..TRIES {
        let name = [base.as_os_str().as_bytes(), PREFIX.as_bytes(), RANDOM.as_bytes()].concat();
        let mut name = CString::new(name)?.into_bytes_with_nul();
        // SAFETY: a string that ends in six of the letter, as it must.
        if unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) }.is_null() {
            return Err(io::Error::last_os_error());
        }
        name.pop();
        let path = PathBuf::from(OsStr::from_bytes(&name));
        // Another process may have found it before it was locked, and removed it.
        if let Some(lock) = lock(&path)
            && fs::metadata(&path).is_ok_and(|now| lock.metadata().is_ok_and(|then| now.ino() == then.ino()))
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            return Ok((path, lock));
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Removes what processes have left that are gone.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let is_copy = entry.file_name().as_bytes().strip_prefix(&PREFIX.as_bytes()[1..]).is_some();
        // SAFETY: takes nothing.
        let own =
            || entry.metadata().is_ok_and(|what| what.is_dir() && what.uid() == unsafe { libc::geteuid() });
        if is_copy
            && own()
            && let Some(_lock) = lock(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The directory, locked, unless somebody else has locked it.
fn lock(path: &Path) -> Option<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let dir = File::options().read(true).custom_flags(flags).open(path).ok()?;
    dir.try_lock().ok().map(|()| dir)
}

fn write_all(root: &[u8], entries: impl Iterator<Item = Entry>) -> io::Result<()> {
    let root = Path::new(OsStr::from_bytes(root));
    for Entry { path, node } in entries {
        let path = root.join(path.trim_start_matches('/'));
        match node {
            Node::Dir => DirBuilder::new().recursive(true).mode(0o755).create(path)?,
            Node::Link(to) => symlink(to, path)?,
            Node::Text(text) => write_file(&path, &text)?,
        }
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o444).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Says once why programs will find no device.
fn complain(error: &io::Error) {
    FAILED.store(process(), Ordering::Relaxed);
    eprintln!(
        "userdma: there is no place for a copy of /sys/class/infiniband: {error}; set XDG_RUNTIME_DIR or TMPDIR"
    );
}

/// The right to make or change the copy.
struct Making;

impl Making {
    /// Waits until nobody else makes it; `None` if it is this thread, which has come here again through a hook.
    fn begin() -> Option<Self> {
        // SAFETY: takes nothing.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        // Both are positive and fit 32 bits.
        let me = u64::from(process().cast_unsigned()) << 32 | thread.cast_unsigned() & 0xffff_ffff;
        loop {
            match MAKER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Self),
                Err(other) if other == me => return None,
                // A thread of the parent's, which this child of `fork` does not have.
                Err(other) if other >> 32 != me >> 32 => {
                    let _ = MAKER.compare_exchange(other, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
                Err(_) => std::thread::sleep(std::time::Duration::from_micros(200)),
            }
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKER.store(0, Ordering::Release);
    }
}

fn process() -> i32 {
    // SAFETY: takes nothing. Not the C library's: it may be another's hook.
    i32::try_from(unsafe { libc::syscall(libc::SYS_getpid) }).unwrap_or(0)
}

/// What names of copies begin with, and the six letters that follow.
const PREFIX: &str = "/userdma-sys.";
const RANDOM: &str = "XXXXXX";
/// Directories that others may take for nobody's before we have locked one.
const TRIES: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_copy_is_taken_off() {
        let rest = |path: &str| path[foreign_len(path.as_bytes())..].to_owned();
        assert_eq!(rest("/run/user/0/userdma-sys.a1B2c3/sys/class/infiniband"), "/sys/class/infiniband");
        assert_eq!(rest("/tmp/userdma-sys.a1B2c3/dev"), "/dev");
        for other in ["/sys/class/infiniband", "/tmp/userdma-sys.a1B2c3/home", "/tmp/userdma-sys.a1", "/"] {
            assert_eq!(rest(other), other);
        }
    }

    #[test]
    fn what_a_process_left_is_removed_and_what_is_locked_is_not() {
        let base = std::env::temp_dir().canonicalize().unwrap().join(format!("sweep-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let (alive, lock) = make_in(&base).unwrap();
        let (dead, gone) = make_in(&base).unwrap();
        fs::create_dir_all(dead.join("sys/class/infiniband")).unwrap();
        fs::create_dir(base.join("others")).unwrap();
        drop(gone);
        sweep(&base);
        assert!(alive.exists() && base.join("others").exists() && !dead.exists());
        drop(lock);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn the_device_of_a_count_is_in_its_path() {
        let path = Path::new("/r/sys/class/infiniband/roce_lo/ports/1/hw_counters/sent_pkts");
        assert_eq!(device_of(path), Some("roce_lo"));
        assert_eq!(device_of(Path::new("/r/sys/class/infiniband/roce_lo")), None);
    }
}
