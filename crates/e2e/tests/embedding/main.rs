//! Mallard inside other programs. The library is installed into a prefix by the documented command,
//! and each program in `examples/` is built from there as its own first lines say, and run. Its
//! output is checked against what it did.

mod cmake;
mod deploy;
mod linked;
mod profiles;
mod rust;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mallard_e2e::{Allocator, Library, Sandbox, folder, repository};
use mallard_testing::lacks;

/// Whether the programs are installed and the library is Mallard's own; says so if not.
fn can_build(needs: &[&str]) -> bool {
    Library::release().is_mallard_or_skipped() && !lacks(needs)
}

fn sandbox() -> Sandbox<'static> {
    Sandbox::temporary(Allocator::System)
}

/// Runs the command and returns its output.
fn output(sandbox: &Sandbox, command: &mut Command) -> String {
    sandbox
        .run(command)
        .unwrap_or_else(|error| panic!("{error}"))
        .stdout_text()
}

/// Runs make on the build of the library that all tests share.
fn make(sandbox: &Sandbox, goal: &str, variables: &[String]) {
    // Builds the library first, so that make's cargo finds it up to date.
    let library = Library::release();
    let target = library
        .shared
        .ancestors()
        .nth(2)
        .expect("cargo's target folder");
    let mut command = sandbox.plain_command("make");
    command
        .args(["--silent", "-C"])
        .arg(repository().join("crates/mallard-c"))
        .arg(goal)
        .arg(format!("TARGET={}", target.display()))
        .arg(format!("BUILD={}", sandbox.path("make").display()))
        .args(variables);
    if let Some(cargo) = std::env::var_os("CARGO") {
        command.env("CARGO", cargo);
    }
    output(sandbox, &mut command);
}

fn prefix(folder: &Path) -> Vec<String> {
    vec![format!("PREFIX={}", folder.display())]
}

/// The installation prefix from which the examples are built.
fn installation() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let folder = folder::own("installed");
        let _ = std::fs::remove_dir_all(&folder);
        make(&sandbox(), "install", &prefix(&folder));
        folder
    })
}

fn example(file: &str) -> PathBuf {
    repository().join("examples").join(file)
}

