//! The archive in programs of other languages, by the lines of the book's chapter on embedding.
//! Each program says itself that Mallard serves it: it prints the options in force.

use std::path::Path;
use std::process::Command;

use mallard_e2e::{Sandbox, target_dir};

use crate::{can_build, installation, output, sandbox};

/// Fails unless the program runs on Mallard, by what it prints with `confirm_conf`.
fn check_served(sandbox: &Sandbox, program: &Path, is_static: bool) {
    let mut command = sandbox.plain_command(program);
    let run = sandbox.run(command.env("MALLARD_CONF", "confirm_conf:true"));
    let outcome = run.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let said = outcome.stderr_text();
    assert!(said.contains("confirm_conf:true"), "{said}");
    let file = std::fs::read(program).expect("the program is there");
    let interpreter = b"/lib64/ld-linux-x86-64.so.2";
    let dynamic = file.windows(interpreter.len()).any(|at| at == interpreter);
    assert_eq!(dynamic, !is_static, "{}", program.display());
}

fn archive() -> String {
    let path = installation().join("lib/libmallard.a");
    path.to_str().expect("the path is text").to_owned()
}

#[test]
fn a_cpp_program_carries_the_archive() {
    if !can_build(&["make", "objcopy", "c++"]) {
        return;
    }
    let sandbox = sandbox();
    let program = sandbox.path("server");
    let source = sandbox.write(
        "server.cpp",
        "#include <map>\n#include <string>\nint main() {\n  std::map<int, std::string> kept;\n  \
         for (int i = 0; i < 1000; i++) kept[i] = std::string(100, 'x');\n  return kept.empty();\n}\n",
    );
    let archive = archive();
    let whole = format!("-Wl,--whole-archive,{archive},--no-whole-archive");
    for (arguments, is_static) in [
        (&["-static", archive.as_str()][..], true),
        (&[whole.as_str(), "-pthread"], false),
    ] {
        let mut command = sandbox.plain_command("c++");
        command.arg(&source).args(arguments).arg("-o").arg(&program);
        output(&sandbox, &mut command);
        check_served(&sandbox, &program, is_static);
    }
}

#[test]
fn a_go_program_with_cgo_carries_the_archive() {
    if !can_build(&["make", "objcopy", "go", "cc"]) {
        return;
    }
    let sandbox = sandbox();
    sandbox.write("go.mod", "module server\n\ngo 1.19\n");
    sandbox.write(
        "main.go",
        "package main\n\n/*\n#include <stdlib.h>\n#include <string.h>\n\
         static void *block(size_t size) { void *p = malloc(size); return p ? memset(p, 1, size) : p; }\n\
         */\nimport \"C\"\n\nfunc main() {\n\tfor i := 0; i < 1000; i++ {\n\t\tC.free(C.block(4096))\n\t}\n}\n",
    );
    let archive = archive();
    let whole = format!(
        "-linkmode external -extldflags '-Wl,--whole-archive {archive} -Wl,--no-whole-archive'"
    );
    let full = "-linkmode external -extldflags \"-static\"";
    for (flags, arguments, is_static) in [
        (archive.as_str(), "", false),
        (archive.as_str(), full, true),
        ("", whole.as_str(), false),
    ] {
        let mut build = sandbox.plain_command("go");
        // The cache of the other test of Go: the C library's headers are compiled once.
        build
            .env("GOCACHE", target_dir().join("e2e/go-cache"))
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "1")
            .env("CGO_LDFLAGS", flags)
            .args(["build", "-o", "server", "-ldflags", arguments, "."]);
        output(&sandbox, &mut build);
        check_served(&sandbox, &sandbox.path("server"), is_static);
    }
}

/// rustc alone: the flags are those that the book sets in RUSTFLAGS.
#[test]
fn a_rust_program_carries_the_archive_for_both_its_sides() {
    if !can_build(&["make", "objcopy", "rustc", "cc"]) {
        return;
    }
    let sandbox = sandbox();
    let source = sandbox.write(
        "server.rs",
        "fn main() { let v: Vec<String> = (0..1000).map(|i| i.to_string()).collect(); \
         assert_eq!(v.len(), 1000); }\n",
    );
    let folder = installation().join("lib");
    for is_static in [false, true] {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2021", "-L"]);
        rustc.arg(format!("native={}", folder.display()));
        rustc.args(["-l", "static=mallard"]);
        if is_static {
            rustc.args(["-C", "target-feature=+crt-static"]);
            rustc.args(["--target", "x86_64-unknown-linux-gnu"]);
        }
        rustc.arg(&source).arg("-o").arg(sandbox.path("server"));
        output(&sandbox, &mut rustc);
        check_served(&sandbox, &sandbox.path("server"), is_static);
    }
}
