//! Names against files of every kind that a compiler, a packager and a container leave behind. Each
//! test compiles `program.cpp`, which writes a profile with one address inside an inlined function.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mallard_profile::model::{Location, Mapping, MappingIndex, Profile};
use mallard_profile::names::{self, Options, Why};
use mallard_profile::{read, write};
use mallard_testing::{lacks, skipped};
use proptest::prelude::*;
use tempfile::TempDir;

/// Ends a test that lacks a program of the machine; says so.
macro_rules! need {
    ($($program:expr),+) => {
        if lacks(&[$($program),+]) {
            return;
        }
    };
}

/// A compiled program in a folder of its own.
struct Built {
    folder: TempDir,
    program: PathBuf,
}

impl Built {
    fn new(flags: &[&str]) -> Built {
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/named/program.cpp");
        fs::copy(source, folder.path().join("program.cpp")).unwrap();
        let built = Built { folder, program };
        let mut arguments = vec!["-O1", "-Wl,--build-id", "-o", "program", "program.cpp"];
        arguments.extend(flags);
        built.tool("c++", &arguments);
        built
    }

    /// Runs a tool in the folder.
    fn tool(&self, name: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(name);
        let output = command.args(arguments).current_dir(self.folder.path());
        let output = output.env_remove("LD_PRELOAD").output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {arguments:?}: {told}");
        output
    }

    /// The profile that the program writes.
    fn profile(&self) -> Profile {
        let output = self.tool("./program", &[]);
        read::profile(&output.stdout).unwrap()
    }

