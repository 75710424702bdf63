//! Call stacks in heap profiles, from below frames of many kinds, with the names that the reader of
//! profiles gives them.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};
use mallard_profile::model::Profile;
use mallard_profile::names::{self, Options};
use mallard_profile::read;
use mallard_testing::skipped;
use std::collections::BTreeSet;

/// Stacks of `walked.cpp`, the innermost frame first. Any frames may be where `..` is, and one
/// whose name is not known where `?` is.
const STACKS: [&str; 12] = [
    "keep deep*41 main ..",
    "keep frameless*5 main ..",
    "keep Guard::~Guard thrower catching main ..",
    "keep Guard::~Guard thrower*2 catching main ..",
    "keep Guard::~Guard thrower*3 catching main ..",
    "keep Guard::~Guard thrower*4 catching main ..",
    "keep catching main ..",
    "keep growing main ..",
    "keep large main ..",
    "keep aligned main ..",
    "keep on_fault .. leaf faulted main ..",
    "keep deep*6 in_thread ..",
];

/// Two through functions of the C library. musl is built without tables for its own functions, so
/// that a stack there may end where these begin, at `..`.
const THROUGH_LIBC: [&str; 2] = [
    "keep compare .. sorting main ..",
    "keep on_signal .. signalled main ..",
];

/// One through code without a table, whose caller keeps a frame pointer.
const THROUGH_MADE: &str = "keep ? made main ..";

/// Whether a stack is what a line of [`STACKS`] says.
fn is_like(stack: &[String], line: &[&str]) -> bool {
    let Some((&first, rest)) = line.split_first() else {
        return stack.is_empty();
    };
    if first == ".." {
        return (0..=stack.len()).any(|skipped| is_like(&stack[skipped..], rest));
    }
    let (name, count) = first.split_once('*').unwrap_or((first, "1"));
    let count: usize = count.parse().expect("a number of frames");
    let is_name = |frame: &String| (name == "?" && frame.is_empty()) || frame == name;
    stack.len() >= count && stack[..count].iter().all(is_name) && is_like(&stack[count..], rest)
}

/// The functions of each sample's stack.
fn stacks(profile: &Profile) -> Vec<Vec<String>> {
    let functions = |sample: &mallard_profile::model::Sample| {
        let locations = sample
            .stack
            .iter()
            .map(|at| &profile.locations[at.0 as usize]);
        let names = locations.flat_map(|location| {
            let mut names: Vec<String> = (location.frames.iter())
                .map(|frame| frame.function.to_string())
                .collect();
            if names.is_empty() {
                names.push(String::new());
            }
            names
        });
        names.collect()
    };
    profile.samples.iter().map(functions).collect()
}

/// Runs the program, compiled with these flags. Returns what it printed, and its profile.
fn run(flags: &[&str], page: &str) -> (String, Profile) {
    let program = Source::new("walked.cpp").flags(flags).compile();
    let library = Library::release();
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    // Without a witness: under qemu with larger pages the loader cannot map a second small library.
    // Only Mallard writes the profile.
    let mut command = sandbox.plain_command(&program);
    command
        .env("LD_PRELOAD", &library.shared)
        .env("MALLOC_CONF", "prof:true,prof_final:true,lg_prof_sample:0")
        .env("QEMU_PAGESIZE", page);
    let outcome = sandbox.run(&mut command);
    let text = outcome.expect("the program ends").expect_success();
    let folder = sandbox.path("");
    let file = (std::fs::read_dir(&folder).expect("the sandbox"))
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|it| it == "heap"))
        .expect("the program wrote a profile");
    let mut bytes = std::fs::read(file).expect("the profile");
    if target().is_emulated() {
        // The mappings are the emulator's, which executes nothing of them.
        let lines = String::from_utf8(bytes).expect("text");
        bytes = lines.replace(" r--p 00000000 ", " r-xp 00000000 ").into();
    }
    let profile = read::profile(&bytes).unwrap_or_else(|error| panic!("{error}"));
    (text, profile)
}

/// The numbers of frames of the stacks.
fn depths(profile: &Profile) -> Vec<usize> {
    let mut depths: Vec<usize> = (profile.samples.iter())
        .map(|sample| sample.stack.len())
        .collect();
    depths.sort_unstable();
    depths
}

/// Runs the program, and compares its stacks. Returns what it printed, and the stacks' depths.
fn walk(flags: &[&str], has_frame_pointers: bool) -> (String, Vec<usize>) {
    let (text, mut profile) = run(flags, "4096");
    let depths = depths(&profile);
    names::name(&mut profile, &Options::default());
    let found = stacks(&profile);
    let through_libc = THROUGH_LIBC.map(|line| match line.split_once(" .. ") {
        Some((begin, _)) if target().is_musl() => &line[..begin.len() + " ..".len()],
        _ => line,
    });
    let missing: Vec<_> = STACKS
        .into_iter()
        .chain(through_libc)
        .chain(has_frame_pointers.then_some(THROUGH_MADE))
        .filter(|line| {
            let line: Vec<&str> = line.split(' ').collect();
            !found.iter().any(|stack| is_like(stack, &line))
        })
        .collect();
    let all: BTreeSet<String> = found.iter().map(|stack| stack.join(" ")).collect();
    assert!(missing.is_empty(), "{missing:#?} are not among {all:#?}");
    (text, depths)
}

/// Whether the system under test is one whose profiles have stacks.
fn has_stacks() -> bool {
    if target().is_musl() && target().is_emulated() {
        // The unwinder knows the modules of a program on musl by its mappings.
        skipped("the emulator does not show the mappings of the program");
        return false;
    }
    Library::release().is_mallard_or_skipped()
}

#[test]
fn stacks_below_frames_of_all_kinds_are_whole_and_have_names() {
    if !has_stacks() {
        return;
    }
    let (_, expected) = walk(&["-O2"], true);
    if target().is_emulated() {
        // The emulator's own mappings do not show which files these are, so there are no names.
        for page in ["16384", "65536"] {
            assert_eq!(depths(&run(&["-O2"], page).1), expected, "{page}");
        }
    }
}

#[test]
fn stacks_without_frame_pointers_are_whole_and_have_names() {
    if has_stacks() {
        walk(&["-O2", "-fomit-frame-pointer"], false);
    }
}

#[test]
fn stacks_with_signed_return_addresses_are_whole_and_have_names() {
    let triple = target().triple().unwrap_or(std::env::consts::ARCH);
    if !triple.starts_with("aarch64") {
        skipped("this processor does not sign return addresses");
        return;
    }
    if has_stacks() {
        let (text, _) = walk(&["-O2", "-mbranch-protection=standard"], true);
        // The emulated processor signs; another one may take the instructions for nothing.
        assert!(!target().is_emulated() || text == "signed\n", "{text}");
    }
}
