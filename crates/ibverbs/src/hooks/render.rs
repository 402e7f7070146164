//! What stands in the files: a device as the kernel's sysfs shows one.
//!
//! ```text
//!   /sys/class/infiniband/D, /sys/class/infiniband_verbs/uverbsN     links into
//!   /sys/devices/platform/userdma_infiniband/D/                       the adapter: vendor, numa_node, net/
//!       infiniband/D/ports/1/…                                       the verbs device
//!       infiniband_verbs/uverbsN/…                                   its node
//! ```

use std::net::IpAddr;

use userdma_host::Stats;
use userdma_verbs::{Gid, PKey};

use super::path::{DEVICES, NODES};
use crate::query;

/// Something that is to be made, in this order: directories before what is in them.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// Its place as programs know it.
    pub(super) path: String,
    pub(super) node: Node,
}

#[derive(Debug, Eq, PartialEq)]
pub(super) enum Node {
    /// A directory, with those above it.
    Dir,
    /// A file that can be read.
    Text(String),
    /// A symbolic link.
    Link(String),
}

/// What there is to know about a device without opening it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) name: String,
    /// Of its node, `uverbsN`.
    pub(crate) number: usize,
    /// In network order.
    pub(crate) guid: [u8; 8],
    /// Of its port; 0 if it has none.
    pub(crate) lid: u16,
    /// The GID table: each address, and the interface that has it.
    pub(crate) gids: Vec<(IpAddr, Option<String>)>,
}

/// What is there without any device.
pub(super) fn classes() -> Vec<Entry> {
    let mut made = Made::default();
    for dir in [DEVICES, NODES, CLASS, VERBS_CLASS, MAD_CLASS] {
        made.dir(dir);
    }
    made.text(format!("{VERBS_CLASS}/abi_version"), "6");
    made.text(format!("{MAD_CLASS}/abi_version"), "5");
    made.link(format!("{NODES}/rdma_cm"), "/dev/null");
    made.0
}

/// All entries of a device.
pub(super) fn device(view: &View) -> Vec<Entry> {
    let mut made = Made::default();
    adapter(&mut made, view);
    verbs_device(&mut made, view);
    port(&mut made, view);
    node(&mut made, view);
    made.0
}

/// The text of a count, if there is one with this name.
pub(super) fn counter(stats: &Stats, name: &str) -> Option<String> {
    let own = |wanted: &str| stats.iter().find(|(name, _)| *name == wanted).map(|(_, count)| count);
    let count = match PORT_COUNTERS.iter().find(|(port, _)| *port == name) {
        Some((_, counted_as)) => own(counted_as)?,
        None => own(name)?,
    };
    Some(format!("{count}\n"))
}

/// What stands for the adapter: programs ask it for its vendor, its processors and its network interface.
fn adapter(made: &mut Made, view: &View) {
    let at = adapter_of(view);
    made.dir(&format!("{at}/net"));
    made.text(format!("{at}/vendor"), &format!("{:#x}", query::VENDOR_ID));
    made.text(format!("{at}/device"), &format!("{:#x}", query::VENDOR_PART_ID));
    made.text(format!("{at}/numa_node"), "-1");
    made.text(format!("{at}/uevent"), "DRIVER=userdma");
    let mut interfaces: Vec<&String> = view.gids.iter().filter_map(|(_, name)| name.as_ref()).collect();
    interfaces.dedup();
    for name in interfaces {
        made.link(format!("{at}/net/{name}"), &format!("/sys/class/net/{name}"));
    }
}

fn verbs_device(made: &mut Made, view: &View) {
    let at = device_of(view);
    let guid = words(&view.guid);
    made.dir(&at);
    made.link(format!("{CLASS}/{}", view.name), &format!("../..{}", at.trim_start_matches("/sys")));
    made.link(format!("{at}/device"), &format!("../../../{}", view.name));
    made.link(format!("{at}/subsystem"), "../../../../../../class/infiniband");
    for (name, text) in [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", &view.name),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hw_rev", "0x0"),
        ("hca_type", "userdma"),
        ("board_id", "userdma"),
    ] {
        made.text(format!("{at}/{name}"), text);
    }
    made.text(format!("{at}/uevent"), &format!("NAME={}", view.name));
}

fn port(made: &mut Made, view: &View) {
    let at = format!("{}/ports/1", device_of(view));
    for dir in ["gids", "pkeys", "gid_attrs/types", "gid_attrs/ndevs", "counters", "hw_counters"] {
        made.dir(&format!("{at}/{dir}"));
    }
    for (name, text) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "10 Gb/sec (1X QDR)"),
        ("link_layer", "Ethernet"),
        ("lid", &format!("{:#x}", view.lid)),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", &format!("{:#010x}", query::PORT_CAPABILITIES)),
        ("pkeys/0", &format!("{:#06x}", PKey::DEFAULT.get())),
    ] {
        made.text(format!("{at}/{name}"), text);
    }
    for (index, (ip, interface)) in view.gids.iter().enumerate() {
        made.text(format!("{at}/gids/{index}"), &words(&Gid::from(*ip).bytes()));
        made.text(format!("{at}/gid_attrs/types/{index}"), "RoCE v2");
        if let Some(interface) = interface {
            made.text(format!("{at}/gid_attrs/ndevs/{index}"), interface);
        }
    }
    for (name, _) in PORT_COUNTERS {
        made.text(format!("{at}/counters/{name}"), "0");
    }
    for (name, _) in Stats::default().iter() {
        made.text(format!("{at}/hw_counters/{name}"), "0");
    }
}

