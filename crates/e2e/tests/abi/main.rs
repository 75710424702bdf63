//! The C functions of the library, loaded beside the C library's, answer as those do. Inputs are
//! those that the fuzzer has kept (`fuzz/corpus`), and some made up at random; the seed of those is
//! printed when one fails, and `MALLARD_SEED` repeats it.

#[path = "../../../core/tests/histories/checks/bytes.rs"]
mod bytes;
mod checks;
#[path = "../../../core/tests/histories/random.rs"]
mod random;

use checks::Face;
use mallard_e2e::{Library, repository, target};

#[test]
fn the_functions_of_c_answer_as_the_c_library_s_do() {
    if target().lacks_glibc("functions to compare with") || target().is_emulated() {
        return;
    }
    let theirs = Face::of("libc.so.6");
    for library in Library::under_test() {
        let ours = Face::of(library.shared.to_str().expect("a path in UTF-8"));
        let corpus = repository().join("fuzz/corpus/abi");
        random::check(&corpus, 1500, |bytes| checks::calls(&ours, &theirs, bytes));
    }
}
