//! Extent hooks that refuse and lie (`histories/checks/hooks.rs`), in a process of their own, in
//! which no other test makes arenas.

#[path = "histories/checks/mod.rs"]
mod checks;
#[path = "histories/random.rs"]
mod random;

use std::path::Path;

#[test]
fn hooks_that_lie_do_no_harm_or_end_the_process_with_a_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hooks");
    random::check(&folder, 300, checks::hooks::hooks);
}
