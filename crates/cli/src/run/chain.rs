//! Programs behind the program: the interpreter of a script, and what `env` starts.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::program;

/// Why the library does not get into a program that is started with these arguments, if so: into itself, the interpreter that
/// its first line names, or the program that `env` becomes.
pub(super) fn obstacle(path: &Path, arguments: &[OsString]) -> Option<String> {
    let mut step = Step { path: path.to_owned(), arguments: arguments.to_owned() };
    for _ in 0..MOST {
        let next = match step.next() {
            Next::Program(next) => next,
            Next::Nobody => return of_program(path, &step.path),
            Next::Stop(why) => return Some(why),
        };
        // `env` must take us along as well.
        if let Some(why) = of_program(path, &step.path) {
            return Some(why);
        }
        step = next;
    }
    Some("its interpreters are scripts of each other".to_owned())
}

/// A program on the way, with its arguments.
struct Step {
    path: PathBuf,
    arguments: Vec<OsString>,
}

enum Next {
    /// This one runs it, or is run by it.
    Program(Step),
    /// It is the last.
    Nobody,
    /// It goes no further, and why.
    Stop(String),
}

impl Step {
    fn next(&self) -> Next {
        if let Some((interpreter, argument)) = shebang(&self.path) {
            let arguments =
                argument.into_iter().chain([self.path.clone().into()]).chain(self.arguments.clone());
            return Next::Program(Self { path: interpreter, arguments: arguments.collect() });
        }
        if self.path.file_name() == Some(OsStr::new("env")) { env(&self.arguments) } else { Next::Nobody }
    }
}

fn of_program(first: &Path, path: &Path) -> Option<String> {
    let why = program::obstacle(path)?;
    Some(if first == path { why.to_owned() } else { format!("it runs in {}: {why}", path.display()) })
}

/// The interpreter that a script's first line names, and its argument: the rest of the line, in one piece.
fn shebang(path: &Path) -> Option<(PathBuf, Option<OsString>)> {
    let mut start = [0; 256];
    let len = File::open(path).ok()?.read_at(&mut start, 0).ok()?;
    let line = start[..len].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let mut words = line.splitn(2, |byte| b" \t".contains(byte));
    let interpreter = words.next().filter(|word| !word.is_empty())?;
    let argument = words.next().map(<[u8]>::trim_ascii).filter(|argument| !argument.is_empty());
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some((owned(interpreter).into(), argument.map(owned)))
}

/// What `env` becomes with these arguments. `-S` splits one of them, as scripts need.
fn env(arguments: &[OsString]) -> Next {
    let mut words: Vec<OsString> = arguments.to_owned();
    let mut place = 0;
    while let Some(word) = words.get(place).map(|word| word.as_bytes().to_vec()) {
        if let Some(text) = word.strip_prefix(b"-S") {
            let split = text.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
            let split = split.map(|word| OsString::from_vec(word.to_vec())).collect::<Vec<_>>();
            words.splice(place..=place, split);
            continue;
        }
        match word.as_slice() {
            b"-i" | b"-" | b"--ignore-environment" => {
                return Next::Stop("`env -i` takes the variables away that bring our library".to_owned());
            }
            b"-u" | b"-C" | b"--unset" | b"--chdir" => place += 2,
            _ if word.starts_with(b"-") || word.contains(&b'=') => place += 1,
            _ => {
                return match program::find(&words[place]) {
                    Some(path) => Next::Program(Step { path, arguments: words.split_off(place + 1) }),
                    // `env` will say so.
                    None => Next::Nobody,
                };
            }
        }
    }
    Next::Nobody
}

/// Scripts whose interpreters are scripts: the kernel follows fewer.
const MOST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    /// A folder with a static program and scripts.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder =
                Self(std::env::temp_dir().join(format!("userdma-chain-{}-{name}", std::process::id())));
            std::fs::create_dir_all(&folder.0).unwrap();
            let mut header = [0; 64];
            header[..5].copy_from_slice(b"\x7fELF\x02");
            header[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
            folder.write("static", header);
            folder
        }

        fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, content).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_script_runs_in_its_interpreter() {
        let folder = Folder::new("script");
        let at = folder.0.display();
        assert_eq!(obstacle(&folder.write("a", "#!/bin/sh\n"), &[]), None);
        assert_eq!(obstacle(&folder.write("b", "no first line"), &[]), None);
        let c = folder.write("c", format!("#! {at}/static -x\n"));
        let why = obstacle(&c, &[]).unwrap();
        assert!(why.starts_with(&format!("it runs in {at}/static: it is linked statically")), "{why}");
        let d = folder.write("d", format!("#!{at}/c\n"));
        assert_eq!(obstacle(&d, &[]), Some(why));
        let circle = folder.write("e", format!("#!{at}/e\n"));
        assert!(obstacle(&circle, &[]).unwrap().contains("scripts of each other"));
    }

    #[test]
    fn what_env_starts_is_looked_at_too() {
        let folder = Folder::new("env");
        let stat = folder.0.join("static").display().to_string();
        let env = program::find(OsStr::new("env")).unwrap();
        for arguments in [&["A=1", &stat][..], &["-u", "B", "A=1", &stat], &["env", "-C", "/", &stat]] {
            let why = obstacle(&env, &words(arguments)).unwrap();
            assert!(why.contains("statically"), "{arguments:?}: {why}");
        }
        assert_eq!(obstacle(&env, &words(&["A=1", "sh"])), None);
        assert_eq!(obstacle(&env, &words(&["A=1", "no-such-program-here"])), None);
        assert_eq!(obstacle(&env, &[]), None);
        assert!(obstacle(&env, &words(&["-i", "sh"])).unwrap().contains("env -i"));
        let script = folder.write("s", format!("#!{} -S A=1 {stat} -x\n", env.display()));
        assert!(obstacle(&script, &[]).unwrap().contains("statically"));
        let script = folder.write("t", format!("#!{} sh\n", env.display()));
        assert_eq!(obstacle(&script, &[]), None);
    }
}
