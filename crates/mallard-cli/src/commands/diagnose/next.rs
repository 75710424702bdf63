//! What to try next: the suggestions of the judge as commands and words.

use std::fs;
use std::path::Path;

use mallard_allocators::{probe, program};
use mallard_formats::variables::{MALLARD_CONF, MALLOC_CONF};
use mallard_judge::diagnose::Verdict;
use mallard_judge::diagnose::advice::{self, Facts, HugePages};
use mallard_report::diagnosis::{
    Allocator, Change, Effect, Figures, Next, Setting, Suggestion, amount, name,
};
use mallard_report::stats::SUBJECT;
use mallard_watch::family::{Family, Pool};

use crate::allocators::choice::{self, Choice};
use crate::options::command_line;

/// What is known of a program besides figures.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub family: Family,
    pub pool: Option<Pool>,
    /// CPUs that the program may use.
    pub cpus: usize,
    /// The program as the user typed it, or the command that starts the service.
    pub typed: &'a str,
    /// What `mallard compare` takes for it.
    pub subject: &'a str,
    /// Whether it ends by itself, or with its load.
    pub ends: bool,
    /// Whether another allocator can be loaded into it.
    pub is_replaceable: bool,
    /// The process, of one that runs already.
    pub pid: Option<u32>,
}

/// The commands, the best first.
pub fn next(f: &Figures, found: &Verdict, about: About) -> Vec<Next> {
    let environment = environment(about.pid);
    let facts = Facts {
        allocator: allocator(about.family),
        cpus: about.cpus,
        set: settings_of(about.family, &environment),
        huge_pages: huge_pages(),
        takes_another: about.is_replaceable,
        ends: about.ends,
    };
    let suggestions = advice::advise(f, &found.troubles, found.bound, found.answer(), &facts);
    let words = |suggestion: Suggestion| Next {
        command: command(&suggestion.change, &environment, about),
        what: what(&suggestion, &facts, about),
        suggestion: Some(suggestion),
    };
    suggestions.into_iter().map(words).collect()
}

/// Mallard, as `mallard run` takes it.
pub fn mallard() -> Result<mallard_allocators::Allocator, String> {
    choice::one(&Choice::default(), SUBJECT, "diagnose").map_err(|error| format!("{error:#}"))
}

/// Whether Mallard takes the place of a program's allocator when it is preloaded.
pub fn takes_mallard(executable: &Path) -> bool {
    let program = program::check(&executable.to_string_lossy());
    let (Ok(program), Ok(mallard)) = (program, mallard()) else {
        return false;
    };
    probe::verify_in_target(&program, &mallard).is_ok()
}

fn allocator(family: Family) -> Allocator {
    match family {
        Family::Glibc => Allocator::Glibc,
        Family::Mallard => Allocator::Mallard,
        Family::Jemalloc => Allocator::Jemalloc,
        _ => Allocator::Other,
    }
}

type Environment = Vec<(String, String)>;

/// The environment of a process, or that which a program will have from here.
fn environment(pid: Option<u32>) -> Environment {
    match pid {
        Some(pid) => mallard_procfs::about::environment(pid)
            .iter()
            .filter_map(|entry| entry.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        // A variable that is not text sets no option.
        None => std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
    }
}

fn value<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    let found = environment.iter().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.is_empty())
}

const TUNABLES: &str = "GLIBC_TUNABLES";
/// What comes before the name of each option of glibc's malloc.
const OF_MALLOC: &str = "glibc.malloc.";
/// The variables that set an option of glibc from before there were tunables, over which tunables
/// win.
const OLDER: [(&str, &str); 4] = [
    ("MALLOC_ARENA_MAX", "arena_max"),
    ("MALLOC_TRIM_THRESHOLD_", "trim_threshold"),
    ("MALLOC_MMAP_THRESHOLD_", "mmap_threshold"),
    ("MALLOC_TOP_PAD_", "top_pad"),
];

