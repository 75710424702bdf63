//! Programs in Rust and Go, on the system that the library is built for: this machine, or another
//! one (`mallard_e2e::target`).

use std::path::{Path, PathBuf};
use std::process::Command;

use mallard_e2e::{Allocator, Library, Sandbox, folder, repository, target};
use mallard_testing::{lacks, skipped};

fn done(sandbox: &Sandbox, command: &mut Command) -> String {
    let outcome = sandbox.run(command);
    outcome
        .unwrap_or_else(|error| panic!("{error}"))
        .stdout_text()
}

/// Builds a Rust program of `programs/` on the crate `mallard`, with these flags of rustc's.
fn rust(file: &str, name: &str, flags: &str) -> PathBuf {
    let example = repository().join("examples/rust-global");
    let read = |path: &Path| std::fs::read_to_string(path).expect("a file of the repository");
    let crate_path = repository().join("crates/mallard");
    let manifest = read(&example.join("Cargo.toml"));
    let (here, there) = ("../../crates/mallard", crate_path.display().to_string());
    assert!(manifest.contains(here), "{manifest}");
    let source = repository().join("crates/e2e/programs").join(file);
    let sandbox = Sandbox::temporary(Allocator::System);
    sandbox.write("Cargo.toml", &manifest.replace(here, &there));
    sandbox.write("Cargo.lock", &read(&example.join("Cargo.lock")));
    sandbox.write("src/main.rs", &read(&source));
    let builds = folder::own(name);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = sandbox.plain_command(cargo);
    command
        .args(["build", "--quiet", "--locked", "--release"])
        .arg("--target-dir")
        .arg(&builds);
    let own = target().prepare(&mut command);
    if let Some(triple) = target().triple() {
        let variable = triple.to_uppercase().replace('-', "_");
        command.env(format!("CARGO_TARGET_{variable}_RUSTFLAGS"), flags);
    }
    done(&sandbox, &mut command);
    builds.join(own).join("release/rust-global")
}

fn lives(program: &Path) {
    let sandbox = Sandbox::temporary(Allocator::System);
    let text = done(&sandbox, &mut sandbox.plain_command(program));
    assert_eq!(
        text,
        "20 children\n8000 bytes at the ends of threads\non Mallard: true\n"
    );
}

#[test]
fn a_rust_program_lives_on_mallard_by_one_static() {
    let flags = if target().is_musl() {
        "-C target-feature=-crt-static -C link-self-contained=no"
    } else {
        ""
    };
    lives(&rust("lives.rs", "lives", flags));
}

/// As cargo links programs for musl by itself.
#[test]
fn a_static_rust_program_lives_on_mallard() {
    if !target().is_musl() {
        return skipped("cargo links programs statically by itself for musl alone");
    }
    lives(&rust("lives.rs", "lives-static", ""));
}

/// With a C library's threads beside Go's: on the preloaded library, and linked with the archive.
#[test]
fn a_go_program_with_c_in_it_lives_on_mallard() {
    let library = Library::release();
    if lacks(&["go"])
        || target().lacks_exec("Go builds for its own processor")
        || !library.is_mallard_or_skipped()
    {
        return;
    }
    let compiler = target()
        .compiler(false)
        .unwrap_or_else(|why| panic!("{why}"));
    let source = repository().join("crates/e2e/programs/cgo.go");
    let source = std::fs::read_to_string(source).expect("a file of the repository");
    let build = |sandbox: &Sandbox, flags: &[&str], archive: Option<&Path>| {
        sandbox.write("main.go", &source);
        sandbox.write("go.mod", "module cgo\n\ngo 1.20\n");
        let program = sandbox.path("cgo");
        let mut command = sandbox.plain_command("go");
        command
            .args(["build", "-o"])
            .arg(&program)
            .args(flags)
            .envs([
                ("CGO_ENABLED", "1"),
                ("GOTOOLCHAIN", "local"),
                ("GOFLAGS", "-mod=mod"),
            ])
            .env("CC", &compiler);
        if let Some(archive) = archive {
            command.env("CGO_LDFLAGS", archive);
        }
        done(sandbox, command.arg("."));
        program
    };
    let on_system = Sandbox::temporary(Allocator::System);
    let program = build(&on_system, &[], None);
    let expected = done(&on_system, &mut on_system.plain_command(&program));
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(&mut sandbox.command(&program));
        assert_eq!(outcome.expect_success(), expected);
    }
    let fixed = ["-ldflags", "-linkmode external -extldflags \"-static\""];
    for flags in [&[][..], &fixed] {
        let sandbox = Sandbox::temporary(Allocator::System);
        let program = build(&sandbox, flags, Some(library.archive()));
        let mut command = sandbox.plain_command(&program);
        let outcome = sandbox
            .run(command.env("MALLOC_CONF", "confirm_conf:short"))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(outcome.stdout_text(), expected);
        assert!(
            outcome.stderr_text().contains("mallard"),
            "{}",
            outcome.account()
        );
    }
}
