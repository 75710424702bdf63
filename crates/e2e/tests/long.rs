//! Blocks of mebibytes keep their bytes (`programs/long.c`), however their memory comes and goes.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

#[test]
fn long_blocks_keep_their_bytes_through_moves_threads_and_forks() {
    let program = Source::new("long.c").flags(&["-O1", "-pthread"]).compile();
    for library in Library::under_test() {
        for options in [
            "",
            "dirty_decay_ms:0",
            "dirty_decay_ms:50,muzzy_decay_ms:50",
            "thp:always,retain:false",
        ] {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut command = sandbox.command(&program);
            let outcome = sandbox.run_own(command.env("MALLOC_CONF", options));
            assert_eq!(
                outcome.expect_success(),
                "every byte is where it was\n",
                "{options:?} on the {} build",
                library.name
            );
        }
    }
}
