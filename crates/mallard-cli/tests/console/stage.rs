//! Where the lines run: a folder with the files that the documentation names, in namespaces in
//! which Mallard is installed in `/usr/local` and the process 4711 runs.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::SECONDS_MAX;
use crate::lines::repository;

/// Everything that the chapters share: the installed Mallard, and the folder that each gets a copy
/// of.
pub struct Template {
    base: tempfile::TempDir,
}

/// The namespaces of a chapter.
pub struct Stage {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where the lines' scripts and output lie.
    folder: PathBuf,
    count: usize,
}

/// The profile of the process 4711 that also lies in `/tmp`.
const OF_4711: &str = "app.4711.0.f.heap";

/// What lines use of the tools that the user has installed: variables, and the values that they
/// have if they are not set, below the user's folder.
const TOOLS: [(&str, &str); 4] = [
    ("CARGO_HOME", ".cargo"),
    ("RUSTUP_HOME", ".rustup"),
    ("PYENV_ROOT", ".pyenv"),
    // Go builds its own tools when they are first used.
    ("GOCACHE", ".cache/go-build"),
];

fn of_user((variable, place): (&'static str, &str)) -> (&'static str, OsString) {
    let below_home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(place);
    let value = std::env::var_os(variable).unwrap_or_else(|| below_home().into());
    (variable, value)
}

/// The folder in which Cargo builds.
fn target() -> PathBuf {
    let mallard = assert_cmd::cargo::cargo_bin("mallard");
    mallard.ancestors().nth(2).unwrap().to_owned()
}

/// How a script ended, and what it wrote.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Template {
    /// Installs Mallard and makes the files; an error says why this machine cannot.
    pub fn new() -> Result<Template, String> {
        let base = tempfile::tempdir().unwrap();
        let template = Template { base };
        template.install();
        let work = template.path("template/work");
        fs::create_dir_all(&work).unwrap();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/console/files");
        for entry in fs::read_dir(files).unwrap() {
            let file = entry.unwrap().path();
            let mut text = fs::read_to_string(&file).unwrap();
            if file
                .extension()
                .is_some_and(|end| end == "c" || end == "cpp")
            {
                // `go build` takes all of C that is in its folder.
                text.insert_str(0, "//go:build ignore\n\n");
            }
            fs::write(work.join(file.file_name().unwrap()), text).unwrap();
        }
        // C++ as it is, and the sources that lines name by other paths.
        fs::copy(work.join("server.c"), work.join("server.cpp")).unwrap();
        fs::write(work.join("queries.sql"), "select * from t;\n").unwrap();
        fs::write(
            work.join("script.py"),
            "held = [bytes(99) for i in range(9)]\n",
        )
        .unwrap();
        let archive = template.path("installed/usr/local/lib/libmallard.a");
        fs::copy(archive, work.join("libmallard.a")).unwrap();
        for name in ["crates", "scripts"] {
            std::os::unix::fs::symlink(repository().join(name), work.join(name)).unwrap();
        }
        template.projects(&work);
        template.succeeds(
            Command::new("cc")
                .args([
                    "-O1",
                    "-g",
                    "-pthread",
                    "-fno-builtin",
                    "server.c",
                    "-o",
                    "server",
                ])
                .current_dir(&work),
        );
        let mut stage = template.open(&template.path("template"))?;
        let made = stage.run("bash prepare.sh", SECONDS_MAX);
        assert_eq!(made.code, 0, "prepare.sh: {}\n{}", made.stdout, made.stderr);
        Ok(template)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// Installs the command that is tested, stripped as any, and the library.
    fn install(&self) {
        for face in ["mallard-cli", "mallard-c"] {
            let mut make = Command::new("make");
            make.args(["-s", "-C"])
                .arg(repository().join("crates").join(face));
            make.args(["install", "PREFIX=/usr/local"]);
            make.arg(format!("DESTDIR={}", self.path("installed").display()));
            self.succeeds(self.environment(&mut make));
        }
    }

    /// A small program in Rust, and one in Go that calls C.
    fn projects(&self, work: &Path) {
        fs::create_dir(work.join("src")).unwrap();
        fs::write(work.join("src/main.rs"), "fn main() {}\n").unwrap();
        let package = "[package]\nname = \"server-in-rust\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(work.join("Cargo.toml"), package).unwrap();
        fs::write(work.join("go.mod"), "module server\n").unwrap();
        let go = "package main\n\n// #include <stdlib.h>\nimport \"C\"\n\nfunc main() { C.free(C.malloc(9)) }\n";
        fs::write(work.join("main.go"), go).unwrap();
    }

    /// What a line finds in its environment. `make` takes the command that is tested, and builds
    /// the library where the tests do.
    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for (name, _) in std::env::vars() {
            let is_ours = name.starts_with("MALLOC_") || name.starts_with("MALLARD_");
            // `cargo test` sets some that `cargo` in a line would read.
            if is_ours || name.starts_with("CARGO") || name.starts_with("RUST") {
                command.env_remove(name);
            }
        }
        command
            .env_remove("LD_PRELOAD")
            .env_remove("TMPDIR")
            .envs(TOOLS.map(of_user))
            .env("CARGO", of_user(("CARGO", ".cargo/bin/cargo")).1)
            .env("CARGO_NET_OFFLINE", "true")
            .env("HOME", self.path("home"))
            .env("COMMAND", assert_cmd::cargo::cargo_bin("mallard"))
            .env("TARGET", target().join("mallard-c"))
            .env("BUILD", self.path("build"))
            .env("BROWSER", "true")
            .env("PAGER", "cat")
    }

    #[track_caller]
    fn succeeds(&self, command: &mut Command) {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
    }

    /// Namespaces with a copy of the files.
    pub fn stage(&self, name: &str) -> Result<Stage, String> {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        let work = self.path("template/work");
        self.succeeds(Command::new("cp").arg("-a").arg(&work).arg(&folder));
        fs::create_dir(folder.join("tmp")).unwrap();
        fs::copy(work.join(OF_4711), folder.join("tmp").join(OF_4711)).unwrap();
        self.open(&folder)
    }

    fn open(&self, folder: &Path) -> Result<Stage, String> {
        fs::create_dir_all(self.path("home")).unwrap();
        fs::write(folder.join("in"), "").unwrap();
        let log = folder.join("stage.log");
        let mut command = Command::new("unshare");
        // A user's rights do, and root keeps those that perf events need.
        if !rustix::process::getuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command
            .args([
                "--mount",
                "--pid",
                "--net",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .arg("bash")
            .arg(self.path("template/work/stage.sh"))
            .arg(folder.join("work"))
            .arg(self.path("installed"))
            .arg(self.base.path())
            .arg(repository())
            .arg(target())
            .args(TOOLS.map(|tool| of_user(tool).1))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap());
        let mut child = self.environment(&mut command).spawn().unwrap();
        let (ask, answers) = (child.stdin.take(), child.stdout.take());
        let mut stage = Stage {
            child,
            ask: ask.unwrap(),
            answers: BufReader::new(answers.unwrap()),
            folder: folder.to_owned(),
            count: 0,
        };
        match stage.try_run("true", SECONDS_MAX) {
            Some(_) => Ok(stage),
            None => Err(fs::read_to_string(&log).unwrap().trim_end().to_owned()),
        }
    }
}

impl Stage {
    /// Whether the folder has this file.
    pub fn has(&self, file: &str) -> bool {
        self.folder.join("work").join(file).exists()
    }

    /// Runs a script for at most so many seconds; the code is 124 if that ended it.
    pub fn run(&mut self, script: &str, seconds: u32) -> Outcome {
        self.try_run(script, seconds).expect("the stage lasts")
    }

    fn try_run(&mut self, script: &str, seconds: u32) -> Option<Outcome> {
        self.count += 1;
        let file = self.folder.join(self.count.to_string());
        fs::write(&file, script).unwrap();
        writeln!(self.ask, "{} {seconds}", file.display()).ok()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).ok()?;
        let text = |end: &str| {
            let bytes = fs::read(file.with_extension(end)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Some(Outcome {
            code: answer.trim_end().parse().ok()?,
            stdout: text("out"),
            stderr: text("err"),
        })
    }
}

/// Ends all processes of the namespaces.
impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
