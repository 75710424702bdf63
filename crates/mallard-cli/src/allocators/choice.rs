//! Which allocators a command uses: the words on the command line, and what becomes of them.
//!
//! Every command that runs programs takes the same three options. A name selects an allocator of
//! the catalog, `--add` gives the catalog another one, and `--variant` an allocator with an option
//! string of its own. An allocator that is not named is used only if it is ready, because a build
//! that was not requested would take minutes.

use anyhow::{Context, Result, anyhow};
use mallard_allocators::conf::{self, Refused};
use mallard_allocators::{Allocator, Catalog, Kind, Settings, Standing};
use mallard_report::stats;
use serde::{Deserialize, Serialize};

use crate::allocators::preparation;
use crate::terminal::exit::usage;

/// The options by which every command chooses allocators.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
pub struct Choice {
    /// Allocators to use: names from `mallard allocators`; `all` but the optional ones, which
    /// builds the missing ones; `as-is` for whatever a program has [default: those that are ready]
    #[arg(
        short = 'a',
        long = "allocator",
        aliases = ["allocators", "on"],
        value_name = "LIST",
        value_delimiter = ','
    )]
    pub names: Vec<String>,

    /// Add a library that provides malloc, with environment variables after semicolons (can be
    /// repeated)
    #[arg(long = "add", value_name = "NAME=PATH[;VARIABLE=VALUE]")]
    pub added: Vec<String>,

    /// Add an allocator with its own options, such as lean=mallard:dirty_decay_ms:0 (can be
    /// repeated)
    #[arg(long = "variant", value_name = "NAME=ALLOCATOR[:OPTIONS]")]
    pub variants: Vec<String>,
}

/// An allocator under a name, with an option string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    pub name: String,
    pub allocator: String,
    pub options: String,
}

/// The allocators of a session before they are prepared.
#[derive(Debug)]
pub struct Chosen {
    pub catalog: Catalog,
    /// Names of the catalog, in table order.
    pub names: Vec<String>,
    pub variants: Vec<Variant>,
    /// Whether the user named them, so that missing ones are built.
    pub named: bool,
    /// Whether the program runs also on whatever allocator it has.
    pub as_is: bool,
}

/// The name of whatever allocator a program has.
pub const AS_IS: &str = "as-is";

/// Whatever allocator a program has: a static one, one that it is linked with, or the C library's.
pub fn as_is() -> Allocator {
    Allocator {
        name: AS_IS.to_owned(),
        kind: Kind::AsIs,
        version: "the program's own".to_owned(),
        file: None,
        environment: Vec::new(),
        conf_variable: None,
        options: None,
        base: None,
    }
}

impl Choice {
    /// Whether any of the options is on the command line.
    pub fn is_given(&self) -> bool {
        !self.names.is_empty() || !self.added.is_empty() || !self.variants.is_empty()
    }

    /// The words of `-a` that are names; `NAME=PATH` is what `--allocator` took before `--add`.
    fn split(&self) -> (Vec<&str>, Vec<&str>) {
        let words = self.names.iter().map(|word| word.trim());
        let (added, names) = words.partition(|word| word.contains('='));
        (names, added)
    }

    /// The catalog with the user's own libraries.
    pub fn catalog(&self) -> Result<Catalog> {
        let mut catalog = Catalog::new(Settings::default());
        for spec in self.added() {
            if catalog.names().any(|name| name == spec) {
                return Err(usage(format!(
                    "--add takes NAME=/path/to/library.so; to choose {spec}, use -a {spec}"
                )));
            }
            let added = catalog.add_custom(spec);
            added.with_context(|| format!("--add {spec}"))?;
        }
        Ok(catalog)
    }

    fn added(&self) -> Vec<&str> {
        let own = self.added.iter().map(String::as_str);
        own.chain(self.split().1).collect()
    }

    /// Checks all words. Nothing is built or run.
    pub fn resolve(&self) -> Result<Chosen> {
        self.resolve_for("this command")
    }

    /// The same for a command, of which `compare` alone takes `as-is`.
    pub fn resolve_for(&self, command: &str) -> Result<Chosen> {
        let chosen = self.resolved()?;
        if chosen.as_is && command != "compare" {
            return Err(usage(format!(
                "-a {AS_IS} is only for compare, where a program's own malloc stands beside others; \
                 {command} does not take it"
            )));
        }
        Ok(chosen)
    }

