//! Programs written for jemalloc compile with our header, as C and as C++, with plain and prefixed
//! names, and its functions with flags do what jemalloc's manual says (`programs/extended.c`).

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

/// Runs each form of the program on each build of the library.
fn passes(name: &str) {
    let library = Library::release();
    let forms: [(&str, &[&str]); 4] = [
        ("extended.c", &[]),
        ("extended.c", &["-DPREFIX"]),
        ("extended.cpp", &[]),
        ("extended.cpp", &["-DPREFIX"]),
    ];
    for (file, form) in forms {
        let mut flags = form.to_vec();
        flags.extend(["-Wall", "-Wextra", "-Werror", "-O1"]);
        let program = Source::new(file).flags(&flags).with_headers();
        let program = program.link(&library.shared);
        let program = program.compile();
        for library in Library::under_test() {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let outcome = sandbox.run_own(sandbox.command(&program).arg(name));
            assert_eq!(
                outcome.expect_success(),
                format!("{name} ok\n"),
                "{file} {form:?} on the {} build",
                library.name
            );
            assert_eq!(
                outcome.stderr_text(),
                "",
                "{file} {form:?} on {}",
                library.name
            );
        }
    }
}

#[test]
fn every_combination_of_flags_gives_what_it_says() {
    passes("combinations");
}

#[test]
fn zeroed_blocks_that_grow_have_nothing_old_in_the_middle() {
    passes("growth_of_zeroed");
}

#[test]
fn xallocx_resizes_in_place_or_not_at_all() {
    passes("xallocx");
}

#[test]
fn impossible_requests_are_refused_and_change_nothing() {
    passes("refusals");
}

#[test]
fn smallocx_tells_the_usable_size() {
    passes("smallocx");
}

#[test]
fn the_c_functions_answer_to_their_prefixed_names() {
    passes("prefixed");
}

#[test]
fn lines_go_to_the_programs_own_function() {
    passes("message");
}

#[test]
fn the_programs_own_options_are_read_by_either_name() {
    passes("options");
}
