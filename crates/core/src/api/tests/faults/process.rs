//! Runs a scenario in a forked process, and learns how it ended.

use super::scenarios::Scenario;
use super::world::{Holdings, World};
use crate::sys::faults::{self, REMEMBERED, Rule};
use core::panic::Location;
use core::ptr::null_mut;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};

/// Seconds after which a run hangs; far more than one takes on a busy machine.
const SECONDS_MAX: u32 = 240;
const TEXT_BYTES: usize = 1024;

/// What a child leaves to its parent, in memory that they share.
pub struct Report {
    pub points: u32,
    pub failed: u32,
    /// The bits of the kinds that failed.
    pub failed_kinds: u32,
    /// Bytes of addresses that were given up.
    pub lost: usize,
    pub kinds: [u8; REMEMBERED],
    pub places: [Option<&'static Location<'static>>; REMEMBERED],
    /// When the scenario was over, and each time that it had run again with nothing that failed.
    pub after: Holdings,
    pub later: [Holdings; 2],
    is_done: bool,
    text: [u8; TEXT_BYTES],
    len: usize,
}

impl Report {
    /// A report that the children of this process can fill in.
    pub fn shared() -> &'static mut Report {
        // SAFETY: a new mapping; all zeros is a report.
        unsafe {
            let at = libc::mmap(
                null_mut(),
                size_of::<Report>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            &mut *at.cast()
        }
    }

    fn clear(&mut self) {
        self.is_done = false;
        self.len = 0;
        (self.points, self.failed) = (0, 0);
    }

    fn say(&mut self, text: &str) {
        self.len = text.len().min(TEXT_BYTES);
        self.text[..self.len].copy_from_slice(&text.as_bytes()[..self.len]);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text[..self.len]).into_owned()
    }
}

/// Runs the scenario with these failures in a process of its own; the error says how it failed.
pub fn run(scenario: &Scenario, rules: &[Rule], report: &mut Report) -> Result<(), String> {
    report.clear();
    // SAFETY: the child runs on with this thread alone, whatever others do.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process");
    if child == 0 {
        within(scenario, rules, report);
    }
    let mut status = 0;
    // SAFETY: the child is this process's.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 && report.is_done {
        return Ok(());
    }
    Err(match libc::WTERMSIG(status) {
        libc::SIGALRM => "it hangs".to_string(),
        0 => report.text(),
        signal => std::format!("signal {signal} {}", report.text()),
    })
}

/// The child.
fn within(scenario: &Scenario, rules: &[Rule], report: &mut Report) -> ! {
    // SAFETY: this process has one thread, and its environment is its own.
    unsafe {
        std::env::set_var("MALLOC_CONF", scenario.conf);
        std::env::remove_var("MALLARD_CONF");
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        if std::env::var_os("MALLARD_FAULT").is_none() {
            std::panic::set_hook(Box::new(|_| ()));
        }
        libc::alarm(SECONDS_MAX);
    }
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new();
        faults::begin(rules);
        (scenario.run)(&mut world);
        faults::end();
        (report.points, report.failed) = faults::counts();
        report.failed_kinds = faults::failed_kinds();
        report.after = world.settle();
        report.lost = faults::lost();
        // Memory is back.
        for figures in &mut report.later {
            (scenario.run)(&mut world);
            *figures = world.settle();
        }
    }));
    for number in 0..report.points.min(REMEMBERED as u32) {
        if let Some((kind, place)) = faults::seen(number) {
            report.kinds[number as usize] = kind as u8;
            report.places[number as usize] = Some(place);
        }
    }
    report.is_done = run.is_ok();
    if let Err(panic) = &run {
        let text = (panic.downcast_ref::<String>().map(String::as_str))
            .or_else(|| panic.downcast_ref::<&str>().copied());
        report.say(text.unwrap_or("a panic"));
    }
    // SAFETY: ends this process.
    unsafe { libc::_exit(i32::from(run.is_err())) }
}
