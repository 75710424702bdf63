//! Runs the lab for the tests in a folder of its own, without the caller's settings.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use tempfile::TempDir;

/// The exit codes of the command (`docs/versioning.md`).
pub const SUCCESS: i32 = 0;
pub const FAILED: i32 = 1;
pub const USAGE: i32 = 2;
pub const CANNOT_TELL: i32 = 3;
pub const NOT_EXECUTABLE: i32 = 126;
pub const NOT_FOUND: i32 = 127;
pub const INTERRUPTED: i32 = 130;

/// More than any step needs on a loaded machine: the test has failed then.
pub const LONGEST: Duration = Duration::from_secs(120);

/// What assert_cmd's commands lack.
pub trait Exits {
    /// Runs the command, which must end with this exit code; what it wrote to standard output and
    /// standard error.
    fn exits(&mut self, code: i32) -> (String, String);
}

impl Exits for Command {
    #[track_caller]
    fn exits(&mut self, code: i32) -> (String, String) {
        texts(self.assert().code(code).get_output())
    }
}

/// What a command wrote to standard output and standard error.
fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A folder to run the lab in.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The command `mallard` in this folder.
    pub fn mallard(&self, words: &[&str]) -> Command {
        Command::from_std(self.command(words))
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("mallard"));
        command.current_dir(self.path()).args(words);
        for (name, _) in std::env::vars() {
            if name.starts_with("MALLOC_") || name == "MALLARD_CONF" || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs the command `mallard` in a process group of its own, and acts once a line on standard
    /// error has this text, or the command can say no more; the exit code and both streams.
    pub fn act_at_line(
        &self,
        words: &[&str],
        text: &str,
        act: impl FnOnce(&Child),
    ) -> (Option<i32>, String, String) {
        let mut command = self.command(words);
        command.process_group(0).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            // The test may be over.
            stderr.split(b'\n').flatten().all(|line| {
                let line = String::from_utf8_lossy(&line).into_owned();
                send.send(line + "\n").is_ok()
            })
        });
        let stdout = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || std::io::read_to_string(stdout));

        let mut said = String::new();
        let begun = Instant::now();
        while let Ok(line) = lines.recv_timeout(LONGEST.saturating_sub(begun.elapsed())) {
            said += &line;
            if line.contains(text) {
                break;
            }
        }
        act(&child);
        said.extend(lines.iter());
        reader.join().unwrap();
        let stdout = stdout.join().unwrap().unwrap();
        (child.wait().unwrap().code(), stdout, said)
    }

    /// The text of a file here.
    pub fn text(&self, file: &str) -> String {
        let path = self.path().join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Compiles a C program or library.
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.compile_by("cc", &format!("{name}.c"), source, flags)
    }

    /// Compiles a C++ program.
    pub fn compile_cpp(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.compile_by("c++", &format!("{name}.cpp"), source, flags)
    }

    /// Compiles a Rust program.
    pub fn compile_rust(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.compile_by("rustc", &format!("{name}.rs"), source, flags)
    }

    /// Writes an executable script. Another process writes it: what a thread starts while this one
    /// had the file open would hold it open for a moment, and such a file cannot be executed.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&path);
        shell.write_stdin(text).assert().success();
        path
    }

    fn compile_by(&self, compiler: &str, file: &str, source: &str, flags: &[&str]) -> PathBuf {
        let file = self.path().join(file);
        fs::write(&file, source).unwrap();
        let program = file.with_extension("");
        let output = std::process::Command::new(compiler)
            .arg(&file)
            .arg("-o")
            .arg(&program)
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        program
    }
}

/// The words of a command as it is typed, none of which has a blank.
pub fn typed(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Runs a command and returns its exit code and both of its streams.
pub fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let (stdout, stderr) = texts(&output);
    (output.status.code(), stdout, stderr)
}

/// An allocator that can serve a server beside Mallard, for `-a`: glibc; or the jemalloc that the
/// server is linked with, if it calls functions that glibc does not have.
pub fn beside_mallard(server: &str) -> String {
    let output = std::process::Command::new("sh")
        .args([
            "-c",
            "file=$(command -v \"$0\") && cat \"$file\" && ldd \"$file\"",
        ])
        .arg(server)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let found = String::from_utf8_lossy(&output.stdout);
    let jemalloc = || {
        let library = found
            .lines()
            .find_map(|line| line.split_once("libjemalloc.so.2 => "));
        let library = library.expect("it is linked with jemalloc").1;
        format!("own-jemalloc={}", library.split(' ').next().unwrap())
    };
    if found.contains("\0mallocx\0") {
        jemalloc()
    } else {
        "glibc".to_owned()
    }
}

/// A small allocator that never frees, to be distinguishable from glibc's.
pub const BUMP: &str = r#"
    #include <errno.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>
    static char *memory;
    static size_t used;
    static const size_t all = (size_t)1 << 36;
    static void *take(size_t align, size_t size) {
        if (!memory) {
            char *fresh = mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            char *none = 0;
            if (!__atomic_compare_exchange_n(&memory, &none, fresh, 0, 5, 5)) munmap(fresh, all);
        }
        if (align < 16) align = 16;
        size_t need = size + align + 16;
        uintptr_t at = (uintptr_t)memory + __atomic_fetch_add(&used, (need + 15) & ~(size_t)15, 5);
        uintptr_t block = (at + 16 + align - 1) & ~(uintptr_t)(align - 1);
        ((size_t *)block)[-1] = size;
        return (void *)block;
    }
    void *malloc(size_t n) { return take(16, n); }
    void free(void *p) { (void)p; }
    size_t malloc_usable_size(void *p) { return p ? ((size_t *)p)[-1] : 0; }
    void *calloc(size_t n, size_t m) {
        size_t size;
        if (__builtin_mul_overflow(n, m, &size)) { errno = ENOMEM; return 0; }
        return take(16, size);
    }
    void *realloc(void *p, size_t n) {
        void *q = take(16, n);
        size_t old = malloc_usable_size(p);
        if (p) memcpy(q, p, old < n ? old : n);
        return q;
    }
    void *memalign(size_t a, size_t n) { return take(a, n); }
    void *aligned_alloc(size_t a, size_t n) { return take(a, n); }
    int posix_memalign(void **p, size_t a, size_t n) { *p = take(a, n); return 0; }
    void *valloc(size_t n) { return take(4096, n); }
    void *pvalloc(size_t n) { return take(4096, (n + 4095) & ~(size_t)4095); }
"#;

/// Compiler flags that make it a library.
pub const LIBRARY: [&str; 4] = ["-shared", "-fPIC", "-O1", "-fno-builtin"];

/// Waits until a child has ended, and does not reap it: its number stays its own.
pub fn wait_for_end(child: &std::process::Child) {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(child)), options).unwrap();
}
