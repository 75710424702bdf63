//! A mistake in an option string prints one line, and aborts only if the program asked for it.

use super::common::{optioned, run_optioned};
use super::{SIGABRT, on_each, said_one_line};
use mallard_e2e::{Allocator, Sandbox};

/// The mistake in each string, and what the line about it must contain. The unit tests of `conf`
/// have the others.
const MISTAKES: &[(&str, &[&str])] = &[
    ("narena:2", &["narena", "narenas"]),
    ("narenas:banana", &["narenas", "banana", "1 to 1024"]),
    ("zero:tr\u{1b}[31mue", &["zero", r"\x1b"]),
];

#[test]
fn a_mistake_gets_its_line_and_aborts_only_where_the_program_asked_for_it() {
    on_each(|library| {
        for (conf, words) in MISTAKES {
            let outcome = run_optioned(library, &[("MALLOC_CONF", conf)], "nothing");
            said_one_line(&outcome, words);
            let fatal = format!("abort_conf:true,{conf}");
            // Not every C library lets the witness speak before the first allocation.
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut command = sandbox.command(optioned());
            let outcome = sandbox
                .run_to_any_end(command.env("MALLARD_CONF", &fatal).arg("nothing"))
                .expect("it starts");
            assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
        }
        assert_eq!(
            run_optioned(library, &[("MALLOC_CONF", "")], "nothing").stderr_text(),
            "",
            "an empty string is not a mistake"
        );
    });
}
