//! Makes the subject and its anchor from what the user or the file says.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, anyhow};
use mallard_allocators::Allocator;
use mallard_judge::baseline::blocks::Block;
use mallard_report::model::{Machine, Metric};
use mallard_report::stats::SUBJECT;
use mallard_runner::{Cpus, Launcher, Stop};

use super::file::{self, Baseline, Save};
use super::options::Ab;
use super::sides::{Pair, Side};
use crate::allocators::choice::{self, Choice};
use crate::service::{self, Subject as Options};
use crate::session;
use crate::session::machine;
use crate::subject::{Conditions, Subject, Target};
use crate::terminal::exit::usage;

/// Everything that lives as long as the blocks.
pub struct Bench {
    launcher: Launcher,
    stop: Stop,
    target: Target,
    /// The target of the anchor, if it is another one.
    other: Option<Target>,
    machine: Machine,
    /// The limit of a run, if the user gave one.
    timeout: Option<Duration>,
}

impl Bench {
    pub fn new(baseline: &Baseline, timeout: Option<Duration>) -> Result<Bench> {
        let words: Vec<OsString> = baseline.program.iter().map(OsString::from).collect();
        let target = Target::of(&baseline.subject, &words)?;
        let other = match &baseline.anchor {
            Some(anchor) if is_path(anchor) => Some(another(anchor, &target, &baseline.subject)?),
            _ => None,
        };
        Bench::of(target, other, timeout)
    }

    pub fn of_ab(options: &Ab) -> Result<Bench> {
        let target = Target::of(&options.subject, &options.program)?;
        let against = options.against.as_ref();
        let other = against
            .map(|path| another(path, &target, &options.subject))
            .transpose()?;
        Bench::of(target, other, options.times.timeout)
    }

    fn of(target: Target, other: Option<Target>, timeout: Option<Duration>) -> Result<Bench> {
        let stop = session::stop_on_signals()?;
        Ok(Bench {
            launcher: Launcher::new(stop.clone())?,
            stop,
            target,
            other,
            machine: machine::describe(&Cpus::allowed()),
            timeout,
        })
    }

