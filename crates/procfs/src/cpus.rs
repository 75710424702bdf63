//! Lists of CPUs as the kernel and its tools write them: `0-3,8`.

use std::collections::BTreeSet;

/// More than any Linux machine has; a larger number is a typo.
const CPUS_MAX: usize = 8192;

/// Reads a list; none for any other text.
pub fn parse(text: &str) -> Option<BTreeSet<usize>> {
    let number = |word: &str| {
        let cpu = word.trim().parse::<usize>().ok();
        cpu.filter(|&cpu| cpu < CPUS_MAX)
    };
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return None;
                }
                cpus.extend(first..=last);
            }
            None => {
                cpus.insert(number(part)?);
            }
        }
    }
    Some(cpus)
}
