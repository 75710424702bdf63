//! The oldest systems that releases promise: glibc 2.17 for the library, the archive and the probe,
//! 2.28 for the lab, and Linux 3.10. The compilers of `scripts/setup-cross.sh glibc` build what
//! releases have. It runs in a root of Debian 11 (`scripts/setup-cross.sh roots`), and on the
//! system calls of older kernels (`programs/older-kernel.c`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mallard_e2e::compiler::Source;
use mallard_e2e::process::{self, Outcome};
use mallard_e2e::target::{cross_folder, target};
use mallard_e2e::{Allocator, Library, Sandbox, repository, scratch, target_dir};
use mallard_testing::skipped;
use object::elf;
use object::read::elf::{FileHeader, Sym};

/// The newest version of the C library that a file of a release may demand.
const LIBRARY: Version = Version(2, 17);
const LAB: Version = Version(2, 28);

/// The ways of `programs/older.c`, with the flags of each.
const WAYS: [(&str, &[&str]); 3] = [("alone", &[]), ("late", &[]), ("threads", &["-pthread"])];

const KERNELS: [&str; 3] = ["3.10", "4.14", "5.4"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

/// What a file demands of the C library.
#[derive(Debug)]
struct Demands {
    /// The newest version in its table. The loader refuses the file on older ones, even if only
    /// weak references need it, unless the linker marked the version weak.
    newest: Version,
    /// Strong references without a version: nothing checks them before they are bound.
    unversioned: Vec<String>,
}

fn demands(file: &Path) -> Demands {
    let data = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let data = &*data;
    let header = elf::FileHeader64::<object::Endianness>::parse(data).expect("an ELF file");
    let endian = header.endian().expect("a byte order");
    let sections = header.sections(endian, data).expect("sections");
    let (mut needs, link) = sections
        .gnu_verneed(endian, data)
        .expect("readable")
        .expect("a table of versions");
    let names = sections.strings(endian, data, link).expect("strings");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut newest = Version(0, 0);
    while let Some((_, mut versions)) = needs.next().expect("readable") {
        while let Some(version) = versions.next().expect("readable") {
            if version.vna_flags.get(endian) & elf::VER_FLG_WEAK != 0 {
                continue;
            }
            let name = text(version.name(endian, names).expect("a name"));
            newest = newest.max(name.strip_prefix("GLIBC_").map_or(newest, parse));
        }
    }
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM);
    let symbols = symbols.expect("symbols");
    let versions = sections.versions(endian, data).expect("readable");
    let versions = versions.expect("as above");
    let is_strong =
        |symbol: &elf::Sym64<_>| symbol.is_undefined(endian) && symbol.st_bind() == elf::STB_GLOBAL;
    let strong = symbols.enumerate().filter(|(_, symbol)| is_strong(symbol));
    let unversioned = strong.filter(|(index, _)| {
        let at = versions.version_index(endian, *index);
        versions.version(at).expect("readable").is_none()
    });
    let name =
        |symbol: &elf::Sym64<_>| text(symbol.name(endian, symbols.strings()).expect("a name"));
    Demands {
        newest,
        unversioned: unversioned.map(|(_, symbol)| name(symbol)).collect(),
    }
}

/// The first release with a version `GLIBC_NAME`. No release promises the names that are no
/// numbers: `PRIVATE` is of one build alone.
fn parse(name: &str) -> Version {
    if name == "ABI_DT_RELR" {
        return Version(2, 36);
    }
    let mut parts = name.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Version(major, minor),
        _ => Version(u32::MAX, 0),
    }
}

#[test]
fn a_version_that_is_no_number_is_newer_than_promised() {
    assert_eq!(parse("2.34"), Version(2, 34));
    assert_eq!(parse("2.2.5"), Version(2, 2));
    for name in ["PRIVATE", "ABI_DT_RELR", "ABI_NEW", ""] {
        assert!(parse(name) > LAB, "{name}");
    }
}

fn expect_at_most(promised: Version, file: &Path) {
    let demands = demands(file);
    assert!(
        demands.newest <= promised && demands.unversioned.is_empty(),
        "{} may demand glibc {promised:?}, but has {demands:?}",
        file.display()
    );
}

/// The compiler whose programs demand no newer C library than the library of a release.
fn compiler() -> Option<PathBuf> {
    let name = format!("{}-linux-gnu.2.17-gcc", std::env::consts::ARCH);
    let path = cross_folder().join("bin").join(name);
    let is_there = path.is_file();
    if !is_there {
        let path = path.display();
        skipped(format_args!(
            "there is no {path}; scripts/setup-cross.sh glibc makes it"
        ));
    }
    is_there.then_some(path)
}