    fn resolved(&self) -> Result<Chosen> {
        let catalog = self.catalog()?;
        let variants: Vec<Variant> = (self.variants.iter())
            .map(|spec| variant(spec, &catalog))
            .collect::<Result<_>>()?;
        for (index, one) in variants.iter().enumerate() {
            let taken = catalog.names().any(|name| name == one.name)
                || variants[..index].iter().any(|other| other.name == one.name);
            if taken {
                return Err(usage(format!(
                    "--variant {}: there is already an allocator of that name",
                    one.name
                )));
            }
        }
        let (mut words, added) = self.split();
        let named = !words.is_empty();
        let as_is = words.contains(&AS_IS);
        words.retain(|word| *word != AS_IS);
        if !named && !variants.is_empty() {
            // What variants are compared with.
            words.push(stats::BASELINE);
        } else if !named {
            words.push("all");
        }
        let own = self.added.iter().map(String::as_str).chain(added);
        words.extend(own.filter_map(|spec| Some(spec.split_once('=')?.0)));
        let names = catalog.select(&words)?;
        Ok(Chosen {
            as_is,
            catalog,
            names,
            variants,
            named: named || !self.variants.is_empty(),
        })
    }
}

/// Reads `NAME=ALLOCATOR[:OPTIONS]`.
fn variant(spec: &str, catalog: &Catalog) -> Result<Variant> {
    let wrong = || {
        usage(format!(
            "--variant {spec}: expected NAME=ALLOCATOR[:OPTIONS], such as lean=mallard:narenas:1"
        ))
    };
    let (name, rest) = spec.split_once('=').ok_or_else(wrong)?;
    let (allocator, options) = rest.split_once(':').unwrap_or((rest, ""));
    let fit = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    if name.is_empty() || !name.chars().all(fit) || allocator.is_empty() {
        return Err(wrong());
    }
    let allocator = catalog.select(&[allocator])?.remove(0);
    Ok(Variant {
        name: name.to_owned(),
        allocator,
        options: options.to_owned(),
    })
}

impl Chosen {
    /// Leaves out what would have to be built, unless the user named it. Returns the notice about
    /// it.
    pub fn only_ready(&mut self) -> Result<Option<String>> {
        if self.named {
            return Ok(None);
        }
        let (mut missing, mut seconds) = (Vec::new(), 0);
        let mut ready = Vec::new();
        for name in std::mem::take(&mut self.names) {
            match self.catalog.look(&name)? {
                Standing::Buildable(_) => {
                    seconds += self.catalog.build_seconds(&name);
                    missing.push(name);
                }
                Standing::Ready(_) | Standing::Unavailable(_) => ready.push(name),
            }
        }
        self.names = ready;
        Ok((!missing.is_empty()).then(|| {
            format!(
                "{} more can be built, once, in about {}: mallard allocators build ({})",
                missing.len(),
                about(seconds),
                missing.join(", ")
            )
        }))
    }
}

/// The estimated time of a build, no more exact than the estimate.
pub fn about(seconds: u32) -> String {
    match seconds {
        0..60 => "a minute".to_owned(),
        _ => format!("{} minutes", seconds.div_ceil(60)),
    }
}

/// Refuses an option string that an allocator does not understand. `conf` is for all allocators
/// that read one; the others are named in the returned notice.
pub fn check_options(allocators: &[Allocator], conf: Option<&str>) -> Result<Option<String>> {
    for allocator in allocators {
        let own = allocator.options.as_deref();
        if let (Some(options), false) = (own, allocator.reads_conf()) {
            let reason = conf::no_reader(allocator);
            return Err(usage(format!(
                "--variant {}:{options}: {reason}",
                allocator.name
            )));
        }
        let variant = format!("--variant {}={}:", allocator.name, allocator.catalog_name());
        for (flag, options) in [(variant.as_str(), own), ("--conf ", conf)] {
            if let (Some(options), true) = (options, allocator.reads_conf()) {
                let checked = conf::check(allocator, options, None);
                checked.map_err(|reason| refused(flag, options, allocator, reason))?;
            }
        }
    }
    let Some(conf) = conf else { return Ok(None) };
    let deaf: Vec<&str> = (allocators.iter())
        .filter(|allocator| !allocator.reads_conf())
        .map(|allocator| allocator.name.as_str())
        .collect();
    if deaf.len() == allocators.len() {
        return Err(usage(format!(
            "--conf {conf}: none of {} reads an option string",
            deaf.join(", ")
        )));
    }
    Ok((!deaf.is_empty()).then(|| {
        let read = if deaf.len() == 1 { "reads" } else { "read" };
        format!(
            "{} {read} no option string and run with the defaults; --conf is for the others",
            deaf.join(", ")
        )
    }))
}

/// Refuses a setting of a row that one of its allocators does not understand.
pub fn check_sets(allocators: &[Allocator], sets: &[String]) -> Result<()> {
    for set in sets {
        for allocator in allocators.iter().filter(|allocator| allocator.reads_conf()) {
            let checked = conf::check(allocator, set, None);
            checked.map_err(|reason| refused("--set ", set, allocator, reason))?;
        }
    }
    Ok(())
}

