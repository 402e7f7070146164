//! The host's own devices, if it has any and the user wants to see them too (`USERDMA_WITH_REAL=1`).
//!
//! Their directories and nodes appear beside ours, as links to what the kernel has. They can be looked at, but not opened: a
//! verbs library drives a device by its provider's library, and those belong to the distribution's libibverbs, in whose place
//! we are.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::path::NODES;
use super::render::{Entry, Node};
use super::tree;

/// Directories whose entries are taken over.
const CLASSES: [&str; 2] = ["/sys/class/infiniband", "/sys/class/infiniband_verbs"];

/// Whether the user wants to see the host's devices.
fn is_wanted() -> bool {
    std::env::var_os("USERDMA_WITH_REAL").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Links to all that the host has. Only while the hooks are passed.
pub(super) fn entries() -> Vec<Entry> {
    if is_wanted() { links(Path::new("/")) } else { Vec::new() }
}

/// The number of our first `uverbs`: behind the host's, if those are seen.
pub(crate) fn first_free_number() -> usize {
    static FIRST: OnceLock<usize> = OnceLock::new();
    // Not while the lock is held: the hooks may lead here again.
    if let Some(first) = FIRST.get() {
        return *first;
    }
    let first = if is_wanted() { free_number(Path::new("/")) } else { 0 };
    *FIRST.get_or_init(|| first)
}

/// Says once that the host's devices are seen but not listed.
pub(crate) fn warn_of_unusable() {
    static ONCE: OnceLock<()> = OnceLock::new();
    if !is_wanted() || ONCE.set(()).is_err() {
        return;
    }
    let names = tree::past_hooks(|| names(Path::new(CLASSES[0])));
    if !names.is_empty() {
        eprintln!(
            "userdma: USERDMA_WITH_REAL: {} can be seen in /sys/class/infiniband but not be opened here: that takes the \
             distribution's libibverbs and its providers. Run the program without `userdma run` for them",
            names.join(", ")
        );
    }
}

fn links(root: &Path) -> Vec<Entry> {
    let mut links = Vec::new();
    for class in CLASSES {
        for name in names(&root.join(&class[1..])).into_iter().filter(|name| name != "abi_version") {
            let place = format!("{class}/{name}");
            // The class holds links; ours lead where those do.
            if let Ok(to) = root.join(&place[1..]).canonicalize() {
                links.push(Entry { path: place, node: Node::Link(to.to_string_lossy().into_owned()) });
            }
        }
    }
    let nodes = names(&root.join(&NODES[1..]));
    let known =
        nodes.into_iter().filter(|name| ["uverbs", "umad", "issm"].iter().any(|kind| name.starts_with(kind)));
    links.extend(known.map(|name| {
        let to = root.join(&NODES[1..]).join(&name);
        Entry { path: format!("{NODES}/{name}"), node: Node::Link(to.to_string_lossy().into_owned()) }
    }));
    links
}

fn free_number(root: &Path) -> usize {
    let names = tree::past_hooks(|| names(&root.join(&CLASSES[1][1..])));
    let numbers = names.into_iter().filter_map(|name| name.strip_prefix("uverbs")?.parse::<usize>().ok());
    numbers.max().map_or(0, |last| last + 1)
}

/// The entries of a directory, in order; none if there is no such directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory like a host's with one device of its own.
    fn host(name: &str) -> std::path::PathBuf {
        let root =
            std::env::temp_dir().canonicalize().unwrap().join(format!("{name}-{}", std::process::id()));
        let device = "sys/devices/pci/infiniband/mlx5_0";
        for dir in [
            device,
            "sys/devices/pci/uverbs3",
            "sys/class/infiniband",
            "sys/class/infiniband_verbs",
            "dev/infiniband",
        ] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        symlink("../../devices/pci/infiniband/mlx5_0", root.join("sys/class/infiniband/mlx5_0")).unwrap();
        symlink("../../devices/pci/uverbs3", root.join("sys/class/infiniband_verbs/uverbs3")).unwrap();
        for file in
            ["sys/class/infiniband_verbs/abi_version", "dev/infiniband/uverbs3", "dev/infiniband/rdma_cm"]
        {
            fs::write(root.join(file), "6\n").unwrap();
        }
        root
    }

    #[test]
    fn the_hosts_devices_appear_as_links_and_ours_are_numbered_behind() {
        let root = host("real");
        let text = root.to_str().unwrap();
        let found: Vec<_> = links(&root).into_iter().map(|entry| (entry.path, entry.node)).collect();
        let link = |to: &str| Node::Link(format!("{text}/{to}"));
        let wanted = [
            ("/sys/class/infiniband/mlx5_0".to_owned(), link("sys/devices/pci/infiniband/mlx5_0")),
            ("/sys/class/infiniband_verbs/uverbs3".to_owned(), link("sys/devices/pci/uverbs3")),
            ("/dev/infiniband/uverbs3".to_owned(), link("dev/infiniband/uverbs3")),
        ];
        assert_eq!(found, wanted);
        assert_eq!(free_number(&root), 4);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_host_without_devices_has_none() {
        let nowhere = Path::new("/nonexistent");
        assert!(links(nowhere).is_empty());
        assert_eq!(free_number(nowhere), 0);
    }
}
