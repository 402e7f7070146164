//! `cargo xtask dist`: one archive with the program, the library and what must go with them. It works wherever it is unpacked.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::glibc::{self, Glibc};

/// The oldest glibc that an archive must run on: that of Debian 12, Ubuntu 22.04 and RHEL 9 is newer or the same. A build that
/// needs a newer one is refused.
const OLDEST: Glibc = Glibc(2, 34);

/// Builds and packs; prints where the archive is and what it needs.
///
/// # Errors
/// Something could not be built, read or written.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<Vec<String>, String> {
    if !arguments.is_empty() {
        return Err("dist takes no arguments".into());
    }
    let release = build(root)?;
    let files = [release.join("userdma"), release.join("libibverbs.so")];
    let needed = files.iter().map(|file| needed(file)).collect::<Result<Vec<_>, _>>()?;
    let needed = needed.into_iter().max().unwrap_or(OLDEST);
    if needed > OLDEST {
        return Ok(vec![format!(
            "this build needs glibc {needed}, and an archive must run on {OLDEST}: build on an older system"
        )]);
    }
    let name = format!("userdma-{}-{}-linux-gnu", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let folder = release.join("dist");
    let tree = folder.join(&name);
    lay_out(root, &files, &tree, needed)?;
    let archive = folder.join(format!("{name}.tar.gz"));
    pack(&folder, &name, &archive)?;
    println!("dist: {} runs on glibc {needed} and newer", archive.display());
    Ok(Vec::new())
}

/// Builds program and library; their folder.
fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args([
        "build",
        "--quiet",
        "--release",
        "-p",
        "userdma-cli",
        "-p",
        "userdma-ibverbs",
    ]);
    succeed(&mut command)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release"))
}

fn needed(file: &Path) -> Result<Glibc, String> {
    let bytes = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    glibc::needed(&bytes).map_err(|e| format!("{}: {e}", file.display()))
}

/// What the archive holds, as it will be unpacked.
fn lay_out(root: &Path, [program, library]: &[PathBuf; 2], tree: &Path, needed: Glibc) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", tree.display());
    if tree.exists() {
        fs::remove_dir_all(tree).map_err(failed)?;
    }
    let (bin, lib, doc) = (tree.join("bin"), tree.join("lib/userdma"), tree.join("share/doc/userdma"));
    for folder in [&bin, &lib, &doc] {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::copy(program, bin.join("userdma")).map_err(failed)?;
    fs::copy(library, lib.join("libibverbs.so.1")).map_err(failed)?;
    symlink("libibverbs.so.1", lib.join("libibverbs.so")).map_err(failed)?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root.join(licence), doc.join(licence)).map_err(failed)?;
    }
    for file in ["service.md", "userdma.service"] {
        fs::copy(root.join("docs").join(file), doc.join(file)).map_err(failed)?;
    }
    fs::write(doc.join("README.md"), readme(needed)).map_err(failed)
}

/// What somebody needs who has only the archive.
fn readme(needed: Glibc) -> String {
    format!(
        "# userdma {}\n\n\
         An RDMA network adapter in user space. This archive runs wherever it is unpacked, as any user, on Linux with\n\
         glibc {needed} or newer ({}); it needs no RDMA hardware, kernel module or privilege.\n\n\
         ```\n\
         bin/userdma                                                  # a demo that explains itself\n\
         bin/userdma run --device 127.0.0.2 -- ib_write_bw            # an unmodified verbs program, first terminal\n\
         bin/userdma run --device 127.0.0.3 -- ib_write_bw 127.0.0.1  # second terminal\n\
         bin/userdma devices                                          # what is here, and what could be better\n\
         bin/userdma agent                                            # share the addresses among all users: service.md\n\
         bin/userdma run --help\n\
         ```\n\n\
         `bin/userdma` looks for the library in `../lib/userdma`; keep the two together. No spaces or colons may be in the\n\
         path. Licence: MIT or Apache-2.0, at your choice; both texts are beside this file.\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

/// The same tree gives the same archive, but for times.
fn pack(folder: &Path, name: &str, archive: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.current_dir(folder).args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=u+rwX,go+rX,go-w",
    ]);
    tar.arg("-czf").arg(archive).arg(name);
    succeed(&mut tar)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} ended with {status}", command.get_program().display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_written_down() {
        let text = readme(Glibc(2, 31));
        assert!(text.contains("glibc 2.31 or newer"), "{text}");
    }
}
