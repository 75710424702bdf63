//! The C and C++ functions do what their manuals say. Each test runs one sub-command of a test
//! program (`programs/face.c`, `programs/operators.cpp`), with the release build and with the debug
//! build and its internal checks. Tests of what the standards and glibc's manual promise also run
//! on the system's allocator, which validates them.

mod common;

use common::{face, operators};
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};

/// Runs the sub-command on the allocator and expects it to say "NAME ok".
fn passes(program: &std::path::Path, name: &str, allocator: Allocator) {
    let sandbox = Sandbox::temporary(allocator);
    let outcome = sandbox.run_own(sandbox.command(program).arg(name));
    assert_eq!(
        outcome.expect_success(),
        format!("{name} ok\n"),
        "on {}",
        allocator.name()
    );
    assert_eq!(
        outcome.stderr_text(),
        "",
        "{name} on {}: nothing is printed unasked",
        allocator.name()
    );
}

fn passes_everywhere(program: &std::path::Path, name: &str) {
    passes(program, name, Allocator::System);
    passes_on_library(program, name);
}

/// Of what other C libraries' allocators may do otherwise: musl's sets `errno` beside its result,
/// and `realloc` to nothing gives a block.
fn passes_as_on_glibc(program: &std::path::Path, name: &str) {
    if target().is_musl() {
        passes_on_library(program, name);
    } else {
        passes_everywhere(program, name);
    }
}

fn passes_on_library(program: &std::path::Path, name: &str) {
    for library in Library::under_test() {
        passes(program, name, Allocator::Preload(library));
    }
}

#[test]
fn malloc_gives_aligned_blocks_that_keep_their_bytes_up_to_the_usable_size() {
    passes_everywhere(&face(), "malloc");
}

#[test]
fn requests_for_nothing_give_distinct_blocks() {
    passes_everywhere(&face(), "zero_size");
}

#[test]
fn calloc_gives_zeroes_where_others_wrote() {
    passes_everywhere(&face(), "calloc");
}

#[test]
fn calloc_clears_all_that_may_be_used() {
    passes_everywhere(&face(), "calloc_usable");
}

#[test]
fn products_that_overflow_give_enomem_and_leave_the_block() {
    passes_everywhere(&face(), "overflow");
}

#[test]
fn impossible_sizes_give_enomem_from_every_function() {
    passes_everywhere(&face(), "exhaustion");
}

#[test]
fn realloc_keeps_the_bytes_and_frees_at_zero() {
    passes_as_on_glibc(&face(), "realloc");
}

#[test]
fn posix_memalign_refuses_bad_alignments_and_keeps_good_ones() {
    passes_as_on_glibc(&face(), "posix_memalign");
}

#[test]
fn aligned_forms_reach_a_gibibyte() {
    passes_everywhere(&face(), "aligned");
}

#[test]
fn success_leaves_errno_alone() {
    // Not on the system's allocator: glibc's `realloc` of mapped blocks may set `errno`.
    passes_on_library(&face(), "errno_kept");
}

#[test]
fn sized_frees_and_cfree_free() {
    // Not on the system's allocator: glibc lacks all three.
    passes_on_library(&face(), "sized_frees");
}

#[test]
fn mallinfo_counts_what_is_live() {
    if !target().lacks_glibc("mallinfo") {
        passes_everywhere(&face(), "mallinfo");
    }
}

#[test]
fn malloc_info_writes_xml_and_refuses_options() {
    if !target().lacks_glibc("malloc_info") {
        passes_everywhere(&face(), "malloc_info");
    }
}

#[test]
fn malloc_trim_returns_freed_memory_to_the_system() {
    passes_everywhere(&face(), "malloc_trim");
}

#[test]
fn mallopt_accepts_glibcs_parameters() {
    if !target().lacks_glibc("mallopt") {
        passes_everywhere(&face(), "mallopt");
    }
}

#[test]
fn malloc_stats_reports_on_standard_error() {
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(sandbox.command(face()).arg("malloc_stats"));
        assert_eq!(outcome.expect_success(), "malloc_stats ok\n");
        let report = outcome.stderr_text();
        assert!(
            report.lines().count() >= 3,
            "a report of a few lines at least: {report}"
        );
        assert!(
            report.contains(|c: char| c.is_ascii_digit()),
            "a report with figures: {report}"
        );
    }
}

