//! Runs one scenario of `programs/instructions.c` under callgrind and counts the instructions of
//! the library's own functions.
//!
//! Collection covers the program's function `counted`, and the sum covers what callgrind attributes
//! to the library. The C library's part (copying, clearing, system calls) is left out, since it
//! differs between processors and versions of glibc.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

/// The result of counting one scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    pub operations: u64,
    pub instructions: u64,
}

impl Count {
    pub fn per_operation(&self) -> f64 {
        self.instructions as f64 / self.operations as f64
    }
}

/// The program with the scenarios. Its functions are in the dynamic symbol table, so that the
/// library finds the program's clock.
pub fn program() -> PathBuf {
    Source::new("instructions.c")
        .flags(&["-O2", "-fno-plt", "-rdynamic"])
        .compile()
}

/// The names of all scenarios, in order.
pub fn scenarios(program: &Path) -> Vec<String> {
    let sandbox = Sandbox::temporary(Allocator::System);
    let outcome = sandbox
        .run(&mut sandbox.plain_command(program))
        .expect("the program lists its scenarios");
    let text = String::from_utf8(outcome.stdout).expect("names are text");
    text.lines().map(str::to_owned).collect()
}

/// Counts a scenario, with extra environment variables.
pub fn count(
    program: &Path,
    scenario: &str,
    library: &Library,
    variables: &[(&str, &str)],
) -> Count {
    let sandbox = Sandbox::temporary(Allocator::System);
    let profile = sandbox.path("profile");
    let mut valgrind = sandbox.plain_command("valgrind");
    valgrind
        .envs(variables.iter().copied())
        .env("LD_PRELOAD", &library.shared)
        .args(["--tool=callgrind", "--toggle-collect=counted", "--quiet"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .arg(scenario);
    let outcome = sandbox
        .run(&mut valgrind)
        .unwrap_or_else(|error| panic!("{scenario} under callgrind: {error}"));
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let operations = said
        .strip_prefix("operations ")
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("{scenario} did not tell its operations: {said:?}"));
    let text = std::fs::read_to_string(&profile)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", profile.display()));
    let instructions = own_instructions(&text, &library.shared.to_string_lossy());
    assert!(
        operations > 0 && instructions > 0,
        "{scenario}: {operations} operations took {instructions} instructions of {}",
        library.shared.display()
    );
    Count {
        operations,
        instructions,
    }
}

/// The object under which callgrind files code that is in no object's `.text`.
const NO_OBJECT: &str = "???";

/// The instructions of `object`'s own functions, or of no object, in a profile in callgrind's
/// format. An `ob=` line names the object of the cost lines that follow. A name appears in full
/// once, with its number, and later as the number only. The cost line after `calls=` belongs to the
/// callee.
pub fn own_instructions(profile: &str, object: &str) -> u64 {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut inside, mut callee_s, mut sum) = (false, false, 0);
    for line in profile.lines() {
        let named = line
            .strip_prefix("ob=")
            .map(|rest| (rest, true))
            .or_else(|| line.strip_prefix("cob=").map(|rest| (rest, false)));
        if let Some((rest, caller)) = named {
            let (number, name) = rest.split_once(' ').unwrap_or((rest, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if caller {
                inside = names
                    .get(number)
                    .is_some_and(|&name| name == object || name == NO_OBJECT);
            }
        } else if line.starts_with("calls=") {
            callee_s = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            if inside && !callee_s {
                let cost = line.split_whitespace().nth(1);
                sum += cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
            }
            callee_s = false;
        }
    }
    sum
}

#[test]
fn only_the_object_s_own_cost_lines_and_those_of_none_are_summed() {
    let profile = "\
events: Ir

ob=(1) /usr/bin/program
fl=(1) ???
fn=(1) main
10 5
cob=(2) /lib/ours.so
cfn=(2) malloc
calls=3 20
10 45
+1 2

ob=(2)
fn=(2)
20 40
cob=(3) /lib/libc.so.6
cfn=(3) memcpy
calls=1 7
* 900
-2 5

ob=(3)
fn=(3)
7 900

ob=(4) ???
fn=(4) 0x4a11c20
30 80
cob=(3)
cfn=(3)
calls=1 7
+2 60000

totals: 1032
";
    assert_eq!(own_instructions(profile, "/lib/ours.so"), 45 + 80);
    assert_eq!(own_instructions(profile, "/usr/bin/program"), 7 + 80);
    assert_eq!(own_instructions(profile, "/lib/libc.so.6"), 900 + 80);
    assert_eq!(own_instructions(profile, "/lib/other.so"), 80);
}
