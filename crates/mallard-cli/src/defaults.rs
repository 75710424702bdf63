//! `mallard.toml`: a project's defaults for the options of the commands.
//!
//! The file lies in the folder in which the command runs. Each table is named for a command and
//! holds its options by their long names; `[defaults]` holds options of every command that has
//! them. The command line takes precedence. The tables `[service]` and `[metrics]` describe a
//! service, as in any file for `--service`, and are not defaults. Allocators of `[defaults]` reach
//! only commands that can take them: see [`Allocators`].
//!
//! The defaults become words of the command line before it is read, so an option means the same in
//! both places, and results keep the whole command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};
use toml::{Table, Value};

use crate::allocators::choice::AS_IS;
use crate::commands::Args;
use crate::options::command_line;
use crate::terminal::exit::usage;

const FILE_NAME: &str = "mallard.toml";
/// The variable that names another file; empty for none.
const VARIABLE: &str = "MALLARD_TOML";
/// The table for all commands.
const ALL_TABLE: &str = "defaults";
/// Tables that describe a service.
const SERVICE_TABLES: [&str; 2] = ["service", "metrics"];

/// The options that choose allocators.
const CHOOSING: [&str; 3] = ["allocator", "variant", "add"];

/// The allocators that a command takes from the table for all commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allocators {
    /// All that the table has.
    Several,
    /// A single one, and none of several.
    One,
    /// None: others are kept in a file, or always named.
    Own,
}

impl Allocators {
    fn of(path: &[&str]) -> Allocators {
        match path {
            ["run" | "record" | "service" | "diff"] | ["baseline", "save"] => Allocators::One,
            ["baseline", _] => Allocators::Own,
            _ => Allocators::Several,
        }
    }

    /// Whether a command takes a value of the table, beside what the user typed.
    fn take(self, path: &[&str], long: &str, all: &Table, typed: impl Fn(&str) -> bool) -> bool {
        let texts = |long: &str| all.get(long).and_then(texts).unwrap_or_default();
        let any_typed = CHOOSING.iter().any(|long| typed(long));
        if long == "conf" {
            // The saved option string is for the saved allocator, and a recording takes one only
            // with an allocator.
            let named = any_typed || texts("allocator").len() == 1;
            return self != Allocators::Own && (named || path != ["record"]);
        }
        if !CHOOSING.contains(&long) {
            return true;
        }
        // Only `compare` knows what this is.
        let is_as_is = long == "allocator" && texts(long).iter().any(|name| name == AS_IS);
        if is_as_is && path != ["compare"] {
            return false;
        }
        match self {
            Allocators::Several => true,
            Allocators::Own => false,
            // A library beside the one that is named only gives a name its meaning.
            Allocators::One if long == "add" => {
                typed("allocator") || typed("variant") || texts("allocator").len() == 1
            }
            Allocators::One => texts(long).len() == 1 && !any_typed,
        }
    }
}

/// The words of the command line, with those of the file.
pub fn words() -> Result<Vec<OsString>> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let words = match read()? {
        None => typed,
        Some((file, tables)) => {
            check(&file, &tables)?;
            let (words, added) = with_defaults(&tables, typed);
            if !added.is_empty() {
                eprintln!("{}: {}", file.display(), added.join(" "));
            }
            words
        }
    };
    command_line::keep(words.clone());
    Ok(words)
}

fn read() -> Result<Option<(PathBuf, Table)>> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let file = match &named {
        Some(named) if named.as_os_str().is_empty() => return Ok(None),
        Some(named) => named.as_path(),
        None => Path::new(FILE_NAME),
    };
    if named.is_none() && !file.exists() {
        return Ok(None);
    }
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let tables = text
        .parse::<Table>()
        .map_err(|error| usage(format!("{}: {}", file.display(), one_line(&error))))?;
    Ok(Some((file.to_owned(), tables)))
}

/// The message of a parser, which draws the place on several lines.
fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}

/// Refuses what no command knows.
fn check(file: &Path, tables: &Table) -> Result<()> {
    let mut root = Args::command();
    root.build();
    let commands = || root.get_subcommands().filter(|c| c.get_name() != "help");
    let wrong = |what: String| Err(usage(format!("{}: {what}", file.display())));
    for (name, value) in tables {
        let Value::Table(table) = value else {
            return wrong(format!(
                "`{name}` is in no table; write it below [{ALL_TABLE}] or a command such as [compare]"
            ));
        };
        // The command `service` has no options that a project would set.
        if SERVICE_TABLES.contains(&name.as_str()) {
            continue;
        }
        if name == ALL_TABLE {
            let known: Vec<&str> = commands().flat_map(longs).collect();
            if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
                return wrong(format!(
                    "[{ALL_TABLE}]: no command has an option `{key}`{}",
                    near(key, &known)
                ));
            }
            continue;
        }
        let Some(command) = root.find_subcommand(name) else {
            let known: Vec<&str> = commands().map(Command::get_name).collect();
            return wrong(format!("[{name}]: no command{}", near(name, &known)));
        };
        if let Err(problem) = check_table(name, command, table) {
            return wrong(problem);
        }
    }
    Ok(())
}

