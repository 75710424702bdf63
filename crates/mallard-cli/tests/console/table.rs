//! Which console lines do not just run and succeed, and why. A row is for all lines that contain
//! its text, and the first row that does counts.

/// How a line is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It runs, and ends with one of these exit codes.
    Ends(&'static [i32]),
    /// It runs until it is stopped.
    Lasts,
    /// It draws on a terminal until it is stopped.
    Draws,
    /// It takes too long or starts what a test cannot: this command does the rest of it.
    Checked(&'static str),
    /// It cannot run in a test, for this reason.
    NotRun(&'static str),
}

use Way::{Checked, Draws, Ends, Lasts, NotRun};

/// Why a line with files of a release does not run.
const PACKAGES: &str = "scripts/release-test.sh installs the packages";
/// Why a build for another system does not run.
const CROSS: &str = "CI builds for other systems by scripts/musl.sh, aarch64.sh and release.sh";

pub const WAYS: &[(&str, Way)] = &[
    // What cannot run here.
    (
        "cargo run --release -- bench",
        NotRun("builds the lab for minutes"),
    ),
    ("cargo test", NotRun("is all tests")),
    (
        "JEMALLOC_OVERRIDE=",
        NotRun("tests/jemalloc_clients runs it, with examples/rust-jemalloc-ctl"),
    ),
    ("apt ", NotRun(PACKAGES)),
    ("dnf ", NotRun(PACKAGES)),
    ("apk ", NotRun(PACKAGES)),
    ("pip ", NotRun(PACKAGES)),
    (
        "cargo install",
        NotRun("scripts/packaged.sh installs it so, from its package"),
    ),
    ("tar --zstd", NotRun(PACKAGES)),
    ("ldconfig", NotRun(PACKAGES)),
    ("mallard-run", NotRun(PACKAGES)),
    ("LD_PRELOAD=libmallard.so.0", NotRun(PACKAGES)),
    ("cross=$(scripts/setup-cross.sh", NotRun(CROSS)),
    ("cargo build --release", NotRun(CROSS)),
    ("scripts/setup-cross.sh", NotRun(CROSS)),
    ("scripts/bench-musl.py", NotRun(CROSS)),
    ("docker", NotRun("needs docker")),
    ("bpftrace", NotRun("needs a kernel with uprobes")),
    // What would run for long, or needs systemd.
    (
        "systemctl enable --now mallard-export@www-data",
        Checked("systemctl --root=/ enable mallard-export@www-data"),
    ),
    (
        "systemctl --user enable --now mallard-export",
        Checked("systemctl --global --root=/ enable mallard-export"),
    ),
    (
        "mallard bench full",
        Checked("mallard bench full --dry-run"),
    ),
    (
        "mallard bench scale",
        Checked("mallard bench scale -a glibc,mallard --dry-run"),
    ),
    (
        "mallard bench live crowd",
        Checked("mallard bench live crowd --quick --dry-run"),
    ),
    (
        "mallard bench misuse -a glibc,mallard --variant",
        Checked(
            "mallard bench misuse -a mallard --variant junk=mallard:junk:true --seeds 0 double-free",
        ),
    ),
    (
        "mallard bench misuse",
        Checked("mallard bench misuse --dry-run"),
    ),
    (
        "mallard soak --hours 6",
        Checked("mallard soak --seconds 2 --size 4"),
    ),
    (
        "mallard soak --seconds 60 -a jemalloc",
        Checked("mallard soak --seconds 2 --size 4 -a mallard"),
    ),
    (
        "mallard profile --for 30s 4711",
        Checked("mallard profile --for 1s 4711"),
    ),
    (
        "MALLARD_BUILD_CONF=",
        Checked("make -n -C crates/mallard-c"),
    ),
    // Servers.
    ("mallard export", Lasts),
    ("-- redis-server", Lasts),
    (
        "LD_PRELOAD=/usr/local/lib/libmallard.so redis-server",
        Lasts,
    ),
    ("mallard redis-server", Lasts),
    ("pprof -http", Lasts),
    ("mallard top --", Ends(&[0])),
    ("mallard top", Draws),
    // What says with its exit code what it found.
    ("mallard baseline check", Ends(&[0, 1, 3])),
    ("mallard baseline ab", Ends(&[0, 1, 3])),
    ("mallard tune", Ends(&[0, 3])),
    ("mallard diagnose", Ends(&[0, 3])),
    ("--fail-if-slower", Ends(&[0, 1, 3])),
    ("mallard leak -- ./test", Ends(&[1])),
    ("-- ./names", Ends(&[1])),
    (
        "mallard doctor --for 5s",
        Checked("mallard doctor --for 1s -- ./server"),
    ),
    ("mallard leak -- sh -c ./children", Ends(&[1])),
    ("grep -c libmallard", Ends(&[0, 1])),
    ("ldd ./server | grep", Ends(&[0, 1])),
    ("nm -D ./server | grep", Ends(&[0, 1])),
];

/// The files of defaults of lines that those of `mallard.toml` do not fit, in `files/`.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("--service", "services.toml"),
    ("--start ", "services.toml"),
    ("mallard bench full", "suite.toml"),
    ("mallard bench scale", "suite.toml"),
    ("mallard bench live", "suite.toml"),
    ("mallard bench larson", "suite.toml"),
    ("mallard bench misuse", "misuse.toml"),
];

/// What must have happened before a line, where no earlier line of its chapter did it.
pub const BEFORE: &[(&str, &str)] = &[
    (
        "before mallard-results/latest",
        "mallard bench pairs -t 1 -a glibc,mallard",
    ),
    (
        "redis-cli",
        "redis-cli ping || { redis-server --save '' --daemonize yes; until redis-cli ping; do sleep 0.1; done; redis-cli save; }",
    ),
    (
        "http://127.0.0.1:9700/",
        "mallard export >../export.log 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/9700) 2>/dev/null; do sleep 0.1; done",
    ),
];

/// Lines whose output is not compared with what the chapter shows, and why.
pub const FREE_OUTPUT: &[(&str, &str)] = &[
    ("mallard top", "it draws"),
    ("ulimit -l", "a machine may have no limit"),
    (
        "mallard tune",
        "the budget of the test is too small for an answer",
    ),
];

/// Files that `files/prepare.sh` cannot make everywhere, and why.
pub const OPTIONAL_FILES: &[(&str, &str)] = &[("core.4711", "gcore may not read a process here")];

/// Files of the kernel that only some machines have.
pub const KERNEL_FILES: &[&str] = &[
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/cpu.max",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

/// Programs of lines that `scripts/setup-tests.sh` installs.
pub const PROGRAMS: &[&str] = &[
    "redis-server",
    "redis-cli",
    "nginx",
    "wrk",
    "gdb",
    "go",
    "jeprof",
    "jq",
    "curl",
    "sqlite3",
    "faketime",
    "fakeroot",
    "heaptrack",
    "systemctl",
    "python3",
    "g++",
    "pkg-config",
];