/// The device's node, and what describes it.
fn node(made: &mut Made, view: &View) {
    let name = format!("uverbs{}", view.number);
    let at = format!("{}/infiniband_verbs/{name}", adapter_of(view));
    made.dir(&at);
    made.link(format!("{VERBS_CLASS}/{name}"), &format!("../..{}", at.trim_start_matches("/sys")));
    made.link(format!("{at}/device"), &format!("../../../{}", view.name));
    made.link(format!("{at}/subsystem"), "../../../../../../class/infiniband_verbs");
    made.text(format!("{at}/ibdev"), &view.name);
    made.text(format!("{at}/abi_version"), "1");
    // The numbers of what the node is a link to, so that they are what `stat` says.
    made.text(format!("{at}/dev"), "1:3");
    made.text(format!("{at}/uevent"), &format!("MAJOR=1\nMINOR=3\nDEVNAME=infiniband/{name}"));
    made.link(format!("{NODES}/{name}"), "/dev/null");
}

#[derive(Default)]
struct Made(Vec<Entry>);

impl Made {
    fn dir(&mut self, path: &str) {
        self.0.push(Entry { path: path.to_owned(), node: Node::Dir });
    }

    fn text(&mut self, path: String, text: &str) {
        self.0.push(Entry { path, node: Node::Text(format!("{text}\n")) });
    }

    fn link(&mut self, path: String, to: &str) {
        self.0.push(Entry { path, node: Node::Link(to.to_owned()) });
    }
}

fn adapter_of(view: &View) -> String {
    format!("{DEVICES}/{}", view.name)
}

fn device_of(view: &View) -> String {
    format!("{DEVICES}/{0}/infiniband/{0}", view.name)
}

/// Words of 16 bits, as sysfs writes GUIDs and GIDs.
fn words(bytes: &[u8]) -> String {
    let words: Vec<_> = bytes.chunks(2).map(|word| format!("{:02x}{:02x}", word[0], word[1])).collect();
    words.join(":")
}

const CLASS: &str = "/sys/class/infiniband";
const VERBS_CLASS: &str = "/sys/class/infiniband_verbs";
/// There are no devices for management packets, but their class, which tools look for first.
const MAD_CLASS: &str = "/sys/class/infiniband_mad";
/// Counts of a port, and what we call them.
const PORT_COUNTERS: [(&str, &str); 2] =
    [("port_rcv_packets", "rcvd_pkts"), ("port_xmit_packets", "sent_pkts")];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn view() -> View {
        let gids = vec![
            (IpAddr::from([10, 0, 0, 1]), Some("eth0".to_owned())),
            ("2001:db8::1".parse().unwrap(), Some("eth0".to_owned())),
        ];
        View { name: "roce_eth0".to_owned(), number: 2, guid: [2, 0, 10, 0xff, 0xfe, 0, 0, 1], lid: 1, gids }
    }

    fn text<'a>(entries: &'a [Entry], end: &str) -> &'a str {
        let found = entries.iter().find(|entry| entry.path.ends_with(end)).expect(end);
        match &found.node {
            Node::Text(text) | Node::Link(text) => text,
            Node::Dir => "",
        }
    }

    #[test]
    fn files_say_what_the_kernels_would() {
        let entries = device(&view());
        assert_eq!(text(&entries, "/ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
        assert_eq!(text(&entries, "/ports/1/gids/1"), "2001:0db8:0000:0000:0000:0000:0000:0001\n");
        assert_eq!(text(&entries, "/gid_attrs/ndevs/1"), "eth0\n");
        assert_eq!(text(&entries, "/node_guid"), "0200:0aff:fe00:0001\n");
        assert_eq!(text(&entries, "/pkeys/0"), "0xffff\n");
        assert_eq!(text(&entries, "/ports/1/lid"), "0x1\n");
        assert_eq!(text(&entries, "/net/eth0"), "/sys/class/net/eth0");
        assert_eq!(text(&entries, "/dev/infiniband/uverbs2"), "/dev/null");
    }

    #[test]
    fn nothing_is_made_twice_or_before_its_directory() {
        let mut there = HashSet::new();
        for entry in classes().into_iter().chain(device(&view())) {
            let above = entry.path.rsplit_once('/').unwrap().0.to_owned();
            if entry.node == Node::Dir {
                entry
                    .path
                    .match_indices('/')
                    .for_each(|(at, _)| _ = there.insert(entry.path[..at].to_owned()));
            } else {
                assert!(there.contains(&above), "{} has no directory", entry.path);
            }
            assert!(
                there.insert(entry.path.clone()) || entry.node == Node::Dir,
                "{} is there already",
                entry.path
            );
        }
    }

    #[test]
    fn counts_have_names() {
        let stats = Stats { sent_pkts: 7, out_of_seq_request: 3, ..Stats::default() };
        assert_eq!(counter(&stats, "port_xmit_packets").as_deref(), Some("7\n"));
        assert_eq!(counter(&stats, "out_of_seq_request").as_deref(), Some("3\n"));
        assert_eq!(counter(&stats, "nothing"), None);
    }
}
