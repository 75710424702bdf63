//! The commands, each a module with its options. This one assembles the command line and its help.
//!
//! A command may use another: [`tune`] begins with what [`diagnose`] finds, and [`report`] reads
//! what [`baseline`] wrote.

mod allocators;
mod baseline;
mod bench;
mod compare;
mod diagnose;
mod diff;
mod doctor;
mod exec;
mod export;
mod guard;
mod leak;
mod profile;
mod record;
mod replay;
mod report;
mod service;
mod shell;
mod soak;
mod top;
mod trace;
mod tune;

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory, Parser, Subcommand};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Run programs and experiments on Mallard and other allocators, side by side
#[derive(Debug, Parser)]
#[command(
    name = "mallard",
    version,
    styles = STYLES,
    help_template = TEMPLATE,
    after_help = EXAMPLES,
    max_term_width = 100
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(bench::Options),
    Compare(compare::Options),
    Diff(diff::Diff),
    Report(report::Options),
    Run(exec::Options),
    Profile(profile::Options),
    Top(top::Options),
    Export(export::Options),
    Diagnose(diagnose::options::Options),
    Leak(leak::Options),
    Guard(guard::Options),
    Doctor(doctor::Options),
    Record(record::options::Options),
    Replay(replay::options::Options),
    Trace(trace::Options),
    Baseline(baseline::options::Options),
    Tune(tune::options::Options),
    Soak(soak::Options),
    Service(service::Options),
    Allocators(allocators::Options),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl Command {
    /// Runs the command, and returns the code that the process ends with.
    pub fn run(&self) -> Result<ExitCode> {
        match self {
            Command::Bench(options) => bench::run(options),
            Command::Compare(options) => compare::run(options),
            Command::Diff(options) => diff::run(options),
            Command::Report(options) => report::run(options),
            Command::Run(options) => exec::run(options),
            Command::Profile(options) => profile::run(options),
            Command::Leak(options) => leak::run(options),
            Command::Guard(options) => guard::run(options),
            Command::Doctor(options) => doctor::run(options),
            Command::Top(options) => top::run(options),
            Command::Export(options) => export::run(options),
            Command::Diagnose(options) => diagnose::run(options),
            Command::Record(options) => record::run(options),
            Command::Replay(options) => replay::run(options),
            Command::Trace(options) => trace::run(options),
            Command::Baseline(options) => baseline::run(options),
            Command::Tune(options) => tune::run(options),
            Command::Soak(options) => soak::run(options),
            Command::Service(options) => service::run(options),
            Command::Allocators(options) => allocators::run(options),
            Command::Completions(options) => shell::completions(options, Args::command()),
            Command::Man(options) => shell::man(options, Args::command()),
        }
    }
}

/// The commands by what a person wants. clap cannot group subcommands, so the list is written out;
/// a test holds it complete.
const TEMPLATE: &str = "\
{about}

{usage-heading} {usage}

Find out:
  diagnose     Find out whether malloc is a program's bottleneck, and why
  leak         Find memory that a program never freed
  doctor       Find heap bugs in a program, with the line that does it
  guard        Guard blocks of a running process, and name the functions of a finding
  profile      Show which code a heap profile's memory belongs to
  top          Watch the processes on Mallard, live
  export       Serve metrics and heap profiles of the processes on Mallard over HTTP

Compare:
  compare      Run your own program on every allocator in turn
  record       Record what a program allocates, with its times
  replay       Replay a recording on every allocator in turn
  trace        Inspect a recording, cut it, or import another tool's
  bench        Run the lab's experiments on every allocator in turn

Tune and run:
  tune         Find a short option string, or confirm that the defaults are best
  run          Run a program on Mallard or another allocator

Guard and report:
  baseline     Save figures, and check that a later change does not make them worse
  diff         Compare two results of bench or compare row by row
  report       Show results again: as text, as Markdown, as a web page
  soak         Run an allocator for hours beside a model, and check its memory

The lab itself:
  service      List the presets of services, print one, or try one
  allocators   List the allocators, or build the missing ones
  completions  Print completions for a shell
  man          Write the manual pages into a folder

