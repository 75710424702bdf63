//! Interpreters and virtual machines: many small objects, threads, `fork`, and native extensions
//! loaded with `dlopen`.

use std::path::Path;

use mallard_e2e::{Sandbox, target_dir};

use crate::{Case, Transcript, piece};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "python3",
            needs: &["python3"],
            served: &["python3"],
            own_allocator: &[],
            run: python3,
        },
        Case {
            name: "python3_memory_errors",
            needs: &["python3"],
            served: &["python3"],
            own_allocator: &[],
            run: python3_memory_errors,
        },
        Case {
            name: "perl",
            needs: &["perl"],
            served: &["perl"],
            own_allocator: &[],
            run: perl,
        },
        Case {
            name: "node",
            needs: &["node"],
            served: &["node"],
            own_allocator: &[],
            run: node,
        },
        Case {
            name: "java",
            needs: &["javac", "java"],
            served: &["java", "javac"],
            own_allocator: &[],
            run: java,
        },
        Case {
            name: "go_cgo",
            needs: &["go", "cc"],
            served: &["cgo-work"],
            own_allocator: &[],
            run: go_cgo,
        },
    ]
}

pub fn program(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name);
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn python3(sandbox: &Sandbox) -> Result<Transcript, String> {
    python3_script(sandbox, "work.py")
}

/// A refused request is an exception there.
fn python3_memory_errors(sandbox: &Sandbox) -> Result<Transcript, String> {
    python3_script(sandbox, "memory_errors.py")
}

fn python3_script(sandbox: &Sandbox, name: &str) -> Result<Transcript, String> {
    let script = sandbox.write(name, &program(name));
    // By default Python serves small objects from its own pools, and malloc never sees them.
    let output = sandbox.run(
        sandbox
            .command("python3")
            .env("PYTHONMALLOC", "malloc")
            .env("PYTHONHASHSEED", "0")
            .arg("-B")
            .arg(script),
    )?;
    Ok(vec![
        piece("the output", output.stdout),
        piece("the error output", output.stderr),
    ])
}

fn perl(sandbox: &Sandbox) -> Result<Transcript, String> {
    let script = sandbox.write("work.pl", &program("work.pl"));
    let output = sandbox.run(
        sandbox
            .command("perl")
            .env("PERL_HASH_SEED", "0")
            .arg(script),
    )?;
    Ok(vec![
        piece("the output", output.stdout),
        piece("the error output", output.stderr),
    ])
}

fn node(sandbox: &Sandbox) -> Result<Transcript, String> {
    let script = sandbox.write("work.js", &program("work.js"));
    let output = sandbox.run(sandbox.command("node").arg(script))?;
    Ok(vec![
        piece("the output", output.stdout),
        piece("the error output", output.stderr),
    ])
}

fn java(sandbox: &Sandbox) -> Result<Transcript, String> {
    let source = sandbox.write("Work.java", &program("Work.java"));
    sandbox.run(
        sandbox
            .command("javac")
            .args(["-J-Xmx512m", "-d", "."])
            .arg(source),
    )?;
    let output = sandbox.run(
        sandbox
            .command("java")
            .args("-Xmx512m -XX:-UsePerfData -cp . Work".split(' ')),
    )?;
    Ok(vec![
        piece("the class file", sandbox.read("Work.class")?),
        piece("the output", output.stdout),
    ])
}

fn go_cgo(sandbox: &Sandbox) -> Result<Transcript, String> {
    sandbox.write("main.go", &program("cgo.go"));
    sandbox.write("go.mod", "module cgo-work\n\ngo 1.19\n");
    // The build is not under test, and its cache saves half a minute from the second time on.
    let cache = target_dir().join("e2e/go-cache");
    let mut build = sandbox.plain_command("go");
    build
        .env("GOCACHE", &cache)
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "1");
    sandbox.run(build.args(["build", "-o", "cgo-work", "."]))?;
    let output = sandbox.run(
        sandbox
            .command(sandbox.path("cgo-work"))
            .env("GOMAXPROCS", "8"),
    )?;
    Ok(vec![
        piece("the output", output.stdout),
        piece("the error output", output.stderr),
    ])
}