/// The options of an allocator that an environment sets, the last ones of which count.
fn settings_of(family: Family, environment: &Environment) -> Vec<Setting> {
    let list = |name: &str, between: char, is: char| {
        let all = value(environment, name).unwrap_or_default().split(between);
        let settings = all.filter_map(|one| one.split_once(is));
        settings
            .map(|(name, value)| Setting::new(name.trim(), value.trim()))
            .collect::<Vec<_>>()
    };
    match family {
        Family::Glibc => {
            let older = OLDER
                .iter()
                .filter_map(|(name, option)| Some(Setting::new(option, value(environment, name)?)));
            let tunables = list(TUNABLES, ':', '=').into_iter().filter_map(|one| {
                let option = one.name.strip_prefix(OF_MALLOC)?;
                Some(Setting::new(option, one.value.as_str()))
            });
            older.chain(tunables).collect()
        }
        Family::Mallard => [list(MALLOC_CONF, ',', ':'), list(MALLARD_CONF, ',', ':')].concat(),
        Family::Jemalloc => list(MALLOC_CONF, ',', ':'),
        _ => Vec::new(),
    }
}

/// Where this kernel gives huge pages.
fn huge_pages() -> HugePages {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    match text.unwrap_or_default() {
        text if text.contains("[always]") => HugePages::Always,
        text if text.contains("[madvise]") => HugePages::OnRequest,
        _ => HugePages::Never,
    }
}

/// An option string, as Mallard and jemalloc read it.
pub fn conf(settings: &[Setting]) -> String {
    joined(settings, ",", |it| format!("{}:{}", it.name, it.value))
}

fn joined(settings: &[Setting], between: &str, text: impl Fn(&Setting) -> String) -> String {
    let texts: Vec<String> = settings.iter().map(text).collect();
    texts.join(between)
}

/// The variable that sets options of an allocator beside those that the environment sets already.
pub fn variable(of: Allocator, settings: &[Setting]) -> (String, String) {
    variable_over(of, settings, &environment(None))
}

fn variable_over(
    of: Allocator,
    settings: &[Setting],
    environment: &Environment,
) -> (String, String) {
    let (variable, between, added) = match of {
        Allocator::Glibc => (
            TUNABLES,
            ":",
            joined(settings, ":", |it| {
                format!("{OF_MALLOC}{}={}", it.name, it.value)
            }),
        ),
        Allocator::Jemalloc => (MALLOC_CONF, ",", conf(settings)),
        Allocator::Mallard | Allocator::Other => (MALLARD_CONF, ",", conf(settings)),
    };
    // Of an option that is set already, only the new value stays.
    let is_new = |one: &&str| {
        let name = one.split([':', '=']).next().unwrap_or_default();
        let name = name.strip_prefix(OF_MALLOC).unwrap_or(name);
        !settings.iter().any(|setting| setting.name == name)
    };
    let present = value(environment, variable).unwrap_or_default();
    let stays = present
        .split(between)
        .filter(|one| !one.is_empty())
        .filter(is_new);
    let all: Vec<&str> = stays.chain([added.as_str()]).collect();
    let text = all.join(between);
    (variable.to_owned(), text)
}

fn command(change: &Change, environment: &Environment, about: About) -> String {
    let typed = about.typed;
    match change {
        Change::Options { of, settings } => {
            let (name, value) = variable_over(*of, settings, environment);
            let value = command_line::typed(&[value]);
            format!("{name}={value} {typed}")
        }
        Change::Mallard(settings) if settings.is_empty() => format!("mallard run -- {typed}"),
        Change::Mallard(settings) => format!("mallard run --conf {} -- {typed}", conf(settings)),
        Change::FindLeaks => format!("mallard leak -- {typed}"),
        Change::Profile => format!("mallard profile -- {typed}"),
        Change::Compare if about.ends => format!("mallard compare {}", about.subject),
        Change::Compare => {
            let start = command_line::typed(&[typed]);
            format!("mallard compare --start {start} --ready tcp:ADDRESS --load COMMAND")
        }
        Change::Tune => format!("mallard tune {}", about.subject),
    }
}

/// What a suggestion does, and what is expected of it.
fn what(suggestion: &Suggestion, facts: &Facts, about: About) -> String {
    let mut text = match &suggestion.change {
        Change::Options { settings, .. } => does(settings, facts).to_owned(),
        Change::Mallard(settings) => {
            let instead = match about.family {
                Family::Other => "Mallard instead".to_owned(),
                family => format!("Mallard instead of {}", family.name()),
            };
            match does(settings, facts) {
                "" => instead,
                more => format!("{instead}: {more}"),
            }
        }
        Change::FindLeaks => "which code keeps the blocks".to_owned(),
        Change::Profile => "which code holds the memory".to_owned(),
        Change::Compare if about.ends => "all allocators side by side".to_owned(),
        Change::Compare => "all allocators side by side, each under a load that ends".to_owned(),
        Change::Tune => "the options of Mallard that suit it best".to_owned(),
    };
    if let Some(effect) = &suggestion.effect {
        text += &format!("; {}", expected(effect));
    }
    text
}

