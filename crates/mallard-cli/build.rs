//! Compiles the workloads of the experiments, which are embedded in the lab's binary.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const C: [&str; 28] = [
    "pairs", "batch", "arenas", "tune", "larson", "handoff", "replace", "burst", "same", "mixed",
    "large", "grow", "calloc", "aligned", "threads", "sharing", "scan", "fragment", "idle", "many",
    "latency", "start", "replay", "numa", "misuse", "soak", "sleepers", "manual",
];
const CPP: [&str; 4] = ["map", "containers", "strings", "misuse_new"];

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));

    let c = compiler(false);
    for name in C {
        let source = folder.join(name).with_extension("c");
        let mut command = c.to_command();
        command
            .arg("-std=gnu11")
            .arg(source)
            .arg("-o")
            .arg(out.join(name));
        run(command.args(["-pthread", "-ldl"]));
    }
    let cpp = compiler(true);
    for name in CPP {
        let source = folder.join(name).with_extension("cpp");
        let object = out.join(name).with_extension("o");
        let mut command = cpp.to_command();
        run(command
            .args(["-std=gnu++17", "-c"])
            .arg(source)
            .arg("-o")
            .arg(&object));
        let mut command = cpp.to_command();
        command.arg(&object).arg("-o").arg(out.join(name));
        run(command.args(["-pthread", "-ldl"]));
    }
    let objects = CPP.map(|name| format!("{name}.o"));
    write_list(
        &out,
        C.iter()
            .chain(&CPP)
            .copied()
            .chain(objects.iter().map(String::as_str)),
    );
    println!("cargo::rustc-env=MALLARD_COMMIT={}", commit());
    // The lab links workloads with allocators at run time, using the same compiler.
    let is_for_here = env::var_os("HOST") == env::var_os("TARGET");
    let usual = if is_for_here {
        cpp.path()
    } else {
        Path::new("c++")
    };
    println!("cargo::rustc-env=MALLARD_CXX={}", usual.display());
    let version = Command::new(cpp.path()).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = version.unwrap_or_default();
    let version = version.lines().next().unwrap_or("unknown");
    println!("cargo::rustc-env=MALLARD_CXX_VERSION={version}");
}

/// The commit of the sources: of the checkout, or the one of which cargo made the package; else
/// empty.
fn commit() -> String {
    const LENGTH: usize = 12;
    // Cargo writes this file into a package, which may lie in someone else's checkout.
    if let Ok(info) = fs::read_to_string(".cargo_vcs_info.json") {
        let id = info.split_once("\"sha1\": \"").map(|(_, rest)| rest);
        return id
            .and_then(|id| id.get(..LENGTH))
            .unwrap_or_default()
            .to_owned();
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    // The log of HEAD changes with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", &format!("--short={LENGTH}"), "HEAD"]).unwrap_or_default()
}

/// Writes the compiled files as a Rust list of names and contents, for `src/workloads/mod.rs`.
/// They lie beside the list. Their whole paths in it would have a part in the numbers of the
/// compiled code's symbols, and the lab would be another one in each folder.
fn write_list<'a>(out: &Path, names: impl Iterator<Item = &'a str>) {
    let mut text = String::from("&[\n");
    for name in names {
        text += &format!("    ({name:?}, include_bytes!({name:?})),\n");
    }
    text += "]\n";
    let list = out.join("workloads.rs");
    fs::write(&list, text).unwrap_or_else(|error| panic!("cannot write {list:?}: {error}"));
}

/// Optimises whatever the lab's profile, and keeps the compiler from deleting allocations.
fn compiler(cpp: bool) -> cc::Tool {
    let mut build = cc::Build::new();
    build
        .cpp(cpp)
        .opt_level(2)
        .debug(false)
        .flag("-fno-builtin");
    build.try_get_compiler().unwrap_or_else(|error| {
        panic!("building the lab needs a C and a C++ compiler (such as gcc and g++): {error}")
    })
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
