//! The programs `misuse` and `misuse_new` (`bench/workloads/misuse.h`): their cases, and how one
//! ends on an allocator.

use std::time::Duration;

use anyhow::{Result, bail};
use mallard_allocators::Allocator;
use mallard_report::misuse::Outcome;
use mallard_runner::{Cpus, End, Launcher, Measurement, Spec};

use crate::workloads::conditions::{self, LIBRARY_PATH};
use crate::workloads::setting::Setting;
use crate::workloads::{ANSWER_BYTES_MAX, Workloads};

const PROGRAMS: [&str; 2] = ["misuse", "misuse_new"];
/// A broken heap may turn a loop of the allocator into an endless one.
pub const LIMIT_SECONDS: u64 = 10;
/// What a case writes before it misuses anything.
const BEGINS: &str = "begins\n";
/// The exit codes of a case whose misuse had no effect, and of one that went on.
const PREVENTED: i32 = 40;
const WENT_ON: i32 = 42;

/// A mistake that a program can make.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    program: &'static str,
    pub counted: bool,
    pub kind: String,
    pub name: String,
    pub sizes: Vec<u64>,
    pub what: String,
}

/// All cases, as the programs list them: the counted ones first.
pub fn list(launcher: &Launcher, workloads: &Workloads) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for program in PROGRAMS {
        let measured = launcher.run(&Spec {
            program: workloads.plain(program).into(),
            arguments: vec!["list".into()],
            without: [
                &conditions::foreign_settings()[..],
                &[LIBRARY_PATH.to_owned()],
            ]
            .concat(),
            ..Spec::default()
        })?;
        let text = measured.stdout.head(ANSWER_BYTES_MAX)?;
        for line in text.lines() {
            match case(program, line) {
                Some(case) => cases.push(case),
                None => bail!("{program} lists a case in an unknown form: {line}"),
            }
        }
    }
    cases.sort_by_key(|case| !case.counted);
    Ok(cases)
}

fn case(program: &'static str, line: &str) -> Option<Case> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [set, kind, name, sizes, what] = fields[..] else {
        return None;
    };
    let sizes = sizes.split(',').map(|size| size.parse().ok());
    Some(Case {
        program,
        counted: set == "counted",
        kind: kind.to_owned(),
        name: name.to_owned(),
        sizes: sizes.collect::<Option<_>>()?,
        what: what.to_owned(),
    })
}

/// The cases that these words name, by their names or kinds; all if there is no word. An error is a
/// sentence.
pub fn select(cases: Vec<Case>, words: &[String]) -> Result<Vec<Case>, String> {
    let kind = |case: &Case| case.kind.replace(' ', "-");
    let is_meant = |case: &Case, word: &String| case.name == *word || kind(case) == *word;
    for word in words {
        if !cases.iter().any(|case| is_meant(case, word)) {
            let known = cases
                .iter()
                .flat_map(|case| [case.name.clone(), kind(case)]);
            let nearest = known.min_by_key(|known| strsim::damerau_levenshtein(word, known));
            let hint = nearest.map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
            return Err(format!(
                "unknown misuse `{word}`{hint}; `mallard bench list misuse` has them all"
            ));
        }
    }
    let mut cases = cases;
    cases.retain(|case| words.is_empty() || words.iter().any(|word| is_meant(case, word)));
    Ok(cases)
}

/// Runs cases.
pub struct Programs<'a> {
    pub launcher: &'a Launcher,
    pub workloads: &'a Workloads,
    pub cpus: Option<Cpus>,
    pub timeout: Option<Duration>,
}

impl Programs<'_> {
    /// Runs a case on blocks of this size, on the heap aged by this seed; 0 is a fresh heap. Also
    /// returns the last line that it wrote to standard error.
    pub fn run(
        &self,
        case: &Case,
        size: u64,
        seed: u32,
        allocator: &Allocator,
    ) -> Result<(Outcome, String)> {
        let environment = Setting::Default.environment(allocator);
        let words = [case.name.clone(), size.to_string(), seed.to_string()];
        let measured = self.launcher.run(&Spec {
            program: self.workloads.plain(case.program).into(),
            arguments: words.map(Into::into).to_vec(),
            environment: environment.expect("every allocator has its defaults"),
            without: [
                &conditions::foreign_settings()[..],
                &[LIBRARY_PATH.to_owned()],
            ]
            .concat(),
            cpus: self.cpus.clone(),
            timeout: self.timeout,
            ..Spec::default()
        })?;
        let said = measured.stderr.last_lines(1)?.pop().unwrap_or_default();
        Ok((outcome(&measured, &said)?, said))
    }
}

fn outcome(measured: &Measurement, said: &str) -> Result<Outcome> {
    let begins = measured.stdout.head(BEGINS.len())? == BEGINS;
    Ok(match measured.end {
        End::TimedOut | End::Stopped => Outcome::TimedOut,
        End::Code(WENT_ON) => Outcome::WentOn,
        End::Code(PREVENTED) => Outcome::Prevented,
        End::Signal(signal) if begins => Outcome::Stopped(signal),
        End::Signal(signal) => Outcome::Failed(format!("signal {signal} before it began")),
        End::Code(code) => Outcome::Failed(format!("exit code {code}: {said}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<Case> {
        let lines = [
            "counted\tdouble free\tat_once\t8,4096\tfree twice",
            "further\toverflow\tover_8\t8\twrites",
        ];
        lines.map(|line| case("misuse", line).unwrap()).to_vec()
    }

    #[test]
    fn a_line_is_a_case_with_its_sizes() {
        let [one, other] = &cases()[..] else { panic!() };
        assert_eq!((one.counted, &one.sizes[..]), (true, &[8, 4096][..]));
        assert_eq!((other.counted, other.kind.as_str()), (false, "overflow"));
        for wrong in ["counted\tx\ty\t8", "counted\tx\ty\teight\tz"] {
            assert_eq!(case("misuse", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cases_are_named_by_name_or_kind_and_the_nearest_is_proposed() {
        let names = |words: &[&str]| -> Result<Vec<String>, String> {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            Ok(select(cases(), &words)?
                .into_iter()
                .map(|case| case.name)
                .collect())
        };
        assert_eq!(names(&[]).unwrap(), ["at_once", "over_8"]);
        assert_eq!(names(&["double-free"]).unwrap(), ["at_once"]);
        assert_eq!(names(&["over_8"]).unwrap(), ["over_8"]);
        let error = names(&["over_9"]).unwrap_err();
        assert!(error.contains("did you mean `over_8`?"), "{error}");
    }
}
