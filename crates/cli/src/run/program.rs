//! The program that is to run: where it is, and whether the loader will preload a library into it.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file that a name stands for, as a shell finds it.
pub(super) fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
}

/// Why a library cannot be preloaded into a program, if so. What is no program of the loader's has no obstacle of its own: the
/// kernel does not give scripts privileges either.
pub(super) fn obstacle(path: &Path) -> Option<&'static str> {
    let file = File::open(path).ok();
    let elf = file.as_ref().and_then(Elf::read);
    let is_script = file.is_some() && elf.is_none();
    if !is_script && gains_privileges(path) {
        return Some(
            "it gains privileges when it starts (setuid, setgid or capabilities), so the loader ignores us",
        );
    }
    let elf = elf?;
    if !elf.is_ours {
        return Some("it is built for another kind of processor than our library");
    }
    match elf.interpreter.as_deref() {
        None => Some("it is linked statically, so no library can be put in place of its own"),
        Some(loader) if loader.contains("musl") => {
            Some("it uses musl's loader, and our library is built for glibc's")
        }
        Some(_) => None,
    }
}

fn gains_privileges(path: &Path) -> bool {
    let Ok(file) = path.metadata() else { return false };
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let set_uid = file.mode() & 0o4000 != 0 && file.uid() != uid.as_raw();
    let set_gid = file.mode() & 0o2010 == 0o2010 && file.gid() != gid.as_raw();
    let mut capabilities = [0u8; 64];
    let has_capabilities =
        !uid.is_root() && rustix::fs::getxattr(path, "security.capability", &mut capabilities).is_ok();
    set_uid || set_gid || has_capabilities
}

/// What the header of a program says.
#[derive(Debug, Eq, PartialEq)]
struct Elf {
    /// Whether it is for the processor that this program is for.
    is_ours: bool,
    /// The loader that it asks for.
    interpreter: Option<String>,
}

impl Elf {
    /// `None` if the file is no such program.
    fn read(file: &File) -> Option<Self> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        if !header.starts_with(b"\x7fELF") {
            return None;
        }
        let machine = number(&header, 18, 2);
        let is_ours = header[4] == ELF_CLASS_64 && machine == MACHINE;
        let interpreter = if is_ours { interpreter(file, &header) } else { None };
        Some(Self { is_ours, interpreter })
    }
}

/// The text of the program header `PT_INTERP`.
fn interpreter(file: &File, header: &[u8; 64]) -> Option<String> {
    let (table, size, count) = (number(header, 32, 8), number(header, 54, 2), number(header, 56, 2));
    for place in 0..count {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.checked_add(place * size)?).ok()?;
        if number(&entry, 0, 4) == PT_INTERP {
            let mut text = vec![0; usize::try_from(number(&entry, 32, 8).min(4096)).ok()?];
            file.read_exact_at(&mut text, number(&entry, 8, 8)).ok()?;
            return Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned());
        }
    }
    None
}

/// A number of `len` bytes, at most 8, in the processor's order.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut number = [0; 8];
    number[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(number)
}

const ELF_CLASS_64: u8 = 2;
const PT_INTERP: u64 = 3;
#[cfg(target_arch = "x86_64")]
const MACHINE: u64 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u64 = 183;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(name: &str, content: &[u8]) -> PathBuf {
        let path = env::temp_dir().join(format!("userdma-run-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn programs_of_the_loader_and_scripts_have_no_obstacle() {
        assert_eq!(obstacle(&env::current_exe().unwrap()), None);
        let script = file("script", b"#!/bin/sh\nexit 7\n");
        assert_eq!(obstacle(&script), None);
        std::fs::remove_file(script).unwrap();
    }

    #[test]
    fn a_static_program_is_told_so() {
        let mut header = [0; 64];
        header[..5].copy_from_slice(b"\x7fELF\x02");
        header[18..20].copy_from_slice(&MACHINE.to_le_bytes()[..2]);
        let path = file("static", &header);
        assert!(obstacle(&path).unwrap().contains("statically"));
        header[18] ^= 1;
        std::fs::write(&path, header).unwrap();
        assert!(obstacle(&path).unwrap().contains("processor"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(OsStr::new("no-such-program-here")), None);
        assert_eq!(find(OsStr::new("/no/such/program")), None);
        let path = file("mode", b"x");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!is_executable(&path));
        std::fs::remove_file(path).unwrap();
    }
}
