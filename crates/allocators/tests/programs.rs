//! Which programs can take a preloaded library, checked on real files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mallard_allocators::program::{Program, check};
use tempfile::TempDir;

/// A folder with a copy of a small system program for a test to modify.
struct Case {
    folder: TempDir,
    program: PathBuf,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/sh", &program).unwrap();
        Case { folder, program }
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        set_mode(&path, 0o755);
        path
    }

    /// Compiles an empty C program with extra arguments.
    fn compile(&self, arguments: &[&str]) -> PathBuf {
        let source = self.file("program.c", "int main(void) { return 0; }\n");
        let status = Command::new("cc")
            .args(arguments)
            .arg("-o")
            .arg(&self.program)
            .arg(source)
            .status();
        assert!(status.expect("the tests need a C compiler").success());
        self.program.clone()
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn checked(path: &Path) -> Result<Program, String> {
    check(path.to_str().unwrap()).map_err(|error| error.to_string())
}

/// The message that rejects a program, which must name it.
fn refusal(path: &Path) -> String {
    let message = checked(path).unwrap_err();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    message
}

#[test]
fn an_ordinary_program_is_accepted_by_its_path_and_by_its_name() {
    let case = Case::new();
    let program = checked(&case.program).unwrap();
    assert_eq!(
        (&program.path, &program.executable),
        (&case.program, &case.program)
    );
    assert!(check("sh").unwrap().path.ends_with("sh"));
}

#[test]
fn the_error_for_a_missing_program_says_where_it_was_looked_for() {
    let message = check("no-such-program-anywhere").unwrap_err().to_string();
    assert!(
        message.contains("no-such-program-anywhere") && message.contains("PATH"),
        "{message}"
    );
    let message = check("/nowhere/program").unwrap_err().to_string();
    assert!(
        message.contains("/nowhere/program") && message.contains("No such file"),
        "{message}"
    );
}

#[test]
fn the_error_for_a_file_in_this_folder_shows_the_path_to_use() {
    let message = check("Cargo.toml").unwrap_err().to_string();
    assert!(message.contains("./Cargo.toml"), "{message}");
}

#[test]
fn a_file_that_is_not_executable_and_a_folder_are_rejected() {
    let case = Case::new();
    set_mode(&case.program, 0o644);
    assert!(refusal(&case.program).contains("not executable"));
    assert!(refusal(case.folder.path()).contains("folder"));
}

#[test]
fn statically_linked_programs_are_rejected() {
    let case = Case::new();
    for arguments in [&["-static"][..], &["-static-pie"][..]] {
        let message = refusal(&case.compile(arguments));
        assert!(
            message.contains("statically linked"),
            "{arguments:?}: {message}"
        );
    }
    let dynamic = case.compile(&[]);
    assert!(
        checked(&dynamic).is_ok(),
        "the compiler's default is a dynamic program"
    );
}

#[test]
fn a_library_and_an_object_file_are_rejected_as_such() {
    let case = Case::new();
    assert!(refusal(&case.compile(&["-shared", "-fPIC"])).contains("a library"));
    let object = case.compile(&["-c"]);
    set_mode(&object, 0o755);
    assert!(refusal(&object).contains("object file"));
}

#[test]
fn a_32_bit_program_is_rejected() {
    let case = Case::new();
    let mut content = fs::read(&case.program).unwrap();
    content[4] = 1;
    fs::write(&case.program, content).unwrap();
    assert!(refusal(&case.program).contains("32-bit"));
}

#[test]
fn programs_that_run_with_other_privileges_are_rejected() {
    let case = Case::new();
    set_mode(&case.program, 0o4755);
    assert!(refusal(&case.program).contains("setuid"));
    set_mode(&case.program, 0o2755);
    assert!(refusal(&case.program).contains("setgid"));
    set_mode(&case.program, 0o755);
    assert!(checked(&case.program).is_ok());
}

#[test]
fn a_program_with_file_capabilities_is_rejected() {
    let case = Case::new();
    // Revision 2 of the format, with cap_net_raw permitted.
    let mut value = [0_u8; 20];
    value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    value[4..8].copy_from_slice(&(1_u32 << 13).to_le_bytes());
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&case.program, c"security.capability", &value, flags).is_err() {
        return mallard_testing::skipped("this user or this file system cannot set capabilities");
    }
    assert!(refusal(&case.program).contains("capabilities"));
}

#[test]
fn a_script_is_checked_by_its_interpreter() {
    let case = Case::new();
    let interpreter = case.program.display();
    for line in [
        format!("#!{interpreter}\n"),
        format!("#! {interpreter} -e\necho\n"),
    ] {
        let script = case.file("script", &line);
        let program = checked(&script).unwrap();
        assert_eq!(
            (&program.path, &program.executable),
            (&script, &case.program),
            "{line}"
        );
    }
}

#[test]
fn env_is_checked_by_the_program_that_it_starts() {
    let case = Case::new();
    for line in ["#!/usr/bin/env sh\n", "#!/usr/bin/env -S A=1 sh -e\n"] {
        let program = checked(&case.file("script", line)).unwrap();
        assert!(program.executable.ends_with("sh"), "{line}: {program:?}");
    }
    let missing = case.file("script", "#!/usr/bin/env no-such-interpreter\n");
    assert!(refusal(&missing).contains("no-such-interpreter"));
}

#[test]
fn a_script_with_a_missing_or_static_interpreter_is_rejected_with_its_name() {
    let case = Case::new();
    let missing = case.file("script", "#!/nowhere/interpreter\n");
    assert!(refusal(&missing).contains("/nowhere/interpreter"));
    let interpreter = case.compile(&["-static"]);
    let script = case.file("script", &format!("#!{}\n", interpreter.display()));
    let message = refusal(&script);
    assert!(message.contains("statically linked"), "{message}");
    assert!(message.contains(interpreter.to_str().unwrap()), "{message}");
}

#[test]
fn a_script_that_names_itself_is_rejected() {
    let case = Case::new();
    let script = case.folder.path().join("script");
    fs::write(&script, format!("#!{}\n", script.display())).unwrap();
    set_mode(&script, 0o755);
    assert!(refusal(&script).contains("too long"));
}

#[test]
fn a_text_without_an_interpreter_is_rejected() {
    let case = Case::new();
    assert!(refusal(&case.file("text", "echo hello\n")).contains("neither"));
    assert!(refusal(&case.file("empty", "")).contains("neither"));
    assert!(refusal(&case.file("nameless", "#!\n")).contains("names no interpreter"));
}
