//! What the kernel reports of a process besides its time: where its page faults lie, and which
//! system calls change its address space, with the stacks that made them.

use std::collections::BTreeMap;

use mallard_judge::diagnose::{GONE, HEAP};
use mallard_report::diagnosis::{Evidence, Figures};
use mallard_watch::perf::memory::{Maps, Region};
use mallard_watch::perf::{Code, Refused, Samples, What};

/// The samples of a process while it is watched.
pub struct Kernel {
    faults: Result<Samples, Refused>,
    calls: Result<Samples, Refused>,
    maps: Maps,
    report: Report,
}

/// What they have reported.
#[derive(Debug, Default)]
pub struct Report {
    faults: BTreeMap<Region, u64>,
    /// By name: calls of the allocator, and of all others.
    calls: BTreeMap<&'static str, [u64; 2]>,
    /// Samples of calls that the kernel dropped.
    lost: u64,
    no_faults: Option<String>,
    no_calls: Option<String>,
}

impl Kernel {
    /// For a process that runs already.
    pub fn of(process: u32) -> Kernel {
        Kernel::new(|what| Samples::of(process, what))
    }

    /// For the programs that the calling thread will start.
    pub fn of_children() -> Kernel {
        Kernel::new(Samples::of_children)
    }

    /// For the page faults alone of a process that has just begun.
    pub fn faults_of(process: u32) -> Kernel {
        Kernel::new(|what| match what {
            What::Faults => Samples::of(process, what),
            What::Time | What::Calls => Err(Refused::Unwanted),
        })
    }

    fn new(open: impl Fn(What) -> Result<Samples, Refused>) -> Kernel {
        let (faults, calls) = (open(What::Faults), open(What::Calls));
        let why = |samples: &Result<Samples, Refused>| {
            let refused = samples.as_ref().err();
            refused.map(ToString::to_string)
        };
        let report = Report {
            no_faults: why(&faults),
            no_calls: why(&calls),
            ..Report::default()
        };
        Kernel {
            faults,
            calls,
            maps: Maps::default(),
            report,
        }
    }

    /// Takes what has come, except from the process that started the watched one.
    pub fn take(&mut self, code: &mut Code, started_by: u32) {
        let (report, maps) = (&mut self.report, &mut self.maps);
        if let Ok(faults) = &mut self.faults {
            faults.drain(|sample| {
                if sample.pid != started_by {
                    let stack = sample.registers.map_or(0, |registers| registers.sp);
                    let region = maps.region(sample.pid, sample.address, stack);
                    *report.faults.entry(region).or_default() += 1;
                }
            });
        }
        if let Ok(calls) = &mut self.calls {
            let mut by = BTreeMap::new();
            report.lost += calls.drain(|sample| {
                let Some(name) = sample.call.filter(|_| sample.pid != started_by) else {
                    return;
                };
                let inside = sample.registers.is_some_and(|registers| {
                    code.is_inside(sample.pid, registers, &sample.stack) == Some(true)
                });
                by.entry(name).or_insert([0, 0])[usize::from(!inside)] += 1;
            });
            report.add_calls(by);
        }
    }

    pub fn report(self) -> Report {
        self.report
    }
}

impl Report {
    /// Adds what another run of the same program has reported.
    pub fn add(&mut self, more: Report) {
        for (region, count) in more.faults {
            *self.faults.entry(region).or_default() += count;
        }
        self.add_calls(more.calls);
        self.lost += more.lost;
    }

    fn add_calls(&mut self, more: BTreeMap<&'static str, [u64; 2]>) {
        for (name, [inside, outside]) in more {
            let sum = self.calls.entry(name).or_default();
            *sum = [sum[0] + inside, sum[1] + outside];
        }
    }

    /// Adds the shares of page faults by what lies at their addresses.
    pub fn fault_kinds(&self, f: &mut Figures) {
        let faults: u64 = self.faults.values().sum();
        f.fault_kinds = self
            .faults
            .iter()
            .map(|(region, count)| (kind(*region).to_owned(), *count as f64 / faults as f64))
            .collect();
        f.fault_kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    }

    /// Adds shares of page faults, and rates of system calls over all runs.
    pub fn figures(&self, f: &mut Figures) {
        self.fault_kinds(f);
        let seen: u64 = self.calls.values().flatten().sum();
        let seconds = f.wall_seconds.max(1e-3) * f64::from(f.runs.max(1));
        // Those that were lost were like the others.
        let each = (seen + self.lost) as f64 / seen.max(1) as f64 / seconds;
        let rates = self.calls.iter().map(|(name, [inside, outside])| {
            let rate = |count: &u64| *count as f64 * each;
            ((*name).to_owned(), rate(inside), rate(outside))
        });
        f.syscalls = rates.collect();
    }

    /// How both were had, or why not.
    pub fn ways(&self) -> [Evidence; 2] {
        let lost = match self.lost {
            0 => String::new(),
            lost => format!("; {lost} more were lost"),
        };
        let calls =
            format!("the kernel’s tracepoint, each call with the stack that makes it{lost}");
        [
            self.way_of_faults(),
            evidence("system calls", self.no_calls.as_deref(), calls),
        ]
    }

    /// How the kinds of page faults were had, or why not.
    pub fn way_of_faults(&self) -> Evidence {
        let how = "samples of the kernel, one page fault in 13, with its address";
        evidence("faults by kind", self.no_faults.as_deref(), how.to_owned())
    }
}

/// The kind of page faults in a region.
fn kind(region: Region) -> &'static str {
    match region {
        Region::Heap => HEAP,
        Region::File => "files",
        Region::Stack => "stacks",
        Region::Gone => GONE,
    }
}

fn evidence(what: &str, refused: Option<&str>, how: String) -> Evidence {
    Evidence {
        what: what.to_owned(),
        how: match refused {
            Some(reason) => format!("not known: {reason}"),
            None => how,
        },
    }
}
