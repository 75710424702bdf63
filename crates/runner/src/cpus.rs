//! A set of CPUs in the usual notation: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of CPUs that is never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(BTreeSet<usize>);

/// Why a text is not a set of CPUs, or not a set that can be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpusError {
    #[error("`{0}` is not a list of CPUs such as 0-3,8")]
    Syntax(String),
    #[error("CPU {missing} is not available; this process may run on {allowed}")]
    NotAllowed { missing: usize, allowed: Cpus },
}

impl Cpus {
    /// The CPUs that this process may run on.
    pub fn allowed() -> Cpus {
        let set = rustix::thread::sched_getaffinity(None);
        let found = set.map(|set| {
            (0..rustix::thread::CpuSet::MAX_CPU)
                .filter(|&cpu| set.is_set(cpu))
                .collect::<BTreeSet<_>>()
        });
        match found {
            Ok(cpus) if !cpus.is_empty() => Cpus(cpus),
            // The machine has more CPUs than fit in the set that the system call takes.
            _ => Cpus((0..std::thread::available_parallelism().map_or(1, |n| n.get())).collect()),
        }
    }

    /// The number of CPUs.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the set if this process may run on all of its CPUs.
    pub fn usable(self) -> Result<Cpus, CpusError> {
        let allowed = Cpus::allowed();
        match self.0.difference(&allowed.0).next() {
            Some(&missing) => Err(CpusError::NotAllowed { missing, allowed }),
            None => Ok(self),
        }
    }

    /// The form that the launcher reads: `0,1,2,8`.
    pub(crate) fn spelled_out(&self) -> String {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        numbers.join(",")
    }
}

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Cpus, CpusError> {
        let cpus = mallard_procfs::cpus::parse(text);
        cpus.map(Cpus)
            .ok_or_else(|| CpusError::Syntax(text.to_owned()))
    }
}

/// Writes consecutive numbers as ranges.
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_cpus_are_parsed_and_shown_in_their_shortest_form() {
        for (text, shown, spelled) in [
            ("0", "0", "0"),
            ("0-3,8", "0-3,8", "0,1,2,3,8"),
            ("5,4,4,3", "3-5", "3,4,5"),
            ("1, 3", "1,3", "1,3"),
        ] {
            let cpus: Cpus = text.parse().unwrap();
            assert_eq!(cpus.to_string(), shown);
            assert_eq!(cpus.spelled_out(), spelled);
        }
    }

    #[test]
    fn a_text_that_is_no_list_is_rejected_and_quoted() {
        for text in ["", ",", "a", "3-1", "-1", "0-", "99999", "1,,2"] {
            let error = text.parse::<Cpus>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_missing_cpu_is_named_with_the_available_ones() {
        let allowed = Cpus::allowed();
        assert_eq!(allowed.clone().usable(), Ok(allowed.clone()));
        let error = "8000".parse::<Cpus>().unwrap().usable().unwrap_err();
        assert!(error.to_string().contains("CPU 8000"), "{error}");
        assert!(error.to_string().contains(&allowed.to_string()), "{error}");
    }
}
