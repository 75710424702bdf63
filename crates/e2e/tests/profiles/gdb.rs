//! The call stacks of profiles beside those that gdb finds in the same run.

use std::collections::HashSet;
use std::fs;

use libtest_mimic::Trial;
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, installed};
use mallard_profile::read;
use mallard_testing::skipped_test;

pub fn trials() -> Vec<Trial> {
    vec![
        installed::trial(
            "stacks_are_those_that_gdb_finds_in_c",
            &["cc", "gdb"],
            || agree("whole.c", &["-O2", "-pthread"]),
        ),
        installed::trial(
            "stacks_are_those_that_gdb_finds_in_cpp",
            &["c++", "gdb"],
            || agree("whole.cpp", &["-O2", "-pthread"]),
        ),
    ]
}

/// Prints the program counters of the callers at each of the first calls of `malloc` and `operator
/// new`, then lets the program run on without stops. gdb unwinds by the tables of debug information
/// where it has some, and else by those of exceptions.
const SCRIPT: &str = "
import gdb

gdb.execute('set pagination off')
gdb.execute('set confirm off')
gdb.execute('set debuginfod enabled off')
gdb.execute('set backtrace past-main on')
gdb.execute('set backtrace past-entry on')
gdb.execute('set breakpoint pending on')

class Call(gdb.Breakpoint):
    left = 1500

    def stop(self):
        if Call.left == 0:
            return True
        Call.left -= 1
        counters, frame = [], gdb.newest_frame()
        if 'libmallard' not in (gdb.solib_name(frame.pc()) or ''):
            return False
        # Below the first function of a program there are no frames. Inlined functions, and those left
        # by a tail call, have none on the stack.
        while frame is not None and frame.pc() >= 4096:
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                counters.append('%x' % frame.pc())
            frame = frame.older()
        print('stack', *counters[1:])
        return False

Call('malloc')
Call('_Znwm')
gdb.execute('run')
if gdb.selected_inferior().pid:
    gdb.execute('delete')
    gdb.execute('continue')
";

/// The share of gdb's stacks that the profile must have.
const SHARE_MIN: f64 = 0.99;

fn agree(source: &str, flags: &[&str]) -> Result<(), String> {
    let sandbox = Sandbox::temporary(Allocator::System);
    let program = Source::new(source).flags(flags).try_compile()?;
    let script = sandbox.write("stacks.py", SCRIPT);
    let wrapper = format!(
        "set exec-wrapper env LD_PRELOAD={} MALLOC_CONF=prof:true,prof_final:true,\
         prof_accum:true,lg_prof_sample:0,prof_prefix:{}",
        Library::release().shared.display(),
        sandbox.path("stacks").display()
    );
    let mut command = sandbox.plain_command("gdb");
    command.args(["--batch", "-nx", "-ex", &wrapper, "-x"]);
    let outcome = sandbox.run(command.arg(script).arg(program))?;
    let text = outcome.stdout_text();
    let stacks = text.lines().filter_map(|line| line.strip_prefix("stack "));
    let stacks: Vec<Vec<u64>> = stacks.filter_map(parsed).collect();
    if stacks.is_empty() {
        // A debugger needs rights that a container may lack.
        skipped_test(
            source,
            format_args!("gdb stopped at no call: {}", outcome.stderr_text()),
        );
        return Ok(());
    }
    let known = recorded(&sandbox)?;
    let lost: Vec<&Vec<u64>> = stacks
        .iter()
        .filter(|stack| !known.contains(*stack))
        .collect();
    let share = 1.0 - lost.len() as f64 / stacks.len() as f64;
    let frames: usize = stacks.iter().map(Vec::len).sum();
    eprintln!(
        "{source}: {:.2} % of {} stacks with {frames} frames are as gdb's",
        share * 100.0,
        stacks.len()
    );
    if share >= SHARE_MIN {
        return Ok(());
    }
    Err(format!("gdb has stacks such as {:x?}", lost.first()))
}

/// The addresses of calls: one before the counters of gdb's callers.
fn parsed(line: &str) -> Option<Vec<u64>> {
    let words = line.split_whitespace();
    words
        .map(|word| Some(u64::from_str_radix(word, 16).ok()? - 1))
        .collect()
}

/// The stacks of the profile, without frames of the allocator.
fn recorded(sandbox: &Sandbox) -> Result<HashSet<Vec<u64>>, String> {
    let entries = fs::read_dir(sandbox.path("")).map_err(|error| error.to_string())?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "heap"));
    let bytes = fs::read(file.ok_or("no profile")?).map_err(|error| error.to_string())?;
    let profile = read::profile(&bytes).map_err(|error| error.to_string())?;
    let is_ours = |index| {
        let mapping = profile.location(index).mapping;
        mapping.is_some_and(|mapping| profile.mapping(mapping).name().contains("libmallard"))
    };
    let samples = profile.samples.iter();
    let stacks = samples.map(|sample| {
        let callers = sample.stack.iter().skip_while(|&&index| is_ours(index));
        callers
            .map(|&index| profile.location(index).address)
            .collect()
    });
    Ok(stacks.collect())
}
