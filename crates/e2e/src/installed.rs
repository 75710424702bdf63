//! Programs that a machine may lack, for tests with a list of trials: one that lacks a program is
//! ignored, with a line that says so, or fails where programs are required. The other tests use
//! [`mallard_testing`], which has the rule.

use libtest_mimic::{Failed, Trial};
use mallard_testing::{advice, are_required, missing, skipped_test};

/// A test that needs these programs. Without them it is ignored, or fails if they are required.
pub fn trial(
    name: &'static str,
    needs: &'static [&'static str],
    run: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Trial {
    let missing = missing(needs);
    let skipped = !missing.is_empty() && !are_required();
    if skipped {
        skipped_test(name, advice(&missing.join(", ")));
    }
    Trial::test(name, move || {
        if !missing.is_empty() {
            return Err(Failed::from(advice(&missing.join(", "))));
        }
        run().map_err(Failed::from)
    })
    .with_ignored_flag(skipped)
}
