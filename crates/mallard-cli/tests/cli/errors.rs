//! Mistakes are reported before anything runs, with the input and the valid choices.

use crate::place::*;

/// Runs a command that must fail with `code`, and returns its message.
#[track_caller]
fn refusal(place: &Place, words: &[&str], code: i32) -> String {
    let (ended, stdout, stderr) = outcome(&mut place.mallard(words));
    assert_eq!(ended, Some(code), "{words:?}: {stdout}{stderr}");
    assert!(!place.path().join("mallard-results").exists() || words.contains(&"-a"));
    assert!(stderr.starts_with("error: "), "{stderr}");
    stderr
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[test]
fn an_unknown_allocator_is_answered_with_the_nearest() {
    let place = Place::new();
    let expected = ["`jemaloc`", "did you mean `jemalloc`?", "glibc, mallard"];
    says(
        &refusal(&place, &["bench", "-a", "glibc,jemaloc"], 2),
        &expected,
    );
    says(
        &refusal(&place, &["compare", "-a", "jemaloc", "--", "true"], 2),
        &expected,
    );
    says(
        &refusal(&place, &["run", "-a", "jemaloc", "--", "true"], 2),
        &expected,
    );
}

#[test]
fn every_command_rejects_a_library_that_cannot_be_added() {
    let place = Place::new();
    for rest in [
        &["bench"][..],
        &["compare", "true"],
        &["run", "true"],
        &["allocators"],
    ] {
        let added = ["--add", "mine=/nowhere/lib.so"];
        let words = [&rest[..1], &added, &rest[1..]].concat();
        says(
            &refusal(&place, &words, 2),
            &["/nowhere/lib.so", "No such file"],
        );
    }
    let hint = refusal(&place, &["bench", "--add", "glibc"], 2);
    says(&hint, &["-a glibc"]);
}

#[test]
fn a_missing_or_unusable_program_has_the_shell_s_exit_code() {
    let place = Place::new();
    for command in ["compare", "run"] {
        let text = refusal(&place, &[command, "--", "no-such-program"], 127);
        says(&text, &["`no-such-program`", "PATH"]);
        says(
            &refusal(&place, &[command, "--", "/etc/passwd"], 126),
            &["not executable"],
        );
        says(&refusal(&place, &[command, "--", "/"], 126), &["folder"]);
    }
}

#[test]
fn a_folder_that_is_not_writable_is_rejected_before_anything_runs() {
    let place = Place::new();
    std::fs::write(place.path().join("file"), "").unwrap();
    for words in [
        &["bench", "-o", "file/results"][..],
        &["compare", "-o", "file/results", "--", "true"],
        &["bench", "-o", "/proc/results"],
    ] {
        let text = refusal(&place, words, 1);
        says(&text, &["cannot write results", "--output"]);
    }
}

#[test]
fn numbers_out_of_range_are_rejected_with_the_range() {
    let place = Place::new();
    for (words, expected) in [
        (&["bench", "-t", "0"][..], "1..=4096"),
        (&["bench", "-r", "0"], "1..=10000"),
        (&["bench", "--cpus", "0-"], "0-3,8"),
        (&["bench", "--count", "many"], "500k"),
        (&["bench", "--count", "map=0"], "500k"),
        (&["bench", "--size", "9-8"], "16-4096"),
    ] {
        says(&refusal(&place, words, 2), &[expected]);
    }
    says(
        &refusal(&place, &["bench", "--cpus", "8000"], 2),
        &["CPU 8000", "may run on"],
    );
    says(
        &refusal(&place, &["bench", "--size", "16-32"], 2),
        &["one size", "batch=16-32"],
    );
}

#[test]
fn every_command_takes_plain_seconds_and_says_what_a_time_is() {
    let place = Place::new();
    let program = ["--", "no-such-program"];
    for (command, flag) in [
        (&["baseline", "check", "nothing"][..], "--budget"),
        (&["baseline", "ab"], "--budget"),
        (&["tune"], "--budget"),
        (&["tune"], "--timeout"),
        (&["diagnose"], "--for"),
        (&["record"], "--for"),
        (&["compare"], "--timeout"),
    ] {
        let given = |time| [command, &[flag, time], &program].concat();
        let text = refusal(&place, &given("soon"), 2);
        says(&text, &[flag, "soon", "seconds such as 90", "1m"]);
        for time in ["90", "45.5", "1m 30s"] {
            let (_, _, stderr) = outcome(&mut place.mallard(&given(time)));
            assert!(
                !stderr.contains(flag),
                "{command:?} {flag} {time}: {stderr}"
            );
        }
    }
}

#[test]
fn standard_input_from_a_missing_file_is_rejected() {
    let place = Place::new();
    let text = refusal(&place, &["compare", "--input", "nothing", "--", "cat"], 1);
    says(&text, &["nothing", "No such file"]);
}

#[test]
fn an_option_string_for_an_allocator_that_reads_none_is_rejected() {
    let place = Place::new();
    for words in [
        &["run", "-a", "glibc", "--conf", "narenas:1", "--", "true"][..],
        &[
            "compare",
            "-a",
            "glibc",
            "--conf",
            "narenas:1",
            "--",
            "true",
        ],
        &["compare", "--variant", "x=glibc:narenas:1", "--", "true"],
    ] {
        says(&refusal(&place, words, 2), &["glibc", "narenas:1", "reads"]);
    }
}

#[test]
fn a_mistake_in_an_option_string_is_refused_before_anything_runs() {
    let place = Place::new();
    for (words, nearest) in [
        (
            &["compare", "-a", "glibc,mallard", "--conf", "dirty_decay:0"][..],
            "dirty_decay_ms",
        ),
        (&["run", "--conf", "narena:1"], "narenas"),
        (
            &["compare", "--variant", "x=mallard:narenas:0x"],
            "valid: default or 1",
        ),
    ] {
        let words = [words, &["--", "touch", "ran"]].concat();
        says(
            &refusal(&place, &words, 2),
            &[nearest, words[words.len() - 4]],
        );
    }
    assert!(!place.path().join("ran").exists(), "the program ran");
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let place = Place::new();
    for words in [&["allocators"][..], &["bench", "--suite", "full", "--list"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ready = place.mallard(words);
        let mut command = std::process::Command::new(ready.get_program());
        let variables = ready.get_envs();
        let set = variables.filter_map(|(name, value)| Some((name, value?)));
        command.args(words).envs(set).current_dir(place.path());
        command.stdout(writer).stderr(std::process::Stdio::piped());
        let outcome = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.status.success(), "{words:?}: {stderr}");
    }
}

/// A library or a program for another system is refused in one line that says what it is for, what
/// is here, and what to do: the loader would pass it over, or answer in words of its own.
#[test]
fn a_library_for_another_system_is_refused_in_one_line() {
    let place = Place::new();
    for (library, says_what) in [
        (
            for_another_machine(&place, &allocator(&place)),
            OTHER_MACHINE,
        ),
        (of_a_newer_c_library(&place), NEWER_C_LIBRARY),
        (
            of_musl(&place),
            "is linked for musl, and the programs here use glibc",
        ),
    ] {
        let library = library.display().to_string();
        let spec = format!("mine={library}");
        for words in [
            &["run", "--add", &spec, "-a", "mine", "--", "true"][..],
            &["compare", "--add", &spec, "--", "true"],
            &["bench", "--add", &spec],
            &["record", "--add", &spec, "-a", "mine", "--", "true"],
            &["tune", "--add", &spec, "--", "true"],
        ] {
            let text = refusal(&place, words, USAGE);
            says(&text, &[&library, says_what, "take "]);
            is_one_line(&text);
        }
        for words in [&["run", "--", "true"][..], &["profile", "--", "true"]] {
            let mut command = place.mallard(words);
            let (_, text) = command.env("MALLARD_LIBRARY", &library).exits(FAILED);
            says(&text, &["MALLARD_LIBRARY", &library, says_what]);
            is_one_line(&text);
        }
    }
}

#[test]
fn a_program_for_another_system_is_refused_in_one_line() {
    let place = Place::new();
    let loader = |name: &str, loader: &str| {
        let flag = format!("-Wl,--dynamic-linker={loader}");
        place.compile(name, "int main(void) { return 0; }", &[&flag])
    };
    let here = place.compile("here", "int main(void) { return 0; }", &[]);
    let script = |name: &str, program: &std::path::Path| {
        place.script(name, &format!("#!{}\n", program.display()))
    };
    let musl = loader("musl", "/lib/ld-musl-x86_64.so.1");
    let other = for_another_machine(&place, &here);
    let newer = newer_program(&place);
    for (program, says_what) in [
        (script("of-musl", &musl), "its C library is musl"),
        (
            musl,
            "its C library is musl (its loader is /lib/ld-musl-x86_64.so.1)",
        ),
        (
            loader("alone", "/nowhere/ld-linux.so.9"),
            "its loader /nowhere/ld-linux.so.9",
        ),
        (script("of-another", &other), OTHER_MACHINE),
        (other, OTHER_MACHINE),
        (newer, NEWER_C_LIBRARY),
    ] {
        let program = program.display().to_string();
        for command in ["run", "compare", "record", "profile", "tune", "diagnose"] {
            // Where musl is installed, such a program runs, and is watched from outside.
            if command == "diagnose" && says_what.contains("musl") {
                continue;
            }
            let text = refusal(&place, &[command, "--", &program], NOT_EXECUTABLE);
            says(&text, &[&program, says_what]);
            is_one_line(&text);
        }
        if says_what == OTHER_MACHINE && has_emulator() {
            mallard_testing::skipped(format_args!(
                "as-is of {program}: this system has an emulator for riscv64"
            ));
        } else if !says_what.contains("musl") {
            let words = ["compare", "-a", "as-is", "--", &program];
            says(&refusal(&place, &words, NOT_EXECUTABLE), &[says_what]);
        }
    }
}

const OTHER_MACHINE: &str = "is for riscv64, and this machine is ";
const NEWER_C_LIBRARY: &str = "needs glibc 2.999 (`strange`), and this system has 2.";

/// Whether the kernel runs programs for RISC-V by an emulator.
fn has_emulator() -> bool {
    let entries = std::fs::read_dir("/proc/sys/fs/binfmt_misc");
    let mut entries = entries.into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().contains("riscv64"))
}

