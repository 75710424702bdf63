//! Which programs are installed, and which packages provide the others.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A program and the Debian package that provides it.
#[derive(Debug)]
pub struct Needed {
    pub name: &'static str,
    pub package: &'static str,
}

/// Folders with servers, which are not in every user's `PATH`.
const BESIDE_PATH: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// The path of a program, if it is installed.
pub fn locate(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path);
    let folders = listed.chain(BESIDE_PATH.iter().map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Like [`locate`], but returns the bare name if the program is missing, so that the error on
/// starting it has the name.
pub fn path_or_name(name: &str) -> PathBuf {
    locate(name).unwrap_or_else(|| name.into())
}

/// One line that names the missing ones of these programs; none if all are installed.
pub fn missing(needed: &[Needed]) -> Option<String> {
    let missing: Vec<&Needed> = needed
        .iter()
        .filter(|needed| locate(needed.name).is_none())
        .collect();
    let names: Vec<&str> = missing.iter().map(|needed| needed.name).collect();
    let packages: Vec<&str> = missing.iter().map(|needed| needed.package).collect();
    let verb = match names.len() {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    Some(format!(
        "{} {verb} not installed (apt-get install {}, or scripts/setup-bench.sh)",
        names.join(" and "),
        packages.join(" ")
    ))
}

/// The interpreter itself. `PATH` may lead to the script of a version manager, whose cost would be
/// measured too.
pub fn python() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let found = || {
        let reported = answer("python3", &["-c", "import sys; print(sys.executable)"])?;
        Some(PathBuf::from(reported)).filter(|path| path.is_file())
    };
    let python = FOUND.get_or_init(|| found().unwrap_or_else(|| path_or_name("python3")));
    python.clone()
}

/// The actual compiler, which `g++` starts.
pub fn cc1plus() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let found = || answer("g++", &["-print-prog-name=cc1plus"]).map(PathBuf::from);
    let compiler = FOUND.get_or_init(|| found().unwrap_or_else(|| "cc1plus".into()));
    compiler.clone()
}

/// The one line that a program prints.
fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = std::process::Command::new(path_or_name(program));
    command.args(arguments.iter().map(OsStr::new));
    let output = command.stdin(std::process::Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: Needed = Needed {
        name: "sh",
        package: "dash",
    };
    const NONE: Needed = Needed {
        name: "no-such-program",
        package: "its-package",
    };

    #[test]
    fn a_missing_program_is_reported_with_its_package() {
        assert_eq!(missing(&[SHELL]), None);
        let line = missing(&[SHELL, NONE]).unwrap();
        assert!(
            line.starts_with("no-such-program is not installed") && line.contains("its-package"),
            "{line}"
        );
        assert!(!line.contains("dash"), "{line}");
    }
}