    /// The subject of a baseline and its anchor.
    pub fn pair(&self, baseline: &Baseline) -> Result<Pair<'_>> {
        let allocator = choice::one(&baseline.choice, SUBJECT, "baseline")?;
        choice::check_options(std::slice::from_ref(&allocator), baseline.conf.as_deref())?;
        let conf = baseline.conf.as_deref();
        let subject = self.side(&self.target, &allocator, conf, allocator.name.clone())?;
        let anchor = match (&baseline.anchor, &self.other) {
            (None, _) => None,
            (Some(anchor), Some(other)) => {
                Some(self.side(other, &allocator, conf, anchor.clone())?)
            }
            (Some(anchor), None) => {
                let named = Choice {
                    names: vec![anchor.clone()],
                    added: baseline.choice.added.clone(),
                    variants: Vec::new(),
                };
                let other = choice::one(&named, anchor, "baseline")?;
                if other.name == allocator.name && conf.is_none() {
                    return Err(usage(format!(
                        "the anchor and the subject are both {anchor}, so that nothing would ever change: \
                         choose another --anchor, or another allocator with -a"
                    )));
                }
                Some(self.side(&self.target, &other, None, anchor.clone())?)
            }
        };
        Ok(Pair {
            subject,
            anchor,
            block_time: Duration::ZERO,
        })
    }

    /// The two of `ab`: what must not be worse, and what it is compared with.
    pub fn two(&self, options: &Ab) -> Result<Pair<'_>> {
        if let Some(other) = &self.other {
            let allocator = choice::one(&options.choice, SUBJECT, "baseline ab")?;
            let name = |target: &Target| match (target, &options.against) {
                (_, Some(path)) if std::ptr::eq(target, other) => path.clone(),
                _ => target.shown(),
            };
            return Ok(Pair {
                subject: self.side(&self.target, &allocator, None, name(&self.target))?,
                anchor: Some(self.side(other, &allocator, None, name(other))?),
                block_time: Duration::ZERO,
            });
        }
        let (first, second) = pair_of(&options.choice)?;
        Ok(Pair {
            subject: self.side(&self.target, &second, None, second.name.clone())?,
            anchor: Some(self.side(&self.target, &first, None, first.name.clone())?),
            block_time: Duration::ZERO,
        })
    }

    fn side<'a>(
        &'a self,
        target: &'a Target,
        allocator: &Allocator,
        conf: Option<&str>,
        name: String,
    ) -> Result<Side<'a>> {
        let conditions = Conditions {
            warm: true,
            limit: self.timeout,
            ..Conditions::default()
        };
        let subject = Subject::new(target, &self.launcher, &self.stop, conditions)?;
        let conf = conf.filter(|_| allocator.reads_conf());
        let spec = subject
            .spec(allocator, conf, &[])
            .map_err(|reason| anyhow!("{name}: {reason}"))?;
        Ok(Side {
            name,
            subject,
            spec,
        })
    }

    /// The subject in a line.
    pub fn shown(&self) -> String {
        self.target.shown()
    }

    pub fn save(&self, metrics: Vec<Metric>, blocks: Vec<Block>) -> Save {
        Save {
            saved: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            commit: file::commit(),
            machine: self.machine.clone(),
            metrics,
            blocks,
        }
    }

    /// How this machine differs from the one of a save, in what changes figures.
    pub fn differences(&self, then: &Machine) -> Vec<String> {
        let now = &self.machine;
        let facts = [
            ("CPU", &then.cpu, &now.cpu),
            ("kernel", &then.kernel, &now.kernel),
            ("transparent huge pages", &then.thp, &now.thp),
        ];
        let differ = facts.into_iter().filter(|(_, then, now)| then != now);
        let mut differences: Vec<String> = differ
            .map(|(what, then, now)| format!("{what} {now} instead of {then}"))
            .collect();
        if then.cpus != now.cpus {
            differences.push(format!("{} CPUs instead of {}", now.cpus, then.cpus));
        }
        differences
    }
}

fn is_path(anchor: &str) -> bool {
    anchor.contains('/') || anchor.ends_with(".toml")
}

/// Another program with the same arguments, or another service with the same options.
fn another(path: &str, target: &Target, options: &Options) -> Result<Target> {
    match target {
        Target::Program { words, metrics } => {
            let mut words = words.clone();
            words[0] = path.into();
            Ok(Target::Program {
                words,
                metrics: metrics.clone(),
            })
        }
        Target::Service { seconds, .. } => {
            let mut service = service::named(path)?;
            service.settle = options.settle.unwrap_or(service.settle);
            Ok(Target::Service {
                service: Box::new(service),
                seconds: *seconds,
            })
        }
        Target::Recording(_) => Err(usage("a recording has no other program")),
    }
}

/// The two allocators of `ab`, the first first.
fn pair_of(choice: &Choice) -> Result<(Allocator, Allocator)> {
    let wrong =
        || usage("ab takes two: --variant A=… --variant B=…, -a ONE,OTHER, or --against PATH");
    let one = |names: Vec<String>, variants: Vec<String>| {
        let only = Choice {
            names,
            variants,
            added: choice.added.clone(),
        };
        choice::one(&only, "", "baseline ab")
    };
    let variant = |spec: &String| one(Vec::new(), vec![spec.clone()]);
    let name = |name: &String| one(vec![name.clone()], Vec::new());
    match (&choice.names[..], &choice.variants[..]) {
        ([], [first, second]) => Ok((variant(first)?, variant(second)?)),
        ([first, second], []) => Ok((name(first)?, name(second)?)),
        ([first], [second]) => Ok((name(first)?, variant(second)?)),
        _ => Err(wrong()),
    }
}
