//! The floor plan: a crate depends on lower floors only, and unsafe code stays where it belongs.
//!
//! Each `Cargo.toml` says `[package.metadata.userdma] floor = N`. Development dependencies are
//! exempt: a test may use whatever shows the behaviour.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// One package of the workspace, as far as the floor plan is concerned.
#[derive(Debug)]
struct Package {
    name: String,
    floor: Option<u64>,
    /// Names of the normal and build dependencies, inside the workspace or not.
    dependencies: Vec<String>,
    /// Root files of its library and binaries.
    roots: Vec<PathBuf>,
}

/// What the root file of a crate must say about unsafe code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum UnsafePolicy {
    /// `#![forbid(unsafe_code)]`
    Forbid,
    /// `#![deny(unsafe_code)]` or stricter; exceptions are marked where they stand.
    Deny,
    /// The crate is where unsafe code lives.
    Free,
}

/// Checks the workspace at `root`; returns what is wrong with it.
///
/// # Errors
/// The metadata or a root file could not be read.
pub(crate) fn run(root: &Path) -> Result<Vec<String>, String> {
    let packages = packages(&metadata(root)?)?;
    let mut complaints = edges(&packages);
    for package in &packages {
        for file in &package.roots {
            let source = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
            complaints.extend(unsafe_code(&package.name, file, &source));
        }
    }
    println!("floors: {} crates, {} problems", packages.len(), complaints.len());
    Ok(complaints)
}

fn metadata(root: &Path) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

fn packages(metadata: &Value) -> Result<Vec<Package>, String> {
    let list = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    list.iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package, String> {
    let name = value["name"].as_str().ok_or("a package without a name")?.to_owned();
    let items = |key: &str| value[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let dependencies = items("dependencies")
        .iter()
        .filter(|d| d["kind"].as_str() != Some("dev"))
        .filter_map(|d| d["name"].as_str())
        .map(str::to_owned)
        .collect();
    let roots = items("targets")
        .iter()
        .filter(|t| {
            let kinds = t["kind"].as_array().map(Vec::as_slice).unwrap_or_default();
            kinds.iter().filter_map(Value::as_str).any(|k| matches!(k, "lib" | "rlib" | "cdylib" | "bin"))
        })
        .filter_map(|t| t["src_path"].as_str())
        .map(PathBuf::from)
        .collect();
    Ok(Package { name, floor: value["metadata"]["userdma"]["floor"].as_u64(), dependencies, roots })
}

/// Dependencies that do not go down, and packages without a floor.
fn edges(packages: &[Package]) -> Vec<String> {
    let floors: BTreeMap<&str, Option<u64>> = packages.iter().map(|p| (p.name.as_str(), p.floor)).collect();
    let mut complaints = Vec::new();
    for package in packages {
        let Some(floor) = package.floor else {
            complaints.push(format!("{} has no [package.metadata.userdma] floor", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(Some(below)) = floors.get(dependency.as_str())
                && *below >= floor
            {
                complaints.push(format!(
                    "{} (floor {floor}) depends on {dependency} (floor {below}): a dependency goes to a lower floor",
                    package.name
                ));
            }
        }
    }
    complaints
}

fn policy(package: &str) -> UnsafePolicy {
    match package {
        "userdma-mem" | "userdma-link" | "userdma-ibverbs" => UnsafePolicy::Free,
        "userdma-host" | "userdma" => UnsafePolicy::Deny,
        _ => UnsafePolicy::Forbid,
    }
}

/// A complaint if the root file does not hold the attribute that its crate's policy asks for.
fn unsafe_code(package: &str, file: &Path, source: &str) -> Option<String> {
    let has = |attribute: &str| source.lines().any(|l| l.trim_start().starts_with(attribute));
    let forbids = has("#![forbid(unsafe_code)]");
    let (ok, wanted) = match policy(package) {
        UnsafePolicy::Free => (true, ""),
        UnsafePolicy::Deny => (forbids || has("#![deny(unsafe_code)]"), "#![deny(unsafe_code)]"),
        UnsafePolicy::Forbid => (forbids, "#![forbid(unsafe_code)]"),
    };
    (!ok).then(|| format!("{package}: {} does not say {wanted}", file.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace(extra: Value) -> Vec<Package> {
        let verbs = json!({"name": "verbs", "metadata": {"userdma": {"floor": 0}}, "dependencies": [], "targets": []});
        let mem = json!({"name": "mem", "metadata": {"userdma": {"floor": 1}},
            "dependencies": [{"name": "verbs", "kind": null}, {"name": "libc", "kind": null}], "targets": []});
        packages(&json!({"packages": [verbs, mem, extra]})).expect("three packages")
    }

    #[test]
    fn a_dependency_on_a_lower_floor_passes() {
        let wire = json!({"name": "wire", "metadata": {"userdma": {"floor": 2}},
            "dependencies": [{"name": "verbs", "kind": null}, {"name": "mem", "kind": "build"}]});
        assert_eq!(edges(&workspace(wire)), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_on_the_same_or_a_higher_floor_is_named() {
        for kind in [Value::Null, json!("build")] {
            let wire = json!({"name": "wire", "metadata": {"userdma": {"floor": 1}},
                "dependencies": [{"name": "mem", "kind": kind}]});
            let complaints = edges(&workspace(wire));
            assert_eq!(complaints.len(), 1);
            assert!(complaints[0].starts_with("wire (floor 1) depends on mem (floor 1)"), "{complaints:?}");
        }
    }

    #[test]
    fn a_development_dependency_is_exempt() {
        let low = json!({"name": "low", "metadata": {"userdma": {"floor": 0}},
            "dependencies": [{"name": "mem", "kind": "dev"}]});
        assert!(edges(&workspace(low)).is_empty());
    }

    #[test]
    fn a_crate_without_a_floor_is_named() {
        let lost = json!({"name": "lost", "metadata": null, "dependencies": []});
        assert_eq!(edges(&workspace(lost)), ["lost has no [package.metadata.userdma] floor"]);
    }

    #[test]
    fn only_libraries_and_binaries_have_roots() {
        let tested = json!({"name": "t", "metadata": {"userdma": {"floor": 3}}, "dependencies": [], "targets": [
            {"kind": ["lib"], "src_path": "a/lib.rs"}, {"kind": ["bin"], "src_path": "a/main.rs"},
            {"kind": ["test"], "src_path": "a/tests.rs"}, {"kind": ["example"], "src_path": "a/ex.rs"}]});
        assert_eq!(workspace(tested)[2].roots, [PathBuf::from("a/lib.rs"), PathBuf::from("a/main.rs")]);
    }

    #[test]
    fn unsafe_code_is_forbidden_but_where_it_lives() {
        let file = Path::new("lib.rs");
        assert!(unsafe_code("userdma-ibt", file, "//! x\n#![forbid(unsafe_code)]\n").is_none());
        assert!(unsafe_code("userdma-ibt", file, "#![deny(unsafe_code)]\n").is_some());
        assert!(unsafe_code("userdma-ibt", file, "// #![forbid(unsafe_code)]\n").is_some());
        assert!(unsafe_code("userdma", file, "#![deny(unsafe_code)]\n").is_none());
        assert!(unsafe_code("userdma", file, "#![forbid(unsafe_code)]\n").is_none());
        assert!(unsafe_code("userdma", file, "").is_some());
        assert!(unsafe_code("userdma-host", file, "").is_some());
        assert!(unsafe_code("userdma-mem", file, "").is_none());
    }
}