fn does(settings: &[Setting], facts: &Facts) -> &'static str {
    let Some(first) = settings.first() else {
        return "";
    };
    let number: i64 = first.value.parse().unwrap_or(0);
    match (first.name.as_str(), settings.len()) {
        // More are suggested only where a setting allows few.
        (name @ ("arena_max" | "narenas"), _) => {
            let now = facts.number(name).filter(|now| *now > 0);
            if now.is_some_and(|now| number > now) {
                "more arenas"
            } else {
                "fewer arenas"
            }
        }
        ("percpu_arena", _) => "an arena for each CPU",
        ("mmap_threshold", 1) => "return each large block when it is freed",
        ("trim_threshold" | "mmap_threshold", _) => "keep free memory",
        ("hugetlb" | "thp", _) => "huge pages",
        ("background_thread", 1) => "return memory in another thread",
        ("background_thread", _) => {
            "return free pages after a second, also while the program sleeps"
        }
        ("dirty_decay_ms", _) if number < 0 => "keep free pages",
        ("dirty_decay_ms", _) if number > 10_000 => "keep free pages for half a minute",
        ("dirty_decay_ms", _) => "return free pages after a second",
        ("tcache_max", _) if number > 0 => "smaller thread caches",
        ("tcache_max", _) => "larger thread caches",
        _ => "",
    }
}

fn expected(effect: &Effect) -> String {
    let [now, low, high] =
        [effect.now, effect.low, effect.high].map(|value| amount(effect.figure, value));
    let name = name(effect.figure);
    if low == high {
        format!("expected: {name} {now} → about {low}")
    } else if effect.high >= effect.now {
        format!("expected: {name} {now} → {low} at best")
    } else {
        format!("expected: {name} {now} → {low} to {high}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(all: &[(&str, &str)]) -> Environment {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_settings_of_an_environment_are_read_as_their_allocator_does() {
        let of = |family, all: &[(&str, &str)]| {
            let found = settings_of(family, &environment(all));
            joined(&found, " ", |it| format!("{}={}", it.name, it.value))
        };
        let both = [
            ("GLIBC_TUNABLES", "glibc.malloc.arena_max=4:glibc.cpu.x=1"),
            ("MALLOC_ARENA_MAX", "1"),
        ];
        assert_eq!(of(Family::Glibc, &both), "arena_max=1 arena_max=4");
        let conf = [
            ("MALLARD_CONF", "narenas:2,thp:always"),
            ("MALLOC_CONF", "narenas:1"),
        ];
        let all = "narenas=1 narenas=2 thp=always";
        assert_eq!(of(Family::Mallard, &conf), all);
        assert_eq!(of(Family::Jemalloc, &conf), "narenas=1");
        assert_eq!(of(Family::Other, &conf), "");
    }

    #[test]
    fn arenas_are_more_or_fewer_than_a_setting_allows() {
        let words = |now: Option<i64>, wanted: i64| {
            let facts = Facts {
                allocator: Allocator::Glibc,
                cpus: 8,
                set: (now.map(|now| Setting::new("arena_max", now)).into_iter()).collect(),
                huge_pages: HugePages::Never,
                takes_another: true,
                ends: true,
            };
            does(&[Setting::new("arena_max", wanted)], &facts)
        };
        assert_eq!(words(Some(1), 4), "more arenas");
        assert_eq!(words(None, 2), "fewer arenas");
        assert_eq!(words(Some(16), 2), "fewer arenas");
    }

    #[test]
    fn a_variable_keeps_what_the_environment_sets() {
        let present = environment(&[("GLIBC_TUNABLES", "glibc.malloc.tcache_count=9")]);
        let settings = [Setting::new("arena_max", 2)];
        let (name, value) = variable_over(Allocator::Glibc, &settings, &present);
        assert_eq!(name, "GLIBC_TUNABLES");
        assert_eq!(
            value,
            "glibc.malloc.tcache_count=9:glibc.malloc.arena_max=2"
        );
        let present = environment(&[("MALLARD_CONF", "narenas:1,abort_conf:true")]);
        let settings = [Setting::new("thp", "always"), Setting::new("narenas", 2)];
        let (name, value) = variable_over(Allocator::Mallard, &settings, &present);
        assert_eq!(name, "MALLARD_CONF");
        assert_eq!(value, "abort_conf:true,thp:always,narenas:2");
    }
}
