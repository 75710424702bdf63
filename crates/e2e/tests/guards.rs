//! Guarded blocks: what is planted is reported with the stacks that allocated and freed the block,
//! in each language, and everything else works as without them.

use std::process::Command;

use mallard_e2e::compiler::Source;
use mallard_e2e::process::Outcome;
use mallard_e2e::{Allocator, Library, Sandbox, target_dir};
use mallard_testing::{lacks, skipped};

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// Every block that can be is guarded.
const EVERY: &str = "guard_sample:1,guard_rate:0";
/// Many are, but not all of a runtime's own.
const MANY: &str = "guard_sample:16384,guard_rate:0";

fn sandbox() -> Sandbox<'static> {
    Sandbox::temporary(Allocator::Preload(Library::release()))
}

/// Runs a program on the library, with these options.
fn run(sandbox: &Sandbox<'_>, command: &mut Command, options: &str) -> Outcome {
    sandbox
        .run_to_any_end(command.env("MALLOC_CONF", options))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// What the report must say, and how the process ends.
struct Expected {
    title: &'static str,
    signal: i32,
    is_freed: bool,
}

const fn expected(title: &'static str, signal: i32, is_freed: bool) -> Expected {
    Expected {
        title,
        signal,
        is_freed,
    }
}

/// The planted misuses of every language.
fn planted() -> [(&'static str, Expected); 4] {
    [
        ("overflow", expected("overflow (write) at", SIGSEGV, false)),
        ("write", expected("write after free at", SIGSEGV, true)),
        ("read", expected("read after free at", SIGSEGV, true)),
        ("double", expected("double free at", SIGABRT, true)),
    ]
}

/// The lines of the report below the one that begins like this: the frames of a stack.
fn frames<'a>(report: &'a str, below: &str) -> Vec<&'a str> {
    report
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(below))
        .skip(1)
        .take_while(|line| line.starts_with("    "))
        .collect()
}

/// Checks a report; `module` is a part of the name of the file that has the code.
fn check(outcome: &Outcome, expected: &Expected, module: &str) {
    let report = outcome.stderr_text();
    let account = outcome.account();
    assert!(
        report.contains(&format!("mallard: {}", expected.title)),
        "{}: {account}",
        expected.title
    );
    assert_eq!(outcome.signal(), Some(expected.signal), "{account}");
    let mut stacks = vec!["now, in thread", "allocated by thread"];
    if expected.is_freed {
        stacks.push("freed by thread");
    }
    for stack in stacks {
        let frames = frames(&report, stack);
        assert!(
            frames.iter().any(|frame| frame.contains(module)),
            "{stack}: no frame in {module}: {account}"
        );
    }
    assert_eq!(
        report.contains("freed by thread"),
        expected.is_freed,
        "{account}"
    );
    assert!(!outcome.stdout_text().contains("went on"), "{account}");
}

fn c_program() -> std::path::PathBuf {
    Source::new("guards.c")
        .flags(&["-O1", "-Wno-use-after-free", "-Wno-nonnull"])
        .link(&Library::release().shared)
        .compile()
}

#[test]
fn misuse_in_c_is_reported_with_its_stacks() {
    let (sandbox, program) = (sandbox(), c_program());
    let more = [
        (
            "slack",
            expected("overflow (found by the free) at", SIGABRT, false),
        ),
        (
            "underflow",
            expected("underflow (write) at", SIGSEGV, false),
        ),
        ("inner", expected("invalid free at", SIGABRT, false)),
    ];
    for (how, expected) in planted().iter().chain(&more) {
        let outcome = run(&sandbox, sandbox.command(&program).arg(how), EVERY);
        check(&outcome, expected, "guards-c");
        // The program's own address is named.
        let block = outcome.stdout_text();
        assert!(outcome.stderr_text().contains(block.trim()), "{how}");
    }
}

#[test]
fn guards_are_switched_on_from_the_start_too() {
    let (sandbox, program) = (sandbox(), c_program());
    for (how, expected) in &planted() {
        let mut command = sandbox.command(&program);
        let outcome = run(&sandbox, command.args([how, "environment"]), MANY);
        check(&outcome, expected, "guards-c");
    }
}

#[test]
fn with_the_action_report_the_program_goes_on() {
    let (sandbox, program) = (sandbox(), c_program());
    for (how, expected) in &planted() {
        let options = format!("{EVERY},guard_action:report");
        let outcome = run(&sandbox, sandbox.command(&program).arg(how), &options);
        let report = outcome.stderr_text();
        assert!(report.contains(expected.title), "{}", outcome.account());
        assert_eq!(report.matches("mallard: ").count(), 1, "{report}");
        assert!(
            outcome.stdout_text().contains("went on"),
            "{how}: {}",
            outcome.account()
        );
    }
}

#[test]
fn a_fault_elsewhere_ends_the_program_as_without_guards() {
    let (sandbox, program) = (sandbox(), c_program());
    let outcome = run(&sandbox, sandbox.command(&program).arg("foreign"), EVERY);
    assert_eq!(outcome.signal(), Some(SIGSEGV), "{}", outcome.account());
    assert_eq!(outcome.stderr_text(), "");
}

#[test]
fn guarded_blocks_work_in_all_calls_within_a_mib() {
    let (sandbox, program) = (sandbox(), c_program());
    for options in [
        EVERY,
        MANY,
        "guard_sample:4096,guard_rate:0,prof:true,prof_prefix:,lg_prof_sample:10",
    ] {
        let outcome = run(&sandbox, sandbox.command(&program).arg("use"), options);
        assert!(
            outcome.stdout_text().contains("all is well"),
            "{options}: {}",
            outcome.account()
        );
        assert_eq!(outcome.stderr_text(), "", "{options}");
    }
}