#[track_caller]
fn is_one_line(text: &str) {
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// A library with malloc and free.
fn allocator(place: &Place) -> std::path::PathBuf {
    place.compile("mine.so", BUMP, &LIBRARY)
}

/// A copy of an ELF file whose header says that it is for RISC-V.
fn for_another_machine(place: &Place, file: &std::path::Path) -> std::path::PathBuf {
    const RISCV: u16 = 243;
    let copy = place.path().join("other.so");
    let mut content = std::fs::read(file).unwrap();
    content[18..20].copy_from_slice(&RISCV.to_le_bytes());
    std::fs::write(&copy, content).unwrap();
    let permissions = std::fs::metadata(file).unwrap().permissions();
    std::fs::set_permissions(&copy, permissions).unwrap();
    copy
}

/// What stands for a part of a C library that is newer than any: it has one function more.
fn newer_c_library(place: &Place) -> std::path::PathBuf {
    std::fs::write(place.path().join("versions"), "GLIBC_2.999 { strange; };").unwrap();
    let versions = format!("-Wl,--version-script={}/versions", place.path().display());
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libm.so.6", &versions];
    place.compile("newer-libm.so", "void strange(void) {}", &flags)
}

fn of_a_newer_c_library(place: &Place) -> std::path::PathBuf {
    let part = newer_c_library(place);
    let source = format!("void strange(void); void touch(void) {{ strange(); }} {BUMP}");
    let part = part.to_str().unwrap();
    place.compile("newer.so", &source, &[&LIBRARY[..], &[part]].concat())
}

fn newer_program(place: &Place) -> std::path::PathBuf {
    let part = newer_c_library(place);
    let source = "void strange(void); int main(void) { strange(); return 0; }";
    let flags = ["-Wl,--allow-shlib-undefined", part.to_str().unwrap()];
    place.compile("newer", source, &flags)
}

fn of_musl(place: &Place) -> std::path::PathBuf {
    let flags = ["-shared", "-nostdlib", "-Wl,-soname,libc.musl-x86_64.so.1"];
    let libc = place.compile("musl-libc.so", "void strange(void) {}", &flags);
    let flags = ["-nostdlib", "-Wl,--no-as-needed", libc.to_str().unwrap()];
    place.compile("of-musl.so", BUMP, &[&LIBRARY[..], &flags].concat())
}