Options:
{options}{after-help}
";

const EXAMPLES: &str = "\
Questions, and what answers them (`--service FILE` instead of `-- PROGRAM` for a server):
  Throughput stops scaling?   mallard diagnose -- PROGRAM   locks of malloc, or the program's own
  P99 spikes?                 mallard diagnose -- PROGRAM   the longest calls and their waits
  RSS never falls?            mallard diagnose -- PROGRAM   a leak, or what the allocator holds back
  Which allocator?            mallard compare -- PROGRAM    all available ones, taking turns
  Would another one help?     mallard diagnose -- PROGRAM   the largest gain from any allocator

Examples:
  mallard run -- redis-server                one program on Mallard
  mallard record -o web.mtrace -- ./server   what it allocates, to be replayed
  mallard tune --service web.toml            which options, if any, make it better
  mallard baseline check web                 whether a change made it worse
  mallard report --open                      the last result as a web page
  mallard profile jeprof.4711.0.f.heap       which code the memory belongs to
  mallard leak -- ./test                     what the program never frees
  mallard doctor -- ./test                   what it writes beside its blocks or frees twice
  mallard top                                the processes on Mallard, live
  mallard export --listen :9700              Prometheus metrics and heap profiles of these processes
  mallard bench --quick                      the basic experiments, in two minutes

Run `mallard COMMAND --help` for details.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::{env, fs};

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_is_in_the_help_s_list() {
        let command = Args::command();
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        for name in shown.map(|command| command.get_name().to_owned()) {
            let line = format!("\n  {name} ");
            assert!(
                name == "help" || TEMPLATE.contains(&line),
                "`{name}` is missing"
            );
        }
    }

    /// The commands and their options, a line for each. Hidden ones are old spellings, which stay.
    fn command_line(command: &clap::Command, path: &str, into: &mut BTreeSet<String>) {
        let options = command
            .get_arguments()
            .filter_map(|option| option.get_long());
        into.extend(options.map(|long| format!("{path} --{long}")));
        for command in command.get_subcommands() {
            let path = format!("{path} {}", command.get_name());
            into.insert(path.clone());
            command_line(command, &path, into);
        }
    }

    /// Scripts have them: one that is taken out fails this, and `MALLARD_BLESS=1` only adds
    /// (`docs/versioning.md`).
    #[test]
    fn commands_and_options_stay() {
        let mut found = BTreeSet::new();
        command_line(&Args::command(), "mallard", &mut found);
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keys/command-line.txt");
        let recorded = fs::read_to_string(file).unwrap_or_default();
        let mut recorded: BTreeSet<String> = recorded.lines().map(str::to_owned).collect();
        if env::var_os("MALLARD_BLESS").is_some() {
            recorded.extend(found.iter().cloned());
            let lines: Vec<&str> = recorded.iter().map(String::as_str).collect();
            fs::write(file, lines.join("\n") + "\n").unwrap();
        }
        let lost: Vec<_> = recorded.difference(&found).collect();
        assert!(lost.is_empty(), "these are gone: {lost:?}");
        let new: Vec<_> = found.difference(&recorded).collect();
        assert!(new.is_empty(), "{file} lacks {new:?}");
    }

    #[test]
    fn lists_and_negative_numbers_are_read() {
        let args = Args::parse_from(["mallard", "bench", "--decay", "-1,0", "-t", "1,4", "pairs"]);
        let Command::Bench(bench) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(bench.work.decay, [-1, 0]);
        assert_eq!(bench.work.threads, [1, 4]);
        assert_eq!(bench.rows, ["pairs"]);
    }

    #[test]
    fn everything_after_the_dashes_belongs_to_the_program() {
        let args = Args::parse_from([
            "mallard", "compare", "-r", "2", "--", "sort", "-r", "--", "x",
        ]);
        let Command::Compare(compare) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(compare.program, ["sort", "-r", "--", "x"]);
        assert_eq!(compare.runs, Some(2));
        let args = Args::parse_from(["mallard", "run", "ls", "--conf", "x"]);
        let Command::Run(run) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(run.program, ["ls", "--conf", "x"]);
    }
}
