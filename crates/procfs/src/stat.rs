//! `stat`: the state, the times and the page faults of a process or a thread.

use std::path::PathBuf;
use std::time::Duration;

/// A process or a thread, as its `stat` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// At most 15 bytes.
    pub name: String,
    /// The kernel's letter. That of a process is the state of its first thread.
    pub state: char,
    /// The process that started it.
    pub parent: u32,
    /// Page faults, minor and major.
    pub faults: u64,
    /// Page faults of children that have ended and were waited for.
    pub child_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// User and system time of children that have ended and were waited for.
    pub child_ticks: u64,
    /// When it began, since the system's start. With the number it is an identity: numbers are used
    /// again.
    pub start_ticks: u64,
    /// The CPU on which it runs or ran last.
    pub cpu: Option<u32>,
    /// How it ended, as `wait` has it; none if it has not, or may not be read.
    pub exit_status: Option<i32>,
    /// Whether it ends now: it was killed, or has begun to end by itself.
    pub is_ending: bool,
}

/// The kernel's flags of a thread that has begun to end, and of one that a signal ends.
const ENDING_FLAGS: u64 = 0x4 | 0x400;
/// SIGKILL in a set of signals.
const KILL: u64 = 1 << 8;

impl Stat {
    /// A process, with the times and faults of all its threads; none if it is gone.
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::read(super::path(pid, "stat"))
    }

    pub fn of_thread(pid: u32, thread: u32) -> Option<Stat> {
        Stat::read(super::path(pid, &format!("task/{thread}/stat")))
    }

    /// The same; a thread for which a SIGKILL waits ends as well, as do all of a process that ends.
    pub fn of_thread_that_may_be_killed(pid: u32, thread: u32) -> Option<Stat> {
        // A thread that takes the signal has the flag next.
        let status = super::text(super::path(pid, &format!("task/{thread}/status")))?;
        let mut stat = Stat::of_thread(pid, thread)?;
        stat.is_ending |= is_killed(&status);
        Some(stat)
    }

    fn read(path: PathBuf) -> Option<Stat> {
        Stat::parse(&super::text(path)?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name is in parentheses and may have parentheses and spaces itself.
        let (open, close) = (text.find('(')?, text.rfind(')')?);
        let name = text.get(open + 1..close)?.to_owned();
        // proc(5) counts from 1, and the state is the third of its fields.
        let fields: Vec<&str> = text[close + 1..].split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3);
        let count = |number| field(number)?.parse::<u64>().ok();
        let state = field(3)?.chars().next()?;
        let exit_status = field(52).and_then(|text| text.parse().ok());
        Some(Stat {
            name,
            state,
            parent: count(4)?.try_into().ok()?,
            faults: count(10)?.saturating_add(count(12)?),
            child_faults: count(11)?.saturating_add(count(13)?),
            user_ticks: count(14)?,
            system_ticks: count(15)?,
            child_ticks: count(16)?.saturating_add(count(17)?),
            start_ticks: count(22)?,
            cpu: count(39).and_then(|cpu| cpu.try_into().ok()),
            exit_status: exit_status.filter(|_| is_end(state)),
            is_ending: is_end(state) || count(9)? & ENDING_FLAGS != 0,
        })
    }

    /// Whether it has ended and only waits for its parent.
    pub fn has_ended(&self) -> bool {
        is_end(self.state)
    }

    /// Whether a signal or a debugger holds it.
    pub fn is_held(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// CPU time, without that of children.
    pub fn cpu_ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks)
    }
}

/// Whether a state is that of a process that has ended.
fn is_end(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// Whether a SIGKILL waits for the thread or the process, by its `status`.
fn is_killed(status: &str) -> bool {
    let mut sets = status.lines().filter_map(|line| {
        let set = line
            .strip_prefix("SigPnd:")
            .or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    });
    sets.any(|set| set & KILL != 0)
}

/// The time of so many ticks, which are hundredths of a second on most systems.
pub fn time_of(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(per_second);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Whether a process exists and has not ended.
pub fn is_alive(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.has_ended())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let text = "7 (a) Z (b) S 1 7 7 0 -1 4194560 100 20 3 4 70 8 5 6 20 0 1 0 4242 1 1 1 \
                    0 0 0 0 0 0 0 0 0 0 0 0 17 5 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            stat,
            Stat {
                name: "a) Z (b".to_owned(),
                state: 'S',
                parent: 1,
                faults: 103,
                child_faults: 24,
                user_ticks: 70,
                system_ticks: 8,
                child_ticks: 11,
                start_ticks: 4242,
                cpu: Some(5),
                exit_status: None,
                is_ending: false,
            }
        );
        assert!(!stat.has_ended());
        for text in ["", "7 (a S", "7 )a( S", "7 (a) ", "7 (a) S 1 7"] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_thread_that_is_killed_or_ends_is_known() {
        for (flags, is_ending) in [("4194560", false), ("4195584", true), ("4194564", true)] {
            let text =
                format!("7 (a) R 1 7 7 0 -1 {flags} 100 20 3 4 70 8 5 6 20 0 1 0 4242 1 1 1");
            assert_eq!(Stat::parse(&text).unwrap().is_ending, is_ending, "{flags}");
        }
        let status = |thread: &str, process: &str| {
            format!("Name:\ta\nSigPnd:\t{thread}\nShdPnd:\t{process}\nSigBlk:\t0000000000000100\n")
        };
        let (none, kill) = ("0000000000004000", "0000000000000100");
        assert!(!is_killed(&status(none, none)));
        assert!(is_killed(&status(kill, none)) && is_killed(&status(none, kill)));
        let me = std::process::id();
        let stat = Stat::of_thread_that_may_be_killed(me, me).unwrap();
        assert!(!stat.is_ending);
    }

    #[test]
    fn this_process_is_known_whatever_the_bytes_of_a_thread_s_name() {
        let me = std::process::id();
        let stat = Stat::of(me).unwrap();
        assert!(is_alive(me) && stat.faults > 0 && stat.start_ticks > 0);
        let named = std::thread::spawn(move || {
            let thread = rustix::thread::gettid().as_raw_pid() as u32;
            // A name in Chinese, cut within a character.
            let name = std::ffi::CString::new(&"工作线程甲乙".as_bytes()[..14]).unwrap();
            rustix::thread::set_name(&name).unwrap();
            Stat::of_thread(me, thread)
        });
        let stat = named.join().unwrap().unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("工作线程\u{fffd}", 'R'));
    }

    #[test]
    fn a_child_that_ended_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while is_alive(child.id()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Nobody has waited for it: it is there, and has ended.
        let stat = Stat::of(child.id()).unwrap();
        assert!(stat.has_ended() && stat.parent == std::process::id());
        assert_eq!(stat.exit_status, Some(0));
        child.wait().unwrap();
    }
}