/// pkg-config's answer about an installed package.
fn pkg_config(sandbox: &Sandbox, folder: &str, arguments: &[&str]) -> Vec<String> {
    let mut command = sandbox.plain_command("pkg-config");
    command
        .env("PKG_CONFIG_PATH", installation().join(folder))
        .args(arguments);
    output(sandbox, &mut command)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// All files in the folder, with paths relative to it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below the folder");
                found.push(name.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn installing_brings_what_is_told_and_uninstalling_takes_it_all_back() {
    if !can_build(&["make", "objcopy"]) {
        return;
    }
    let sandbox = sandbox();
    let (folder, stage) = (PathBuf::from("/opt/mallard"), sandbox.path("stage"));
    let variables = [
        prefix(&folder),
        vec![format!("DESTDIR={}", stage.display())],
    ]
    .concat();
    make(&sandbox, "install", &variables);
    assert_eq!(
        files(&stage.join("opt/mallard")),
        [
            "include/jemalloc/jemalloc.h",
            "include/mallard.h",
            "lib/cmake/Mallard/MallardConfig.cmake",
            "lib/cmake/Mallard/MallardConfigVersion.cmake",
            "lib/libmallard.a",
            "lib/libmallard.so",
            "lib/libmallard.so.0",
            "lib/mallard/libjemalloc.a",
            "lib/mallard/libjemalloc.so",
            "lib/mallard/libjemalloc.so.2",
            "lib/mallard/pkgconfig/jemalloc.pc",
            "lib/pkgconfig/mallard.pc",
        ]
    );
    for link in [
        "lib/libmallard.so",
        "lib/mallard/libjemalloc.so.2",
        "lib/mallard/libjemalloc.a",
    ] {
        let path = stage.join("opt/mallard").join(link);
        assert!(path.exists(), "{link} leads nowhere");
    }
    let text = |name: &str| {
        std::fs::read_to_string(stage.join("opt/mallard").join(name)).expect("it is installed")
    };
    let header = text("include/jemalloc/jemalloc.h");
    let (_, version) =
        (header.split_once("#define JEMALLOC_VERSION \"")).expect("it has a version");
    let (version, _) = version.split_once('-').expect("with commits and hash");
    let metadata = text("lib/mallard/pkgconfig/jemalloc.pc");
    assert!(
        metadata.contains(&format!("\nVersion: {version}\n")),
        "{metadata}"
    );
    make(&sandbox, "uninstall", &variables);
    assert_eq!(files(&stage), Vec::<String>::new());
}

#[test]
fn a_header_of_jemalloc_s_own_stays_as_it_is() {
    if !can_build(&["make", "objcopy"]) {
        return;
    }
    let sandbox = sandbox();
    let folder = sandbox.path("prefix");
    let header = sandbox.write("prefix/include/jemalloc/jemalloc.h", "/* another's */\n");
    for goal in ["install", "uninstall"] {
        make(&sandbox, goal, &prefix(&folder));
        let text = std::fs::read_to_string(&header).expect("it is still there");
        assert_eq!(text, "/* another's */\n", "after {goal}");
    }
    assert_eq!(files(&folder), ["include/jemalloc/jemalloc.h"]);
}

/// The figures of a line "WHEN: allocated N resident N", with any punctuation.
fn figures(text: &str) -> HashMap<String, (u64, u64)> {
    text.lines()
        .filter_map(|line| {
            let (when, rest) = line.split_once(": allocated ")?;
            let (allocated, resident) = rest.split_once(" resident ")?;
            let number = |text: &str| text.trim_end_matches(',').parse().expect("a number");
            Some((when.to_owned(), (number(allocated), number(resident))))
        })
        .collect()
}

fn check_usage(text: &str) {
    assert!(
        text.contains("3 arenas"),
        "malloc_conf was not read: {text}"
    );
    let at = figures(text);
    let [
        (before, _),
        (during, resident),
        (freed, still_resident),
        (purged, rest),
    ] = ["before", "during", "freed", "purged"].map(|when| at[when]);
    assert!(
        during - before >= 40_000_000 && during - before < 48_000_000 && resident >= during,
        "{text}"
    );
    assert!(freed < before + 2_000_000 && purged <= freed, "{text}");
    assert!(
        still_resident > resident / 2 && rest < resident / 2,
        "{text}"
    );
}

#[test]
fn a_c_program_finds_the_shared_library_by_pkg_config() {
    if !can_build(&["make", "objcopy", "pkg-config", "cc"]) {
        return;
    }
    let sandbox = sandbox();
    let program = sandbox.path("usage");
    let flags = pkg_config(
        &sandbox,
        "lib/pkgconfig",
        &["--cflags", "--libs", "mallard"],
    );
    output(
        &sandbox,
        sandbox
            .plain_command("cc")
            .arg(example("c/usage.c"))
            .args(flags)
            .arg("-o")
            .arg(&program),
    );
    let alone = sandbox
        .run_to_any_end(&mut sandbox.plain_command(&program))
        .expect("it can be started");
    assert!(
        alone.stderr_text().contains("libmallard.so.0"),
        "a program that needs the library runs without: {}",
        alone.account()
    );
    let text = output(
        &sandbox,
        sandbox
            .plain_command(&program)
            .env("LD_LIBRARY_PATH", installation().join("lib")),
    );
    check_usage(&text);
}

#[test]
fn a_static_c_program_carries_the_archive() {
    if !can_build(&["make", "objcopy", "pkg-config", "cc"]) {
        return;
    }
    let sandbox = sandbox();
    let program = sandbox.path("usage");
    let flags = pkg_config(
        &sandbox,
        "lib/pkgconfig",
        &["--static", "--cflags", "--libs", "mallard"],
    );
    for kind in ["-static", "-static-pie"] {
        output(
            &sandbox,
            sandbox
                .plain_command("cc")
                .arg(kind)
                .arg(example("c/usage.c"))
                .args(&flags)
                .arg("-o")
                .arg(&program),
        );
        check_usage(&output(&sandbox, &mut sandbox.plain_command(&program)));
    }
}

#[test]
fn a_dynamic_c_program_can_carry_the_archive_too() {
    if !can_build(&["make", "objcopy", "cc"]) {
        return;
    }
    let sandbox = sandbox();
    let program = sandbox.path("usage");
    let archive = installation().join("lib/libmallard.a");
    let archive = archive.to_string_lossy();
    let whole = format!("-Wl,--whole-archive,{archive},--no-whole-archive");
    for link in [&*archive, &whole] {
        output(
            &sandbox,
            sandbox
                .plain_command("cc")
                .arg("-I")
                .arg(installation().join("include"))
                .arg(example("c/usage.c"))
                .args([link, "-pthread", "-o"])
                .arg(&program),
        );
        check_usage(&output(&sandbox, &mut sandbox.plain_command(&program)));
    }
}

#[test]
fn what_links_with_jemalloc_links_with_mallard_from_its_folder() {
    if !can_build(&["make", "objcopy", "pkg-config", "cc", "readelf"]) {
        return;
    }
    let sandbox = sandbox();
    let program = sandbox.path("tuning");
    let flags = pkg_config(
        &sandbox,
        "lib/mallard/pkgconfig",
        &["--cflags", "--libs", "jemalloc >= 5.2"],
    );
    let by_hand =
        |option: &str, folder: &str| format!("{option}{}", installation().join(folder).display());
    let old = vec![
        by_hand("-I", "include"),
        by_hand("-L", "lib/mallard"),
        "-ljemalloc".to_owned(),
    ];
    for flags in [flags, old] {
        output(
            &sandbox,
            sandbox
                .plain_command("cc")
                .args(["-Wall", "-Werror"])
                .arg(repository().join("crates/e2e/programs/tuning.c"))
                .args(flags)
                .arg("-o")
                .arg(&program),
        );
        // The name in the book: a program that is linked so does not run on jemalloc's library.
        let needed = output(
            &sandbox,
            sandbox.plain_command("readelf").arg("-d").arg(&program),
        );
        assert!(needed.contains("[libmallard.so.0]"), "{needed}");
        assert!(!needed.contains("jemalloc"), "{needed}");
        for (what, said) in [
            ("purge", "full "),
            ("arena", "arenas 4"),
            ("numa", "nodes "),
        ] {
            let text = output(
                &sandbox,
                sandbox
                    .plain_command(&program)
                    .arg(what)
                    .env("LD_LIBRARY_PATH", installation().join("lib")),
            );
            assert!(text.starts_with(said), "{what}: {text}");
        }
    }
}

#[test]
fn a_running_program_loads_the_library_beside_its_own_allocator() {
    if !can_build(&["make", "objcopy", "cc"]) {
        return;
    }
    let sandbox = sandbox();
    let program = sandbox.path("loader");
    output(
        &sandbox,
        sandbox
            .plain_command("cc")
            .arg(example("dlopen/loader.c"))
            .args(["-pthread", "-ldl", "-o"])
            .arg(&program),
    );
    let text = output(
        &sandbox,
        sandbox
            .plain_command(&program)
            .arg(installation().join("lib/libmallard.so")),
    );
    let bytes: u64 = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no number: {text}"));
    let asked = 4 * (0..2000).map(|number| 1 + number * 7).sum::<u64>();
    assert!(bytes >= asked && bytes < asked * 5 / 4, "{text}");
    assert!(text.contains("malloc is untouched"), "{text}");
    assert!(text.contains("stays after dlclose"), "{text}");
}
