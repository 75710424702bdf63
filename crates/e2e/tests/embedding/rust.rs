//! Rust programs: on Mallard by one static, on it in place of jemalloc, and, beside programs in C
//! and C++, as servers of its metrics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use mallard_e2e::service::Service;
use mallard_e2e::{Sandbox, folder};

use crate::{can_build, example, figures, installation, output, pkg_config, sandbox};

/// Builds one of the Rust examples and returns the program.
pub fn cargo_build(sandbox: &Sandbox, name: &str, variables: &[(&str, &Path)]) -> PathBuf {
    let target = folder::own(name);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    output(
        sandbox,
        sandbox
            .plain_command(cargo)
            .args("build --quiet --release --locked --manifest-path".split(' '))
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
