//! The budgets of the built library: its exports, dependencies and size, and what it adds to a
//! trivial program. They apply to the release build, which users get. (Instruction budgets are in
//! `instructions`.)

use std::collections::BTreeSet;
use std::path::Path;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, repository};
use mallard_testing::lacks;
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Sym};

/// The functions of the C library that the library replaces.
const C: &str = "malloc calloc realloc free posix_memalign aligned_alloc memalign valloc pvalloc malloc_usable_size \
    reallocarray free_sized free_aligned_sized cfree mallinfo mallinfo2 malloc_info malloc_trim mallopt malloc_stats \
    malloc_object_size malloc_object_base";

/// Every replaceable operator new and delete: plain, array, nothrow, aligned, sized, combined.
const CPP: &str = "_Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t \
    _ZnwmSt11align_val_t _ZnamSt11align_val_t _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t \
    _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t \
    _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t \
    _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t";

/// jemalloc's names; each also exists with the prefix `je_`.
const JEMALLOC: &str = "mallocx rallocx xallocx sallocx dallocx sdallocx nallocx smallocx malloc_message malloc_conf \
    malloc_conf_2_conf_harder mallctl mallctlnametomib mallctlbymib malloc_stats_print";

/// The loader's functions that load plug-ins.
const LOADER: &str = "dlopen dlmopen";

/// The functions of the C library that also exist with the prefix.
const PREFIXED: &str = "malloc calloc realloc free posix_memalign aligned_alloc memalign valloc pvalloc \
    malloc_usable_size reallocarray free_sized free_aligned_sized";