/// The error for an option string. jemalloc names no nearest key, but Mallard knows jemalloc's.
fn refused(flag: &str, options: &str, allocator: &Allocator, refused: Refused) -> anyhow::Error {
    let hint = if refused.nearest.is_some() || allocator.catalog_name() == "mallard" {
        None
    } else {
        mallard_s_nearest(options)
    };
    let hint = hint.map_or(String::new(), |key| format!(" (did you mean \"{key}\"?)"));
    usage(format!(
        "{flag}{options}: {} refuses it: {refused}{hint}",
        allocator.name
    ))
}

/// The key that Mallard proposes for one that it does not know either.
fn mallard_s_nearest(options: &str) -> Option<String> {
    let catalog = Catalog::new(Settings::default());
    let mallard = catalog.prepare("mallard", &mut |_| {}).ok()?.ok()?;
    conf::check(&mallard, options, None).err()?.nearest
}

/// The allocator for one name or variant, ready to use; an error names what is missing, or the
/// command that takes no more.
pub fn one(choice: &Choice, default: &str, command: &str) -> Result<Allocator> {
    let several = |what| Err(usage(format!("{command} takes one allocator: {what}")));
    let mut chosen = choice.resolve_for(command)?;
    if !choice.names.is_empty() || choice.variants.is_empty() {
        let (words, _) = choice.split();
        let added: Vec<String> = choice
            .added()
            .iter()
            .filter_map(|s| Some(s.split_once('=')?.0.to_owned()))
            .collect();
        let wanted = match (&words[..], &added[..]) {
            ([], []) => default,
            ([], [added]) => added,
            ([one], _) => one,
            _ => return several("-a NAME"),
        };
        if wanted == "all" {
            return several("-a NAME");
        }
        chosen.names = chosen.catalog.select(&[wanted])?;
        return prepared(&chosen.catalog, &chosen.names[0]);
    }
    let [variant] = &chosen.variants[..] else {
        return several("one --variant or -a NAME");
    };
    let base = prepared(&chosen.catalog, &variant.allocator)?;
    Ok(base.variant(&variant.name, &variant.options))
}

fn prepared(catalog: &Catalog, name: &str) -> Result<Allocator> {
    preparation::prepare(catalog, name)?.map_err(|unavailable| {
        let advice = match unavailable.advice.as_str() {
            "" => String::new(),
            advice => format!("; {advice}"),
        };
        anyhow!(
            "{name} is not available here: {}{advice}",
            unavailable.reason
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(names: &[&str], variants: &[&str]) -> Choice {
        Choice {
            names: names.iter().map(|name| name.to_string()).collect(),
            added: Vec::new(),
            variants: variants.iter().map(|spec| spec.to_string()).collect(),
        }
    }

    #[test]
    fn a_variant_has_a_name_an_allocator_and_options_with_colons() {
        let chosen = choice(
            &[],
            &["lean=mallard:dirty_decay_ms:0,narenas:1", "plain=jemalloc"],
        );
        let chosen = chosen.resolve().unwrap();
        let variant = |index: usize| {
            let v = &chosen.variants[index];
            (v.name.as_str(), v.allocator.as_str(), v.options.as_str())
        };
        assert_eq!(
            variant(0),
            ("lean", "mallard", "dirty_decay_ms:0,narenas:1")
        );
        assert_eq!(variant(1), ("plain", "jemalloc", ""));
        assert_eq!(chosen.names, ["glibc"], "what they are compared with");
    }

    #[test]
    fn wrong_variants_are_refused_with_the_form() {
        for (spec, part) in [
            ("lean", "NAME=ALLOCATOR[:OPTIONS]"),
            ("=mallard", "NAME=ALLOCATOR[:OPTIONS]"),
            ("lean=", "NAME=ALLOCATOR[:OPTIONS]"),
            ("glibc=mallard", "already"),
            ("lean=malard", "did you mean `mallard`?"),
        ] {
            let error = choice(&[], &[spec]).resolve().unwrap_err();
            assert!(format!("{error:#}").contains(part), "{spec}: {error:#}");
        }
    }

    #[test]
    fn a_command_of_one_allocator_names_itself() {
        for several in [
            choice(&["glibc", "mallard"], &[]),
            choice(&[], &["a=glibc", "b=mallard"]),
            choice(&["all"], &[]),
        ] {
            let error = one(&several, "mallard", "record").unwrap_err().to_string();
            assert!(error.starts_with("record takes one allocator: "), "{error}");
        }
    }
}