/// The library, its archive and the probe, built as for a release.
struct Release {
    folder: PathBuf,
    compiler: PathBuf,
}

impl Release {
    /// `None`, and a word about it, where they cannot be built.
    fn here() -> Option<&'static Release> {
        static RELEASE: OnceLock<Release> = OnceLock::new();
        let compiler = compiler()?;
        Some(RELEASE.get_or_init(|| build(compiler)))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// `programs/older.c`, for the same systems.
    fn program(&self, to: &Path, flags: &[&str], inputs: &[&Path]) -> PathBuf {
        let program = to.join(format!("older{}", flags.concat()));
        let mut command = Command::new(&self.compiler);
        command
            .args(["-std=gnu11", "-O1", "-fno-builtin"])
            .args(flags);
        command.arg("-o").arg(&program).arg(source("older.c"));
        succeed(command.args(inputs).arg("-ldl"));
        program
    }
}

fn source(name: &str) -> PathBuf {
    repository().join("crates/e2e/programs").join(name)
}

fn build(compiler: PathBuf) -> Release {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let linker = triple.to_uppercase().replace('-', "_");
    let target = target_dir().join("floor");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--locked", "--release", "--target"])
        .args([
            &triple,
            "-p",
            "mallard-c",
            "-p",
            "mallard-probe",
            "-p",
            "mallard-checked",
        ])
        .arg("--manifest-path")
        .arg(repository().join("crates/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env(format!("CARGO_TARGET_{linker}_LINKER"), &compiler);
    succeed(&mut cargo);
    Release {
        folder: target.join(triple).join("release"),
        compiler,
    }
}

fn succeed(command: &mut Command) -> Outcome {
    let limit = std::time::Duration::from_secs(600);
    process::run(command.env_remove("LD_PRELOAD"), limit)
        .and_then(Outcome::success)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_release_demands_no_newer_c_library_than_promised() {
    if let Some(folder) = std::env::var_os("MALLARD_RELEASE") {
        let folder = Path::new(&folder);
        for (name, promised) in [("libmallard.so", LIBRARY), ("mallard", LAB)] {
            expect_at_most(promised, &folder.join(name));
        }
    }
    let Some(release) = Release::here() else {
        return;
    };
    for name in [
        "libmallard.so",
        "libmallard_probe.so",
        "libmallard_checked.so",
    ] {
        expect_at_most(LIBRARY, &release.file(name));
    }
}

/// The test above finds it.
#[test]
fn a_build_for_this_system_alone_demands_more() {
    // Of this one on, threads are a part of the main library, with a version of their own.
    const THREADS: Version = Version(2, 34);
    let library = Library::release();
    if target().lacks_host("its C library is of any release")
        || target().lacks_glibc("it has no versions")
        || !library.is_mallard_or_skipped()
    {
        return;
    }
    let here = here();
    if here < THREADS {
        return skipped(format_args!(
            "the C library of this system, {here:?}, has the threads of the promised one"
        ));
    }
    let demands = demands(&library.shared);
    assert!(demands.newest >= THREADS, "{here:?}: {demands:?}");
}

/// The C library of this system.
fn here() -> Version {
    let program = Source::new("older.c").flags(&["-O1"]).compile();
    let said = succeed(Command::new(program).arg("alone")).stdout_text();
    let number = said.strip_prefix("alone on glibc ");
    let number = number.and_then(|rest| rest.split(':').next());
    parse(number.unwrap_or_else(|| panic!("{said}")))
}

#[test]
fn static_programs_link_with_the_c_library_of_old_systems_and_of_this_one() {
    let Some(release) = Release::here() else {
        return;
    };
    let folder = scratch("floor").unwrap_or_else(|error| panic!("{error}"));
    let archive = release.file("libmallard.a");
    let old = release.program(folder.path(), &["-static", "-pthread"], &[&archive]);
    let new = Source::new("older.c").flags(&["-O1", "-static"]);
    for program in [old, new.link(&archive).compile()] {
        let said = succeed(Command::new(&program).arg("threads")).stdout_text();
        assert!(
            said.ends_with("libpthread, background thread yes\n"),
            "{said}"
        );
    }
}

/// Runs the command in the root with the folder as its `/mnt`; nothing is left in the root.
fn in_root(root: &Path, folder: &Path, words: &str) -> Command {
    let mut command = Command::new("unshare");
    let (root, folder) = (root.display(), folder.display());
    command.args(["--mount", "sh", "-euc"]).arg(format!(
        "mount --bind '{folder}' '{root}/mnt'; mount -t proc proc '{root}/proc'
        cd /; exec chroot '{root}' /usr/bin/env -i PATH=/usr/bin:/bin {words}"
    ));
    command
}

#[test]
fn the_library_and_the_probe_serve_programs_of_debian_11() {
    let root = cross_folder().join("roots/bullseye");
    if !root.is_dir() {
        let root = root.display();
        return skipped(format_args!(
            "there is no {root}; scripts/setup-cross.sh roots makes it"
        ));
    }
    let Some(release) = Release::here() else {
        return;
    };
    let folder = scratch("floor").unwrap_or_else(|error| panic!("{error}"));
    let limit = std::time::Duration::from_secs(60);
    let first = process::run(&mut in_root(&root, folder.path(), "true"), limit);
    if let Err(error) = first.and_then(Outcome::success) {
        return skipped(format_args!("this user cannot enter a root: {error}"));
    }
    for name in [
        "libmallard.so",
        "libmallard_probe.so",
        "libmallard_checked.so",
    ] {
        std::fs::copy(release.file(name), folder.path().join(name)).expect("room for a copy");
    }
    for (way, flags) in WAYS {
        let program = release.program(folder.path(), flags, &[]);
        let name = program.file_name().expect("a name").to_string_lossy();
        let run = |library: &str| {
            let words = format!("LD_PRELOAD=/mnt/{library} /mnt/{name} {way}");
            let outcome = succeed(&mut in_root(&root, folder.path(), &words));
            (outcome.stdout_text(), outcome.stderr_text())
        };
        let threads = if way == "threads" { "" } else { "no " };
        let expected = |background: &str| {
            format!("{way} on glibc 2.31: {threads}libpthread, background thread {background}\n")
        };
        let (said, complained) = run("libmallard.so");
        let background = if way == "alone" { "no" } else { "yes" };
        assert_eq!(said, expected(background));
        // It asks for the background thread, and is told why there is none.
        assert_eq!(complained.lines().count(), usize::from(way == "alone"));
        assert!(complained.is_empty() || complained.contains("no libpthread"));
        for name in ["libmallard_probe.so", "libmallard_checked.so"] {
            assert_eq!(run(name), (expected("no"), String::new()));
        }
    }
    // Programs of the suite.
    for program in ["ls -R /etc", "perl -e 'print map { $_ * $_ } 1 .. 100'"] {
        let bare = succeed(&mut in_root(&root, folder.path(), program));
        let preload = "LD_PRELOAD=/mnt/libmallard.so";
        let words = format!("{preload} {program}");
        let served = succeed(&mut in_root(&root, folder.path(), &words));
        assert_eq!(served.stdout_text(), bare.stdout_text(), "{program}");
        assert_eq!(served.stderr_text(), "", "{program}");
    }
}

#[test]
fn threads_forks_and_profiles_need_no_newer_system_calls_than_linux_3_10() {
    let launcher = Source::new("older-kernel.c").compile();
    let program = Source::new("older.c").flags(&["-O1"]).compile();
    for library in Library::under_test() {
        for kernel in KERNELS {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut command = sandbox.command(&launcher);
            command.arg(kernel).arg(&program).arg("threads");
            command.env(
                "MALLOC_CONF",
                "prof:true,prof_final:true,background_thread:true",
            );
            let outcome = sandbox.run_own(&mut command);
            if outcome.status.code() == Some(126) {
                return skipped(outcome.stderr_text());
            }
            assert!(
                outcome
                    .expect_success()
                    .ends_with("background thread yes\n")
                    && outcome.stderr.is_empty(),
                "Linux {kernel}: {}",
                outcome.account()
            );
            let files = std::fs::read_dir(sandbox.path(".")).expect("the sandbox's folder");
            let profiles = files.flatten().map(|file| file.file_name());
            let profile = profiles
                .map(|name| name.to_string_lossy().into_owned())
                .find(|name| name.ends_with(".heap"))
                .unwrap_or_else(|| panic!("Linux {kernel}: no profile"));
            let text =
                String::from_utf8_lossy(&sandbox.read(&profile).expect("a profile")).into_owned();
            // The mappings, by which addresses get names.
            assert!(
                text.contains("MAPPED_LIBRARIES:\n") && text.contains("libc.so.6"),
                "{text}"
            );
        }
    }
}