fn words(list: &str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

/// The parts of a shared object that the loader reads.
struct SharedObject {
    exported: BTreeSet<String>,
    soname: Option<String>,
    needed: Vec<String>,
    static_tls: u64,
}

fn inspect(path: &Path) -> SharedObject {
    let data = std::fs::read(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let file = ElfFile64::<object::Endianness>::parse(&*data).expect("a 64-bit ELF file");
    let endian = file.endian();
    let sections = file.elf_section_table();
    let (dynamic, link) = sections
        .dynamic(endian, &*data)
        .expect("readable")
        .expect("a dynamic section");
    let strings = sections
        .strings(endian, &*data, link)
        .expect("readable strings");
    let text = |entry: &elf::Dyn64<object::Endianness>| {
        let name = entry.string(endian, strings).expect("a string");
        String::from_utf8_lossy(name).into_owned()
    };
    let tagged = |tag: u32| {
        dynamic
            .iter()
            .filter(move |entry| entry.tag32(endian) == Some(tag))
            .map(text)
    };
    let symbols = sections
        .symbols(endian, &*data, elf::SHT_DYNSYM)
        .expect("readable symbols");
    let exported = symbols
        .iter()
        .filter(|symbol| !symbol.is_undefined(endian) && symbol.st_bind() != elf::STB_LOCAL)
        .map(|symbol| {
            String::from_utf8_lossy(symbol.name(endian, symbols.strings()).expect("a name"))
                .into_owned()
        })
        .collect();
    let header = file.elf_header();
    let segments = header
        .program_headers(endian, &*data)
        .expect("readable segments");
    let static_tls = segments
        .iter()
        .filter(|s| s.p_type(endian) == elf::PT_TLS)
        .map(|s| s.p_memsz(endian))
        .sum();
    SharedObject {
        exported,
        soname: tagged(elf::DT_SONAME).next(),
        needed: tagged(elf::DT_NEEDED).collect(),
        static_tls,
    }
}

#[test]
fn every_symbol_is_exported_and_nothing_else() {
    for library in Library::under_test() {
        let exported = inspect(&library.shared).exported;
        let both = |list| {
            let names = words(list);
            let prefixed: Vec<_> = names.iter().map(|name| format!("je_{name}")).collect();
            names.into_iter().chain(prefixed)
        };
        let mut required: BTreeSet<String> = words(C).union(&words(CPP)).cloned().collect();
        required.extend(both(JEMALLOC).chain(both(PREFIXED)));
        required.extend(words(LOADER));
        let missing: Vec<_> = required.difference(&exported).collect();
        let excess: Vec<_> = exported.difference(&required).collect();
        assert!(
            missing.is_empty() && excess.is_empty(),
            "{}: missing {missing:?}, in excess {excess:?}",
            library.name
        );
    }
}

#[test]
fn the_soname_carries_a_version() {
    let soname = inspect(&Library::release().shared)
        .soname
        .expect("a soname");
    let version = soname
        .strip_prefix("libmallard.so.")
        .unwrap_or_else(|| panic!("libmallard.so.N, not {soname}"));
    assert!(
        !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()),
        "libmallard.so.N, not {soname}"
    );
}

#[test]
fn it_needs_the_c_library_alone() {
    let needed = inspect(&Library::release().shared).needed;
    let is_c_library = |name: &String| name.starts_with("libc.so") || name.starts_with("ld-linux");
    assert!(
        !needed.is_empty() && needed.iter().all(is_c_library),
        "it needs {needed:?}"
    );
}

#[test]
fn static_tls_is_64_bytes_at_most() {
    let size = inspect(&Library::release().shared).static_tls;
    assert!(size <= 64, "{size} bytes");
}

/// The library without debug information, as installed.
fn stripped() -> Vec<u8> {
    let sandbox = Sandbox::temporary(Allocator::System);
    let stripped = sandbox.path("stripped.so");
    let mut strip = sandbox.plain_command("strip");
    sandbox
        .run(
            strip
                .arg("-o")
                .arg(&stripped)
                .arg(&Library::release().shared),
        )
        .expect("strip works");
    std::fs::read(&stripped).expect("strip wrote a file")
}

#[test]
fn the_stripped_library_is_600_kib_at_most() {
    let size = stripped().len();
    assert!(size > 0 && size <= 600 * 1024, "{size} bytes");
}

/// Otherwise its size, and so the budget, would depend on the length of the checkout's path.
#[test]
fn the_library_does_not_name_the_place_where_it_was_built() {
    let library = stripped();
    let holds = |text: &str| library.windows(text.len()).any(|at| at == text.as_bytes());
    assert!(
        holds("core/src/"),
        "messages tell a file of the core, so they would show the place"
    );
    let place = repository()
        .canonicalize()
        .expect("the repository has a path");
    let place = place.to_str().expect("a path in UTF-8");
    assert!(!holds(place), "it names {place}");
}

/// The system calls of a run, counted by strace.
fn system_calls(sandbox: &Sandbox, program: &Path, preload: Option<&Path>) -> Vec<String> {
    let log = sandbox.path("strace.log");
    let mut strace = sandbox.plain_command("strace");
    if let Some(library) = preload {
        strace
            .arg("-E")
            .arg(format!("LD_PRELOAD={}", library.display()));
    }
    sandbox
        .run(strace.arg("-o").arg(&log).arg(program))
        .expect("the program runs under strace");
    let text = std::fs::read_to_string(&log).expect("strace wrote its log");
    text.lines()
        .filter(|line| !line.starts_with("+++"))
        .map(str::to_owned)
        .collect()
}

/// Loading any library takes the loader nine calls; the budget is for what the allocator adds. A
/// static program has no loader, and a preloaded library is compared with an empty one.
#[test]
fn a_program_s_start_takes_ten_more_system_calls_at_most() {
    if lacks(&["strace"]) {
        return;
    }
    let sandbox = Sandbox::temporary(Allocator::System);
    let library = Library::release();
    let check = |with: Vec<String>, without: Vec<String>| {
        assert!(without.len() > 3, "strace saw a program: {without:?}");
        let added = with.len().saturating_sub(without.len());
        assert!(
            added <= 10,
            "{added} calls added; with the allocator:\n{}",
            with.join("\n")
        );
    };
    let program = Source::new("trivial.c").compile();
    let empty = Source::new("empty.c")
        .flags(&["-shared", "-fPIC"])
        .compile();
    check(
        system_calls(&sandbox, &program, Some(&library.shared)),
        system_calls(&sandbox, &program, Some(&empty)),
    );
    if library.is_mallard_or_skipped() {
        let without = Source::new("trivial.c").flags(&["-static"]).compile();
        let with = Source::new("trivial.c")
            .flags(&["-static"])
            .link(library.archive())
            .compile();
        check(
            system_calls(&sandbox, &with, None),
            system_calls(&sandbox, &without, None),
        );
    }
}

/// The median over several runs of a figure, read from a file of `/proc` at the program's end.
fn median(program: &str, allocator: Allocator, file: &str, figure: impl Fn(&str) -> u64) -> u64 {
    let program = Source::new(program).compile();
    let sandbox = Sandbox::temporary(allocator);
    let mut samples: Vec<u64> = (0..9)
        .map(|_| {
            let run = sandbox.run_own(sandbox.command(&program).arg(file));
            figure(&run.expect_success())
        })
        .collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// The KiB in a line of `smaps` with this name.
fn kib(line: &str, name: &str) -> Option<u64> {
    let rest = line.strip_prefix(name)?.trim_start_matches(':');
    rest.split_whitespace().next()?.parse().ok()
}

/// Resident memory in KiB.
fn resident(allocator: Allocator) -> u64 {
    median("trivial.c", allocator, "smaps_rollup", |text| {
        text.lines()
            .find_map(|line| kib(line, "Rss"))
            .expect("a line with Rss")
    })
}

#[test]
fn a_trivial_program_holds_half_a_mebibyte_more_at_most() {
    let without = resident(Allocator::System);
    let with = resident(Allocator::Preload(Library::release()));
    assert!(
        with <= without + 512,
        "{with} KiB resident, {without} KiB on the system's allocator"
    );
}

/// The KiB resident in mappings of the library's file with these permissions: pages as in the file,
/// and pages that were written.
fn resident_pieces(smaps: &str, library: &Path, permissions: &str) -> (u64, u64) {
    let library = library.to_str().expect("a path of UTF-8");
    let (mut counts, mut resident, mut written) = (false, 0, 0);
    for line in smaps.lines() {
        let mut words = line.split(' ');
        if !words.next().is_some_and(|word| word.ends_with(':')) {
            counts = words.next() == Some(permissions) && line.ends_with(library);
        } else if counts {
            resident += kib(line, "Rss").unwrap_or(0);
            written += kib(line, "Anonymous").unwrap_or(0);
        }
    }
    (resident - written, written)
}

/// Checks the effect of the order of code and constants (`layout.txt`). The kernel maps files in
/// pieces of 64 KiB but never beyond the borders of a mapping, so what a minimal program needs has
/// its own mapping. Tables contain no addresses, because the loader writes a page for each one.
#[test]
fn a_trivial_program_has_little_of_the_library_in_memory() {
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    let median = |permissions, part: fn((u64, u64)) -> u64| {
        median("trivial.c", Allocator::Preload(library), "smaps", |text| {
            part(resident_pieces(text, &library.shared, permissions))
        })
    };
    let code = median("r-xp", |(as_in_the_file, _)| as_in_the_file);
    let constants = median("r--p", |(as_in_the_file, _)| as_in_the_file);
    let written = median("r--p", |(_, by_the_loader)| by_the_loader);
    let variables = median("rw-p", |(as_in_the_file, _)| as_in_the_file);
    let changed = median("rw-p", |(_, by_the_process)| by_the_process);
    let found = [code, constants, written, variables];
    assert!(found.iter().all(|&kib| kib > 0), "{found:?} KiB");
    assert!(code <= 36, "{code} KiB of code");
    assert!(constants <= 16, "{constants} KiB of constants");
    assert!(written <= 4, "{written} KiB that the loader wrote");
    assert!(variables <= 4, "{variables} KiB of variables as they begin");
    assert_eq!(changed, 0, "KiB of variables that begin with a value");
}

/// The KiB of the library's code that are in memory at the program's end.
fn code_in_memory(program: &str, library: &Library) -> u64 {
    median(program, Allocator::Preload(library), "smaps", |text| {
        resident_pieces(text, &library.shared, "r-xp").0
    })
}

/// C++'s runtime allocates one long block at the start. It needs the code that programs of a few
/// mebibytes run, and no more.
#[test]
fn a_trivial_cpp_program_has_none_of_the_code_in_memory_that_few_run() {
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    let code = code_in_memory("trivial.cpp", library);
    assert!(code > 36 && code <= 36 + 60, "{code} KiB of code");
}

/// The additional code of programs of a few mebibytes is contiguous, apart from rarely used code.
#[test]
fn a_usual_program_has_the_code_in_memory_that_it_runs() {
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    let code = code_in_memory("usual.c", library);
    assert!(code > 36 && code <= 36 + 60, "{code} KiB of code");
}