#[test]
fn threads_come_and_go() {
    passes_everywhere(&face(), "threads");
}

#[test]
fn every_operator_new_pairs_with_every_delete() {
    passes_everywhere(&operators(), "forms");
}

#[test]
fn operators_throw_bad_alloc_or_give_null() {
    passes_everywhere(&operators(), "bad_alloc");
}

#[test]
fn operators_run_the_new_handler_until_it_gives_up() {
    passes_everywhere(&operators(), "new_handler");
}

#[test]
fn cpp_library_types_live_on_it_in_threads() {
    passes_everywhere(&operators(), "library");
}

/// Under `ulimit -v 65536` the reservation must shrink, exhaustion must be reported, and freed
/// memory must be reusable. (Strict overcommit refuses the large reservation the same way, but it
/// is a system-wide setting, so no test changes it.)
#[test]
fn works_within_64_mib_of_address_space() {
    if target().lacks_exec("the emulator needs more address space") {
        return;
    }
    for library in Library::under_test() {
        for (program, name) in [(face(), "limited"), (operators(), "handler_frees")] {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut shell = sandbox.shell("ulimit -v 65536 && exec \"$0\" \"$1\"");
            shell.arg(program).arg(name);
            let outcome = sandbox.run_own(&mut shell);
            assert_eq!(
                outcome.expect_success(),
                format!("{name} ok\n"),
                "on the {} build",
                library.name
            );
            assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
        }
    }
}

#[test]
fn loads_into_a_running_program() {
    if target().lacks_glibc("no library with thread-local variables at fixed places can be opened")
    {
        return;
    }
    let program = Source::new("loaded.c").compile();
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::System);
        let outcome = sandbox.run_own(sandbox.command(&program).arg(&library.shared));
        assert_eq!(outcome.expect_success(), "loaded ok\n");
        assert_eq!(outcome.stderr_text(), "");
    }
}

/// Static and static-pie programs, linked with the archive and strong references to every function.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn static_programs_run_on_the_archive() {
    for library in Library::under_test()
        .iter()
        .filter(|library| library.is_mallard_or_skipped())
    {
        for form in ["-static", "-static-pie"] {
            let c = Source::new("face.c")
                .flags(&[form, "-DALL_SYMBOLS"])
                .link(library.archive())
                .compile();
            let mut runs = vec![(&c, "malloc"), (&c, "sized_frees"), (&c, "threads")];
            let cpp;
            if !target().lacks_glibc("a static libstdc++, and mallinfo") {
                cpp = Source::new("operators.cpp")
                    .flags(&[form])
                    .link(library.archive())
                    .compile();
                let more = ["forms", "new_handler", "library"].map(|name| (&cpp, name));
                runs.extend(more);
                runs.push((&c, "mallinfo"));
            }
            for (program, name) in runs {
                let sandbox = Sandbox::temporary(Allocator::System);
                let outcome = sandbox.run_to_any_end(sandbox.plain_command(program).arg(name));
                let outcome = outcome.unwrap_or_else(|error| panic!("{form}: {error}"));
                assert_eq!(
                    outcome.expect_success(),
                    format!("{name} ok\n"),
                    "{form} on the {} build",
                    library.name
                );
                assert_eq!(
                    outcome.stderr_text(),
                    "",
                    "{form} on the {} build",
                    library.name
                );
            }
        }
    }
}

/// Checks that the program's malloc is ours, which static_programs_run_on_the_archive cannot: only
/// our library reads options. (`sized_frees` above would not link without the archive.)
#[test]
fn static_programs_read_the_options() {
    for library in Library::under_test()
        .iter()
        .filter(|library| library.is_mallard_or_skipped())
    {
        let program = Source::new("optioned.c")
            .flags(&["-static"])
            .link(library.archive())
            .compile();
        let sandbox = Sandbox::temporary(Allocator::System);
        let mut command = sandbox.plain_command(&program);
        let outcome = sandbox
            .run_to_any_end(command.env("MALLOC_CONF", "narena:1"))
            .expect("it runs");
        outcome.expect_success();
        assert!(
            outcome.stderr_text().contains("narenas"),
            "advice about the option: {}",
            outcome.account()
        );
    }
}
