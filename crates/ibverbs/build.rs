//! Gives the library its name and its version nodes. The nodes are empty: each symbol names its own (`src/export.rs`).

fn main() {
    let map = concat!(env!("CARGO_MANIFEST_DIR"), "/nodes.map");
    println!("cargo::rerun-if-changed=nodes.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={map}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // A program may close its last handle while our threads and handlers run.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
