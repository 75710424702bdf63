//! Option strings: checked by the allocator itself, before anything is measured with them.
//!
//! An allocator that does not understand an option writes a line to standard error and goes on
//! with its defaults, which a table would then present as the setting. So the probe program runs
//! under the string first, and any complaint of the allocator refuses it.

use std::path::Path;

use super::probe::{self, Run};
use crate::{Allocator, Kind};

/// How the lines of an allocator that complains about its options begin.
const COMPLAINTS: [&str; 2] = ["mallard: ", "<jemalloc>: "];

/// Why an allocator refuses an option string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// What the allocator says, or why it cannot be asked.
    reason: String,
    /// The valid key that the allocator names in it as the nearest.
    pub nearest: Option<String>,
}

impl From<String> for Refused {
    fn from(reason: String) -> Refused {
        Refused {
            nearest: nearest(&reason).map(str::to_owned),
            reason,
        }
    }
}

/// Checks an option string with the allocator that is to read it.
pub fn check(allocator: &Allocator, conf: &str, cache: Option<&Path>) -> Result<(), Refused> {
    if !allocator.reads_conf() {
        return Err(no_reader(allocator).into());
    }
    let Run {
        ended_well,
        complaints,
    } = probe::run_with(allocator, conf, cache)?;
    let said: Vec<String> = complaints.lines().filter_map(complaint).collect();
    if !said.is_empty() {
        return Err(said.join("; ").into());
    }
    if ended_well {
        Ok(())
    } else {
        let reason = format!("a probe program failed under it: {}", complaints.trim());
        Err(reason.into())
    }
}

/// Why an allocator cannot be given an option string.
pub fn no_reader(allocator: &Allocator) -> String {
    match allocator.kind {
        Kind::Glibc => {
            "glibc reads no option string; it is tuned by GLIBC_TUNABLES and MALLOC_ARENA_MAX"
                .to_owned()
        }
        _ => format!("{} reads no option string", allocator.name),
    }
}

/// What an allocator says about its options in a line of its error output.
fn complaint(line: &str) -> Option<String> {
    let rest = COMPLAINTS
        .iter()
        .find_map(|begin| line.strip_prefix(begin))?;
    // The message of `abort_conf`, and a notice that is not about the string.
    if rest.starts_with("abort_conf") || rest.starts_with("Abort (abort_conf") {
        return None;
    }
    let rest = rest.split_once("_CONF: ").map_or(rest, |(_, said)| said);
    Some(rest.trim().to_owned())
}

/// The key that Mallard proposes in a complaint.
fn nearest(complaint: &str) -> Option<&str> {
    let (_, key) = complaint.split_once("did you mean \"")?;
    Some(key.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_names_the_nearest_key() {
        let refused = |said: &str| Refused::from(said.to_owned()).nearest;
        let said = r#"unknown option "narenass"; did you mean "narenas"?"#;
        assert_eq!(refused(said).as_deref(), Some("narenas"));
        assert_eq!(refused("Invalid conf pair: narenass:2"), None);
    }

    #[test]
    fn a_complaint_is_the_part_that_a_reader_needs() {
        assert_eq!(
            complaint("mallard: MALLARD_CONF: unknown option \"x\"; did you mean \"y\"?").unwrap(),
            "unknown option \"x\"; did you mean \"y\"?"
        );
        assert_eq!(
            complaint("<jemalloc>: Invalid conf pair: dirty_decay:0").unwrap(),
            "Invalid conf pair: dirty_decay:0"
        );
        assert_eq!(
            complaint("mallard: abort_conf:true: aborting after 1 error"),
            None
        );
        assert_eq!(complaint("ERROR: ld.so: object not found"), None);
    }
}