    /// Strips the program and leaves its debug information in `program.debug`.
    fn split_off(&self) {
        self.tool(
            "objcopy",
            &["--only-keep-debug", "program", "program.debug"],
        );
        self.tool("strip", &["program"]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The frames of the profile's one location, as `function file:line`, and what was lacking.
fn named(profile: &mut Profile, options: &Options) -> (Vec<String>, Vec<Why>) {
    let outcome = names::name(profile, options);
    let frames = profile.locations[0].frames.iter().map(|frame| {
        let file = frame.file.rsplit('/').next().unwrap();
        format!("{} {file}:{}", frame.function, frame.line)
    });
    let why = outcome.lacks.into_iter().map(|lack| lack.why);
    (frames.collect(), why.collect())
}

const WHOLE: [&str; 2] = [
    "shop::Shelf::put<int> program.cpp:17",
    "shop::fill program.cpp:23",
];

fn expect_whole(profile: &mut Profile, options: &Options) {
    let (frames, why) = named(profile, options);
    assert_eq!(frames, WHOLE);
    assert_eq!(why, []);
}

#[test]
fn debug_information_in_the_program_gives_inlined_functions_and_lines() {
    need!("c++");
    for flags in [
        &["-g"][..],
        &["-g", "-no-pie"],
        &["-g", "-gz"],
        &["-gdwarf-4"],
    ] {
        expect_whole(&mut Built::new(flags).profile(), &Options::default());
    }
}

#[test]
fn a_debug_link_is_followed() {
    need!("c++", "objcopy", "strip");
    let built = Built::new(&["-g"]);
    let mut profile = built.profile();
    built.split_off();
    let (frames, why) = named(&mut profile.clone(), &Options::default());
    assert_eq!(
        (frames, why),
        (vec![], vec![Why::Stripped]),
        "not without the link"
    );
    built.tool("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    expect_whole(&mut profile.clone(), &Options::default());
    fs::create_dir(built.path(".debug")).unwrap();
    fs::rename(
        built.path("program.debug"),
        built.path(".debug/program.debug"),
    )
    .unwrap();
    expect_whole(&mut profile, &Options::default());
}

#[test]
fn a_debug_link_without_build_ids_is_checked_by_its_sum() {
    need!("c++", "objcopy", "strip");
    let built = Built::new(&["-g", "-Wl,--build-id=none"]);
    let mut profile = built.profile();
    built.split_off();
    built.tool("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    expect_whole(&mut profile.clone(), &Options::default());
    let mut debug = fs::read(built.path("program.debug")).unwrap();
    debug.push(0);
    fs::write(built.path("program.debug"), debug).unwrap();
    assert_eq!(named(&mut profile, &Options::default()).0, [""; 0]);
}

#[test]
fn debug_files_are_found_by_build_id_with_and_without_the_program() {
    need!("c++", "objcopy", "strip");
    for flags in [&["-g"][..], &["-g", "-no-pie"]] {
        let built = Built::new(flags);
        let mut profile = built.profile();
        let id = names::build_id_of(&built.program).unwrap();
        built.split_off();
        let folder = built.path(&format!("store/.build-id/{}", &id[..2]));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{}.debug", &id[2..]));
        fs::rename(built.path("program.debug"), file).unwrap();
        let options = Options {
            debug_folders: vec![built.path("store")],
            ..Options::default()
        };
        expect_whole(&mut profile.clone(), &options);

        fs::remove_file(&built.program).unwrap();
        for mapping in &mut profile.mappings {
            if &*mapping.path == built.program.to_str().unwrap() {
                mapping.build_id = id.to_uppercase().into();
            }
        }
        let (frames, why) = named(&mut profile.clone(), &Options::default());
        assert_eq!(frames, [""; 0]);
        assert!(matches!(&why[..], [Why::Missing(_)]), "{why:?}");
        expect_whole(&mut profile, &options);
    }
}

#[test]
fn a_debug_file_is_fetched_by_build_id() {
    need!("c++", "objcopy", "strip");
    let built = Built::new(&["-g"]);
    let mut profile = built.profile();
    let id = names::build_id_of(&built.program).unwrap();
    built.split_off();
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = 'debuginfo {id}' ] && echo {}\n",
        built.path("program.debug").display()
    );
    fs::write(built.path("text"), script).unwrap();
    // A copy by another process: no thread of this one may hold it open while it is run.
    built.tool("install", &["-m", "755", "text", "fetch"]);
    let options = |fetcher: &str| Options {
        fetcher: Some(built.path(fetcher)),
        ..Options::default()
    };
    let (_, why) = named(&mut profile.clone(), &options("no-such-program"));
    assert_eq!(why, [Why::Stripped]);
    expect_whole(&mut profile, &options("fetch"));
}

#[test]
fn split_debug_information_is_read_in_parts_and_as_a_package() {
    need!("c++");
    for flags in [
        &["-g", "-gsplit-dwarf"][..],
        &["-gdwarf-4", "-gsplit-dwarf"],
    ] {
        let built = Built::new(flags);
        let mut profile = built.profile();
        expect_whole(&mut profile.clone(), &Options::default());
        // binutils' dwp crashes on parts of DWARF 5, and newer releases of Debian do without it.
        let has_dwp = mallard_testing::missing(&["dwp"]).is_empty();
        let packer = if flags.contains(&"-gdwarf-4") && has_dwp {
            "dwp"
        } else {
            "llvm-dwp"
        };
        need!(packer);
        built.tool(packer, &["-e", "program", "-o", "program.dwp"]);
        let parts = fs::read_dir(built.folder.path()).unwrap().flatten();
        let parts: Vec<PathBuf> = parts
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "dwo"))
            .collect();
        assert_eq!(parts.len(), 1);
        fs::remove_file(&parts[0]).unwrap();
        expect_whole(&mut profile, &Options::default());
    }
}

#[test]
fn a_symbol_table_gives_functions_and_is_told() {
    need!("c++");
    let (frames, why) = named(&mut Built::new(&[]).profile(), &Options::default());
    assert_eq!(frames, ["shop::fill :0"]);
    assert_eq!(why, [Why::SymbolsOnly]);
}

#[test]
fn exported_functions_are_told_and_no_other_name_is_guessed() {
    need!("c++", "strip");
    let built = Built::new(&["-rdynamic"]);
    built.tool("strip", &["program"]);
    let mut profile = built.profile();
    let (frames, why) = named(&mut profile, &Options::default());
    assert_eq!(frames, ["shop::fill :0"]);
    assert_eq!(why, [Why::ExportsOnly]);

    let built = Built::new(&[]);
    built.tool("strip", &["program"]);
    let mut profile = built.profile();
    let (frames, why) = named(&mut profile, &Options::default());
    assert_eq!(frames, [""; 0]);
    assert!(
        matches!(why[..], [Why::ExportsOnly | Why::Stripped]),
        "{why:?}"
    );
    assert!(
        profile
            .unnamed(&profile.locations[0])
            .starts_with("program+0x1")
    );
}

#[test]
fn a_file_that_was_replaced_gives_no_wrong_names() {
    need!("c++");
    let built = Built::new(&["-g"]);
    let mut profile = built.profile();
    let id = names::build_id_of(&built.program).unwrap();
    for mapping in &mut profile.mappings {
        if &*mapping.path == built.program.to_str().unwrap() {
            mapping.build_id = id.clone().into();
        }
    }
    let kept = built.path("kept");
    fs::rename(&built.program, &kept).unwrap();
    built.tool(
        "c++",
        &[
            "-O2",
            "-g",
            "-Wl,--build-id",
            "-o",
            "program",
            "program.cpp",
        ],
    );
    let outcome = names::name(&mut profile.clone(), &Options::default());
    assert_eq!(outcome.lacks[0].why, Why::Replaced);
    assert_eq!(
        outcome.lacks[0].to_string(),
        "program was replaced: the file here is not the one that ran"
    );
    let options = Options {
        files: vec![kept],
        ..Options::default()
    };
    expect_whole(&mut profile, &options);
}

#[test]
fn without_build_ids_a_file_whose_code_lies_elsewhere_is_another() {
    need!("c++");
    let built = Built::new(&["-g"]);
    let mut profile = built.profile();
    let other = own_mapping(|mapping| mapping.name().starts_with("libc.so")).unwrap();
    fs::remove_file(&built.program).unwrap();
    fs::copy(&*other.path, &built.program).unwrap();
    let (frames, why) = named(&mut profile, &Options::default());
    assert_eq!((frames, why), (vec![], vec![Why::Replaced]));
}

#[test]
fn a_deleted_file_is_told() {
    need!("c++");
    let built = Built::new(&["-g"]);
    let mut profile = built.profile();
    for mapping in &mut profile.mappings {
        mapping.deleted = true;
    }
    let (frames, why) = named(&mut profile, &Options::default());
    assert_eq!((frames, why), (vec![], vec![Why::Deleted]));
}

#[test]
fn files_of_a_container_lie_under_its_root() {
    need!("c++");
    let built = Built::new(&["-g"]);
    let mut profile = built.profile();
    let root = TempDir::new().unwrap();
    let inside = root.path().join(built.program.strip_prefix("/").unwrap());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    fs::rename(&built.program, &inside).unwrap();
    let options = Options {
        root: Some(root.path().to_path_buf()),
        ..Options::default()
    };
    expect_whole(&mut profile.clone(), &options);
    // A root that is a link, as /proc/PID/root is.
    let link = built.path("root");
    symlink(root.path(), &link).unwrap();
    let options = Options {
        root: Some(link),
        ..Options::default()
    };
    expect_whole(&mut profile, &options);
}

/// A process in a mount namespace of its own sees the program where no other process does.
#[test]
fn a_process_in_a_container_is_read_through_its_root() {
    need!("c++", "unshare", "mount");
    let built = Built::new(&["-g"]);
    let hidden = TempDir::new().unwrap();
    let inside = hidden.path().join("program");
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/program && exec {0}/program wait",
        hidden.path().display(),
        built.program.display()
    );
    let mut child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // An empty line ends the profile; without namespaces there is none at all.
    let mut text = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.by_ref().map(Result::unwrap) {
        if line.is_empty() && text.contains("MAPPED_LIBRARIES") {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    if text.is_empty() {
        child.wait().unwrap();
        skipped("this user gets no mount namespace");
        return;
    }
    let mut profile = read::profile(text.as_bytes()).unwrap();
    assert!(!inside.exists(), "only the process sees it");
    let (frames, why) = named(&mut profile.clone(), &Options::default());
    assert_eq!(frames, [""; 0]);
    assert!(matches!(why[..], [Why::Missing(_)]), "{why:?}");
    let options = Options {
        root: Some(format!("/proc/{}/root", child.id()).into()),
        ..Options::default()
    };
    expect_whole(&mut profile, &options);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn memory_of_a_jit_compiler_has_the_names_of_its_map() {
    // No process has this number: the largest on Linux is 4194304.
    let pid = 4_194_305 + std::process::id();
    let map = format!("/tmp/perf-{pid}.map");
    let mut profile = one_location(
        0x7000_1008,
        Mapping {
            start: 0x7000_0000,
            limit: 0x7000_2000,
            ..Mapping::default()
        },
    );
    assert_eq!(
        named(&mut profile.clone(), &Options::default()).1,
        [Why::Anonymous]
    );
    fs::write(&map, "70001000 10 LazyCompile:~tick game.js:3\n").unwrap();
    let options = Options {
        pid: Some(pid),
        ..Options::default()
    };
    let told = named(&mut profile, &options);
    fs::remove_file(&map).unwrap();
    assert_eq!(
        told,
        (vec!["LazyCompile:~tick game.js:3 :0".to_owned()], vec![])
    );
}

fn one_location(address: u64, mapping: Mapping) -> Profile {
    Profile {
        locations: vec![Location {
            address,
            mapping: Some(MappingIndex(0)),
            frames: Vec::new(),
        }],
        mappings: vec![mapping],
        ..Profile::default()
    }
}

/// The mapping of this process that holds an address.
fn own_mapping(fits: impl Fn(&Mapping) -> bool) -> Option<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    read::maps::executable(&maps)
        .unwrap()
        .into_iter()
        .find(fits)
}

#[inline(never)]
fn a_function_of_rust() -> u32 {
    std::hint::black_box(std::process::id())
}

#[test]
fn functions_of_rust_have_readable_names() {
    let address = a_function_of_rust as *const () as u64 + 1;
    let mapping = own_mapping(|m| (m.start..m.limit).contains(&address)).unwrap();
    let mut profile = one_location(address, mapping);
    names::name(&mut profile, &Options::default());
    let frame = profile.locations[0].frames.last().unwrap();
    assert_eq!(&*frame.function, "named::a_function_of_rust");
    assert!(
        frame.file.ends_with("tests/named/main.rs"),
        "{}",
        frame.file
    );
}

#[test]
fn the_kernel_s_functions_have_names() {
    let Some(mapping) = own_mapping(|m| &*m.path == "[vdso]") else {
        skipped("this kernel gives no vdso");
        return;
    };
    let pages = mapping.limit - mapping.start;
    let named = (0..pages).step_by(16).filter(|offset| {
        let mut profile = one_location(mapping.start + offset, mapping.clone());
        names::name(&mut profile, &Options::default());
        let frames = &profile.locations[0].frames;
        frames.iter().any(|frame| frame.function.contains("vdso"))
    });
    assert!(named.count() > 0);
}

#[test]
fn a_profile_with_names_keeps_them_when_it_is_written_and_read() {
    need!("c++");
    let built = Built::new(&["-g"]);
    let mut profile = built.profile();
    names::name(&mut profile, &Options::default());
    let again = read::profile(&write::pprof_plain(&profile)).unwrap();
    assert_eq!(again, profile);
    let stacks = write::collapsed(&profile, 3);
    assert_eq!(stacks, "shop::fill;shop::Shelf::put<int> 100\n");
}

#[test]
fn a_damaged_program_does_no_harm() {
    need!("c++");
    let built = Built::new(&["-g"]);
    let profile = built.profile();
    let whole = fs::read(&built.program).unwrap();
    let strategy = prop::collection::vec((0..whole.len(), any::<u8>()), 1..200);
    let config = ProptestConfig {
        failure_persistence: None,
        cases: 100,
        ..ProptestConfig::default()
    };
    proptest!(config, |(changes in strategy, cut in 0..whole.len() * 4)| {
        let mut damaged = whole.clone();
        for (place, byte) in changes {
            damaged[place] = byte;
        }
        damaged.truncate(cut.max(1));
        fs::write(&built.program, damaged).unwrap();
        names::name(&mut profile.clone(), &Options::default());
    });
}