#[test]
fn misuse_in_cpp_is_reported_with_its_stacks() {
    let sandbox = sandbox();
    let program = Source::new("guards.cpp")
        .flags(&["-O1", "-Wno-use-after-free"])
        .link(&Library::release().shared)
        .compile();
    for (how, expected) in &planted() {
        let outcome = run(&sandbox, sandbox.command(&program).arg(how), EVERY);
        check(&outcome, expected, "guards-cpp");
    }
}

fn source(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    std::fs::read_to_string(folder.join(name)).expect("the program's source is there")
}

#[test]
fn misuse_in_rust_is_reported_with_its_stacks() {
    if lacks(&["rustc"]) {
        return;
    }
    let sandbox = sandbox();
    let source = sandbox.write("guards.rs", &source("guards.rs"));
    let mut compiler = Command::new("rustc");
    let program = sandbox.path("guards-rust");
    let built = compiler
        .args(["--edition", "2024", "-O", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "rustc builds it"
    );
    for (how, expected) in &planted() {
        let outcome = run(&sandbox, sandbox.command(&program).arg(how), EVERY);
        check(&outcome, expected, "guards-rust");
    }
}

#[test]
fn misuse_below_python_is_reported_with_its_stacks() {
    if lacks(&["python3"]) {
        return;
    }
    let sandbox = sandbox();
    let script = sandbox.write("guards.py", &source("guards.py"));
    for (how, expected) in &planted() {
        let mut command = sandbox.command("python3");
        let outcome = run(
            &sandbox,
            command.arg(&script).arg(how),
            "guard_rate:0,guard_sample:0",
        );
        check(&outcome, expected, "ctypes");
    }
}

/// Go's runtime has handlers of its own, which pass faults of C code on to those before.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn misuse_below_go_ends_the_program() {
    if lacks(&["go", "cc"]) {
        return;
    }
    let sandbox = sandbox();
    sandbox.write("main.go", &source("guards.go"));
    sandbox.write("go.mod", "module guards\n\ngo 1.19\n");
    let mut build = sandbox.plain_command("go");
    build
        .env("GOCACHE", target_dir().join("e2e/go-cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "1")
        .args(["build", "-o", "guards-go", "."]);
    sandbox.run(&mut build).expect("go builds it");
    for (how, expected) in &planted() {
        let mut command = sandbox.command(sandbox.path("guards-go"));
        let outcome = run(&sandbox, command.arg(how), "guard_rate:0");
        let account = outcome.account();
        assert!(!outcome.stdout_text().contains("went on"), "{account}");
        assert!(!outcome.status.success(), "{account}");
        if expected.signal == SIGABRT {
            assert!(outcome.stderr_text().contains(expected.title), "{account}");
        }
        // Guards that are on from the start have the handler that Go's passes faults on to.
        let mut command = sandbox.command(sandbox.path("guards-go"));
        command.arg(how).env("FROM_START", "1");
        let outcome = run(&sandbox, &mut command, EVERY);
        let (account, report) = (outcome.account(), outcome.stderr_text());
        assert!(report.contains(expected.title), "{how}: {account}");
        assert!(!outcome.stdout_text().contains("went on"), "{account}");
        for stack in ["now, in thread", "allocated by thread"] {
            let frames = frames(&report, stack);
            let is_own = |frame: &&str| frame.contains("guards-go");
            assert!(frames.iter().any(is_own), "{stack}: {account}");
        }
    }
}

#[test]
fn reports_are_appended_to_a_file_as_json() {
    let (sandbox, program) = (sandbox(), c_program());
    let file = sandbox.path("reports");
    let options = format!("{EVERY},report_file:{}", file.display());
    for how in ["write", "double"] {
        run(&sandbox, sandbox.command(&program).arg(how), &options);
    }
    let text = std::fs::read_to_string(&file).expect("the reports are there");
    let reports: Vec<serde_json::Value> = (text.lines())
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let kinds: Vec<&str> = (reports.iter())
        .filter_map(|r| r["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["write after free", "double free"]);
    for report in &reports {
        assert_eq!(report["block"]["size"], 40);
        for event in ["now", "allocated", "freed"] {
            let stack = report[event]["stack"].as_array().expect("a stack");
            let is_own = |frame: &serde_json::Value| {
                let file = frame["file"].as_str().unwrap_or_default();
                file.contains("guards-c") && frame["offset"].is_u64()
            };
            assert!(stack.iter().any(is_own), "{event}: {text}");
        }
    }
}

/// Java's handlers come later than ours and win.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn misuse_below_java_ends_the_program() {
    if lacks(&["javac", "java"]) {
        return;
    }
    let sandbox = sandbox();
    let source = sandbox.write("Guards.java", &source("Guards.java"));
    let mut compiler = sandbox.plain_command("javac");
    if sandbox
        .run(
            compiler
                .args(["-J-Xmx512m", "-nowarn", "-d", "."])
                .arg(source),
        )
        .is_err()
    {
        return skipped("this Java has no sun.misc.Unsafe");
    }
    let mut command = sandbox.command("java");
    command.args("-Xmx256m -XX:-UsePerfData -XX:-CreateCoredumpOnCrash -cp . Guards".split(' '));
    // Few enough that the runtime's own blocks leave slots.
    let outcome = run(&sandbox, &mut command, "guard_sample:1048576,guard_rate:0");
    let account = outcome.account();
    assert!(!outcome.stdout_text().contains("went on"), "{account}");
    assert!(!outcome.status.success(), "{account}");
}
