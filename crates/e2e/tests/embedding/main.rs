//! Mallard inside other programs. The library is installed into a prefix by the documented command,
//! and each program in `examples/` is built from there as its own first lines say, and run. Its
//! output is checked against what it did.

mod deploy;
mod linked;
mod profiles;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mallard_e2e::service::Service;
use mallard_e2e::{Allocator, Library, Sandbox, folder, repository};
use mallard_needs::lacks;

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
    if !can_build(&["make", "objcopy", "pkg-config", "cc"]) {
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

/// Configures and builds the CMake example from the prefix.
fn cmake(sandbox: &Sandbox, build: &str, prefix: &Path) -> PathBuf {
    let folder = sandbox.path(build);
    output(
        sandbox,
        sandbox
            .plain_command("cmake")
            .arg("-S")
            .arg(example("cmake"))
            .arg("-B")
            .arg(&folder)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())),
    );
    output(
        sandbox,
        sandbox.plain_command("cmake").arg("--build").arg(&folder),
    );
    folder
}

fn check_request(text: &str) {
    let number = |label: &str| -> u64 {
        text.lines()
            .find_map(|line| line.strip_prefix(label)?.strip_prefix(": ")?.parse().ok())
            .unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    assert!(
        number("filled") > 20_000 * 4 && number("filled") < 1_000_000,
        "{text}"
    );
    assert_eq!(number("emptied"), 0, "{text}");
    assert!(number("leaked") > 5000 * 2600, "{text}");
    assert_eq!(number("reset"), 0, "{text}");
    assert_eq!(number("lines"), 100_000, "{text}");
}

#[test]
fn a_cpp_program_finds_both_libraries_by_cmake_also_in_a_tree_that_was_moved() {
    if !can_build(&["make", "objcopy", "cmake", "c++"]) {
        return;
    }
    let sandbox = sandbox();
    let moved = sandbox.path("moved");
    output(
        &sandbox,
        sandbox
            .plain_command("cp")
            .arg("-a")
            .arg(installation())
            .arg(&moved),
    );
    for (build, prefix) in [("build", installation()), ("build-moved", moved.as_path())] {
        let folder = cmake(&sandbox, build, prefix);
        for program in ["request", "request-static"] {
            // CMake writes the library's folder into programs that run from the build folder.
            check_request(&output(
                &sandbox,
                &mut sandbox.plain_command(folder.join(program)),
            ));
        }
    }
}

#[test]
fn the_cmake_package_refuses_versions_that_it_is_not() {
    if !can_build(&["make", "objcopy", "cmake", "c++"]) {
        return;
    }
    let sandbox = sandbox();
    sandbox.write(
        "project/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(asks LANGUAGES CXX)\n\
         find_package(Mallard ${ASKED})\n\
         message(STATUS \"${ASKED}: ${Mallard_FOUND}\")\n",
    );
    for (asked, found) in [
        ("0.1", true),
        ("0.1.0", true),
        ("0.0.9", false),
        ("0.2", false),
        ("1.0", false),
    ] {
        let text = output(
            &sandbox,
            sandbox
                .plain_command("cmake")
                .args(["-S", "project", "-B", &format!("build-{asked}")])
                .arg(format!("-DASKED={asked}"))
                .arg(format!("-DCMAKE_PREFIX_PATH={}", installation().display())),
        );
        let answer = format!("{asked}: {}", i32::from(found));
        assert!(text.contains(&answer), "no '{answer}' in:\n{text}");
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

/// Builds one of the Rust examples and returns the program.
fn cargo_build(sandbox: &Sandbox, name: &str, variables: &[(&str, &Path)]) -> PathBuf {
    let target = folder::own(name);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    output(
        sandbox,
        sandbox
            .plain_command(cargo)
            .args([
                "build",
                "--quiet",
                "--release",
                "--locked",
                "--manifest-path",
            ])
            .arg(example(name).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .envs(variables.iter().copied()),
    );
    target.join("release").join(name)
}

#[test]
fn a_rust_program_is_on_mallard_by_one_static() {
    if !can_build(&["cargo"]) {
        return;
    }
    let sandbox = sandbox();
    let program = cargo_build(&sandbox, "rust-global", &[]);
    let text = output(&sandbox, &mut sandbox.plain_command(program));
    assert_eq!(
        text,
        "9973 words, 200000 times\n67108864 bytes\non Mallard: true\n"
    );
}

/// Starts a program that serves metrics, and returns the answer to a request for this path.
fn served(program: &Path, path: &str) -> String {
    let sandbox = sandbox();
    let mut command = sandbox.plain_command(program);
    let lib = installation().join("lib");
    let service = Service::start(&sandbox, "metrics", command.env("LD_LIBRARY_PATH", lib));
    let service = service.unwrap_or_else(|error| panic!("{error}"));
    service
        .await_log("/metrics\n")
        .unwrap_or_else(|error| panic!("{error}"));
    let log = service.log();
    let address = log.strip_prefix("http://").expect("its address");
    let (address, _) = address.split_once('/').expect("a path");
    let mut client = TcpStream::connect(address).expect("it accepts");
    client
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
        .expect("it reads");
    let mut answer = String::new();
    client
        .read_to_string(&mut answer)
        .expect("it answers and closes");
    answer
}

#[test]
fn programs_in_c_cpp_and_rust_serve_metrics_by_their_own_servers() {
    if !can_build(&["make", "objcopy", "pkg-config", "cc", "c++", "cargo"]) {
        return;
    }
    let sandbox = sandbox();
    let build = |compiler: &str, source: &str| {
        let program = sandbox.path(&format!("metrics-{compiler}"));
        let mut command = sandbox.plain_command(compiler);
        command
            .args(["-Wall", "-Wextra", "-Werror"])
            .arg(example(source));
        command.args(pkg_config(
            &sandbox,
            "lib/pkgconfig",
            &["--cflags", "--libs", "mallard"],
        ));
        output(&sandbox, command.arg("-o").arg(&program));
        program
    };
    for program in [
        build("cc", "c/metrics.c"),
        build("c++", "cpp/metrics.cpp"),
        cargo_build(&sandbox, "rust-metrics", &[]),
    ] {
        let answer = served(&program, "/metrics");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        assert!(body.ends_with("\n# EOF\n"), "{body}");
        let allocated = body
            .lines()
            .find_map(|line| {
                line.strip_prefix("mallard_allocated_bytes ")?
                    .parse::<u64>()
                    .ok()
            })
            .expect("the metric");
        assert!((3 << 20..8 << 20).contains(&allocated), "{allocated}");
        assert!(served(&program, "/other").starts_with("HTTP/1.1 404 "));
    }
}

#[test]
fn a_rust_program_written_for_jemalloc_runs_on_mallard_unchanged() {
    if !can_build(&["make", "objcopy", "cargo"]) {
        return;
    }
    let sandbox = sandbox();
    let lib = installation().join("lib");
    for library in ["libmallard.so", "libmallard.a"] {
        let program = cargo_build(
            &sandbox,
            "rust-jemalloc-ctl",
            &[("JEMALLOC_OVERRIDE", &lib.join(library))],
        );
        let text = output(
            &sandbox,
            sandbox.plain_command(program).env("LD_LIBRARY_PATH", &lib),
        );
        check_jemalloc_ctl(&text);
    }
}

fn check_jemalloc_ctl(text: &str) {
    let at = figures(&text.replace(", resident", " resident"));
    let number = |label: &str| -> u64 {
        text.lines()
            .find_map(|line| {
                line.strip_prefix(label)?
                    .trim()
                    .split(' ')
                    .next()?
                    .parse()
                    .ok()
            })
            .unwrap_or_else(|| panic!("no '{label}' in {text}"))
    };
    let [before, during, after] = ["before", "during", "after"].map(|when| at[when].0);
    // Each string has at least 100 bytes, and 24 in the vector.
    let bytes = 100_000 * (100 + 24);
    assert!(
        (bytes..bytes * 3 / 2).contains(&(during - before)),
        "{text}"
    );
    assert!(after < before + bytes / 10, "{text}");
    assert!(number("this thread took:") >= bytes, "{text}");
    assert!(number("this thread gave:") >= bytes, "{text}");
    assert_eq!(number("decay of new arenas:"), 1000, "{text}");
    assert_eq!(number("page:"), 4096, "{text}");
    assert!(
        number("arenas:") >= 1 && text.contains("tcache true"),
        "{text}"
    );
}
