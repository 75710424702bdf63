//! The options of the library in both runs.

use mallard_allocators::{Allocator, conf};

use super::report::{Frame, Kind, Report};
use super::session::Ran;

/// A short first run has few blocks: the second one may guard all of them.
const SHORT_SECONDS: f64 = 0.25;
/// Guarded blocks a second otherwise, at some ten microseconds each.
const RATE: u32 = 2_000;
/// All checks of every block, with the call stacks that allocated and freed it.
const HARDENED: &str = "hardened:true,hardened_sites:true,family_mismatch:abort";
/// The most slots for the blocks of a site.
const SLOTS: u32 = 16_384;

/// What the library can do.
pub struct Knowledge {
    /// It can check every block.
    hardened: bool,
    /// It can guard the blocks of a site.
    sites: bool,
}

impl Knowledge {
    /// Asks the library.
    pub fn of(allocator: &Allocator) -> Knowledge {
        let knows = |options: &str| conf::check(allocator, options, None).is_ok();
        Knowledge {
            hardened: knows(HARDENED),
            sites: knows("guard_sites:a+0x10"),
        }
    }

    /// The options by which blocks of all sites are guarded, all or as many in a second as this.
    fn all_sites(&self, rate: Option<u32>) -> String {
        match rate {
            None if self.sites => format!("guard_sites:*,guard_slots:{SLOTS}"),
            None => "guard_sample:1,guard_rate:0".to_owned(),
            Some(rate) => format!("guard_sample:1,guard_rate:{rate}"),
        }
    }
}

/// A run that is to be.
pub struct Plan {
    pub purpose: String,
    pub options: String,
}

fn plan(purpose: &str, options: &str, further: Option<&str>) -> Plan {
    let further = further.map_or_else(String::new, |further| format!(",{further}"));
    Plan {
        purpose: purpose.to_owned(),
        // The page of statistics leads to the map of the heap.
        options: format!("{options},export_stats:true{further}"),
    }
}

/// The first run: every block is checked.
pub fn first(knowledge: &Knowledge, further: Option<&str>) -> Plan {
    if knowledge.hardened {
        plan("a run that checks every block", HARDENED, further)
    } else {
        let options = knowledge.all_sites(None);
        plan("a run that guards every block", &options, further)
    }
}

/// The second run: the blocks of a site are guarded; without a suspect, blocks of all sites.
pub fn second(knowledge: &Knowledge, further: Option<&str>, first: &Ran, seed: u64) -> Plan {
    let suspects = first.reports.iter().map(|found| &found.report);
    let suspects: Vec<&Report> = suspects.filter(|report| !report.is_exact()).collect();
    let side = side(suspects.first().map(|report| report.kind()), seed);
    let sites = sites(&suspects);
    if knowledge.sites && !sites.is_empty() {
        let options = format!("guard_sites:{sites},guard_slots:{SLOTS},guard_align:{side}");
        let purpose = "a run that guards every block of the suspect's site";
        return plan(purpose, &options, further);
    }
    let is_short = first.took.as_secs_f64() < SHORT_SECONDS;
    let options = knowledge.all_sites((!is_short).then_some(RATE));
    plan(
        "a run that guards blocks of all sites",
        &format!("{options},guard_align:{side}"),
        further,
    )
}

/// On which side of its pages blocks lie. Tight ones are for damage that is known to be there: some
/// programs cannot bear them.
fn side(suspect: Option<Kind>, seed: u64) -> &'static str {
    match suspect {
        Some(Kind::Underflow) => "left",
        Some(Kind::Overflow) => "tight",
        _ if seed.is_multiple_of(2) => "right",
        _ => "left",
    }
}

/// The allocation sites of reports as the library's option has them: the frame that asked for the
/// block, and the one that called it.
fn sites(reports: &[&Report]) -> String {
    const SITES_MAX: usize = 8;
    let mut sites: Vec<String> = Vec::new();
    for report in reports {
        let frames = report.site().iter().take(2);
        let names: Option<Vec<String>> = frames.map(name).collect();
        let site = names.unwrap_or_default().join("<");
        if !site.is_empty() && !sites.contains(&site) && sites.len() < SITES_MAX {
            sites.push(site);
        }
    }
    sites.join("|")
}

/// A frame by the name of its file and the offset; none for names that an option cannot have.
fn name(frame: &Frame) -> Option<String> {
    let file = frame
        .file
        .trim_end_matches(" (deleted)")
        .rsplit('/')
        .next()?;
    let is_plain = !file.is_empty() && !file.contains([',', ':', '|', '<', '+']);
    is_plain.then(|| format!("{file}+{:#x}", frame.offset))
}

#[cfg(test)]
mod tests {
    use super::super::report::Event;
    use super::*;

    #[test]
    fn a_site_is_the_innermost_frames_by_the_names_of_their_files() {
        let report = |files: &[&str]| {
            let stack = files.iter().enumerate().map(|(index, file)| Frame {
                file: (*file).to_owned(),
                offset: 16 * (index as u64 + 1),
                ..Frame::default()
            });
            Report {
                allocated: Some(Event {
                    thread: 0,
                    stack: stack.collect(),
                }),
                ..Report::default()
            }
        };
        let server = report(&["/opt/server", "/opt/server", "/usr/lib/libc.so.6"]);
        let alone = report(&["/usr/lib/libz.so.1"]);
        let odd = report(&["/opt/a,b"]);
        let none = report(&[]);
        assert_eq!(
            sites(&[&server, &alone, &odd, &none, &server]),
            "server+0x10<server+0x20|libz.so.1+0x10"
        );
    }

    #[test]
    fn an_overflow_is_sought_without_a_gap_behind_the_block() {
        assert_eq!(side(Some(Kind::Overflow), 0), "tight");
        assert_eq!(side(Some(Kind::Underflow), 0), "left");
        assert_eq!([side(None, 0), side(None, 1)], ["right", "left"]);
    }
}