fn check_table(name: &str, command: &Command, table: &Table) -> Result<(), String> {
    for (key, value) in table {
        if let (Value::Table(table), Some(inner)) = (value, command.find_subcommand(key)) {
            check_table(&format!("{name}.{key}"), inner, table)?;
            continue;
        }
        let known: Vec<&str> = longs(command).collect();
        if !known.contains(&key.as_str()) {
            return Err(format!("[{name}]: no option `{key}`{}", near(key, &known)));
        }
        if texts(value).is_none() {
            return Err(format!(
                "[{name}]: `{key}` takes a text, a number, true, or a list of those"
            ));
        }
    }
    Ok(())
}

/// The long names of a command's options that a file can set.
fn longs(command: &Command) -> impl Iterator<Item = &str> {
    let options = command.get_arguments().filter(|arg| settable(arg));
    options.filter_map(|arg| arg.get_long())
}

fn settable(arg: &Arg) -> bool {
    let action = arg.get_action();
    !matches!(
        action,
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

fn near(word: &str, known: &[&str]) -> String {
    let distance = |known: &&&str| strsim::damerau_levenshtein(word, known);
    let nearest = known.iter().min_by_key(distance);
    let near = nearest.filter(|known| distance(known) <= known.len() / 2);
    near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"))
}

/// The texts of a value: several for a list, `true` or `false` for a flag.
fn texts(value: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    };
    match value {
        Value::Array(all) => all.iter().map(one).collect(),
        value => Some(vec![one(value)?]),
    }
}

/// The typed words with the defaults behind their command's name, and the words that were added.
fn with_defaults(tables: &Table, typed: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut root = Args::command();
    root.build();
    // A wrong command line is read again, and refused, by the caller.
    let Ok(matches) = root
        .clone()
        .ignore_errors(true)
        .try_get_matches_from(&typed)
    else {
        return (typed, Vec::new());
    };
    let all = tables.get(ALL_TABLE).and_then(Value::as_table);
    let (mut command, mut given, mut table) = (&root, &matches, Some(tables));
    let (mut words, mut added, mut from) = (typed, Vec::new(), 1);
    let mut path = Vec::new();
    while let Some((name, inner)) = given.subcommand() {
        let Some(found) = command.find_subcommand(name) else {
            break;
        };
        let Some(place) = words.iter().skip(from).position(|word| word == name) else {
            break;
        };
        from += place + 1;
        (command, given) = (found, inner);
        path.push(name);
        let allocators = Allocators::of(&path);
        table = table
            .and_then(|table| table.get(name))
            .and_then(Value::as_table);
        let mut own: Vec<String> = Vec::new();
        for arg in command.get_arguments().filter(|arg| settable(arg)) {
            let Some(long) = arg.get_long() else { continue };
            let is_typed = |long: &str| {
                let arg = command
                    .get_arguments()
                    .find(|arg| arg.get_long() == Some(long));
                arg.is_some_and(|arg| is_typed(arg, given))
            };
            let of_all = all.filter(|all| allocators.take(&path, long, all, is_typed));
            let mut tables = [table, of_all].into_iter().flatten();
            let Some(value) = tables.find_map(|table| table.get(long)) else {
                continue;
            };
            if !typed_instead(command, arg, given) {
                own.extend(option(arg, long, value));
            }
        }
        let count = own.len();
        words.splice(from..from, own.iter().map(OsString::from));
        from += count;
        added.extend(own);
    }
    (words, added)
}

fn is_typed(arg: &Arg, given: &ArgMatches) -> bool {
    let id = arg.get_id().as_str();
    given.try_contains_id(id).is_ok() && given.value_source(id) == Some(ValueSource::CommandLine)
}

/// Whether the user typed this option, or one that excludes it.
fn typed_instead(command: &Command, arg: &Arg, given: &ArgMatches) -> bool {
    let excludes = |one: &Arg, other: &Arg| {
        let conflicts = command.get_arg_conflicts_with(one);
        conflicts.iter().any(|arg| arg.get_id() == other.get_id())
    };
    let mut others = command
        .get_arguments()
        .filter(|other| is_typed(other, given));
    others
        .any(|other| other.get_id() == arg.get_id() || excludes(arg, other) || excludes(other, arg))
}

/// An option as words.
fn option(arg: &Arg, long: &str, value: &Value) -> Vec<String> {
    let texts = texts(value).unwrap_or_default();
    if arg.get_action().takes_values() {
        let words = texts.iter().map(|text| format!("--{long}={text}"));
        return words.collect();
    }
    match texts.first().map(String::as_str) {
        Some("true") => vec![format!("--{long}")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(file: &str, typed: &[&str]) -> Vec<String> {
        let tables: Table = file.parse().unwrap();
        check(Path::new(FILE_NAME), &tables).unwrap();
        let typed = typed.iter().map(OsString::from).collect();
        let (words, added) = with_defaults(&tables, typed);
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert!(added.iter().all(|word| words.contains(&word.as_str())));
        added
    }

    const TEXT: &str = "
        [defaults]
        cpus = '0'
        allocator = ['glibc', 'mallard']
        [compare]
        runs = 9
        no-warm = true
        service = 'redis'
        [baseline.check]
        fail-if = ['p99>+5%']
        [service]
        start = ['x']";

    #[test]
    fn options_of_the_command_and_of_all_commands_are_added() {
        let mut of_compare = added(TEXT, &["mallard", "compare", "--", "ls"]);
        of_compare.sort();
        assert_eq!(
            of_compare,
            [
                "--allocator=glibc",
                "--allocator=mallard",
                "--cpus=0",
                "--no-warm",
                "--runs=9"
            ]
        );
        assert!(added(TEXT, &["mallard", "compare"]).contains(&"--service=redis".to_owned()));
        let of_check = added(TEXT, &["mallard", "baseline", "check", "web"]);
        assert!(
            of_check.contains(&"--fail-if=p99>+5%".to_owned()),
            "{of_check:?}"
        );
        assert!(added(TEXT, &["mallard", "completions", "bash"]).is_empty());
    }

    #[test]
    fn what_the_user_types_wins() {
        let typed = [
            "mallard", "compare", "-a", "jemalloc", "--runs=3", "--", "ls", "-r",
        ];
        // What is for a program has no place beside a service.
        let prepare = "[compare]\nprepare = 'true'";
        let service = ["mallard", "compare", "--service", "redis"];
        assert_eq!(added(prepare, &service), [""; 0]);
        let added = added(TEXT, &typed);
        assert!(!added.iter().any(|word| word.starts_with("--allocator")));
        assert!(!added.iter().any(|word| word.starts_with("--runs")));
        // Words behind the dashes belong to the program.
        assert!(added.contains(&"--cpus=0".to_owned()), "{added:?}");
    }

    #[test]
    fn allocators_for_all_commands_reach_those_that_take_them() {
        let of = |file: &str, typed: &[&str]| {
            let typed = [&["mallard"], typed].concat();
            let added = added(file, &typed).into_iter();
            let chosen = added.filter(|word| !word.starts_with("--cpus"));
            chosen.collect::<Vec<_>>().join(" ")
        };
        let (run, save) = (["run", "--", "ls"], ["baseline", "save", "x", "--", "ls"]);
        let (check, ab) = (["baseline", "check", "x"], ["baseline", "ab", "--", "ls"]);
        let (record, diff) = (["record", "--", "ls"], ["diff", "a", "b"]);
        let service = ["service", "--try", "redis"];
        let ones: [&[&str]; 5] = [&run, &save, &record, &diff, &service];
        for typed in ones.into_iter().chain([&ab[..]]) {
            assert_eq!(of(TEXT, typed), "", "{typed:?}");
        }
        assert_eq!(of(TEXT, &check), "--fail-if=p99>+5%");
        let several = "--allocator=glibc --allocator=mallard";
        assert_eq!(of(TEXT, &["tune", "--", "ls"]), several);
        // One is for everything that measures now.
        let one = "[defaults]\nallocator = 'mallard'\nconf = 'narenas:1'";
        for typed in ones {
            assert!(of(one, typed).contains("--allocator=mallard"), "{typed:?}");
        }
        assert_eq!(of(one, &check), "");
        assert_eq!(of("[defaults]\nconf = 'narenas:1'", &record), "");
        let variant = ["run", "--variant", "a=mallard", "--", "ls"];
        assert!(!of(one, &variant).contains("--allocator"));
        // A command gets what its own table says.
        let own = "[run]\nallocator = ['glibc', 'mallard']";
        assert_eq!(of(own, &run), several);
        let as_is = "[defaults]\nallocator = ['as-is']";
        assert_eq!(of(as_is, &run), "");
        assert_eq!(of(as_is, &["compare", "--", "ls"]), "--allocator=as-is");
        let library = "[defaults]\nadd = ['mine=/x.so', 'other=/y.so']";
        assert_eq!(of(library, &run), "");
        let named = ["run", "-a", "mine", "--", "ls"];
        assert_eq!(of(library, &named), "--add=mine=/x.so --add=other=/y.so");
    }

    #[test]
    fn what_no_command_knows_is_refused_with_the_nearest() {
        for (file, part) in [
            (
                "[compare]\nrusn = 3",
                "[compare]: no option `rusn` (did you mean `runs`?)",
            ),
            (
                "[compar]\nruns = 3",
                "[compar]: no command (did you mean `compare`?)",
            ),
            ("[defaults]\ncpu = '0'", "did you mean `cpus`?"),
            ("runs = 3", "is in no table"),
            ("[compare]\nruns = { a = 1 }", "takes a text"),
        ] {
            let tables: Table = file.parse().unwrap();
            let error = check(Path::new(FILE_NAME), &tables)
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{file}: {error}");
        }
    }
}
