//! Symbols with versions.
//!
//! Each exported function is a label of its own with one jump, to which a `.symver` directive gives the name and the version
//! node; `nodes.map` declares the nodes. Rust has no other way to give one function several versions. Labels stay inside the
//! library: the linker exports what has a version.

/// The instruction that jumps.
#[cfg(all(not(test), target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "jmp {f}"
    };
}
#[cfg(all(not(test), target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "b {f}"
    };
}

/// `symbol!("kind_", "name", "@@NODE", function)`: `name@@NODE` is `function`. The kind makes the label unique.
#[cfg(not(test))]
macro_rules! symbol {
    ($kind:literal, $name:literal, $node:literal, $f:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.userdma_", $kind, $name, ",\"ax\",@progbits"),
            concat!(".globl userdma_", $kind, $name),
            concat!(".type userdma_", $kind, $name, ",@function"),
            concat!(".symver userdma_", $kind, $name, ",", $name, $node),
            concat!("userdma_", $kind, $name, ":"),
            jump!(),
            concat!(".size userdma_", $kind, $name, ",.-userdma_", $kind, $name),
            ".popsection",
            f = sym $f
        );
    };
}

/// In tests, which are programs, nothing is exported; the functions only have to exist.
#[cfg(test)]
macro_rules! symbol {
    ($kind:literal, $name:literal, $node:literal, $f:path) => {
        const _: () = {
            let _ = $f;
        };
    };
}

/// The newest version of each public function.
macro_rules! public {
    ($($node:literal { $($name:literal => $f:path),* $(,)? })*) => { $($(
        symbol!("", $name, $node, $f);
    )*)* };
}
