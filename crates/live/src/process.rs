//! What `/proc` says of a process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// A process, as far as it concerns its identity: numbers of processes are used again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    pub pid: u32,
    /// When it began, in ticks since the system's start.
    pub started: u64,
}

/// Its name, its state by a letter of the kernel, and the CPU time of its threads so far, in ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub identity: Identity,
    pub name: String,
    pub state: char,
    pub cpu: u64,
}

impl About {
    /// CPU time since an earlier look.
    pub fn cpu_since(&self, before: u64) -> Duration {
        // SAFETY: sysconf has no preconditions.
        let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1);
        Duration::from_secs_f64(self.cpu.saturating_sub(before) as f64 / hertz as f64)
    }
}

pub fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Reads `/proc/PID/stat`; `None` if there is no such process.
pub fn about(pid: u32) -> Option<About> {
    parse_stat(pid, &fs::read_to_string(path(pid, "stat")).ok()?)
}

fn parse_stat(pid: u32, stat: &str) -> Option<About> {
    // The name is in parentheses and may hold any character.
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let mut rest = stat.get(close + 1..)?.split_ascii_whitespace();
    let state = rest.next()?.chars().next()?;
    // The 14th and 15th field, and the 22nd; the state is the third.
    let user: u64 = rest.nth(10)?.parse().ok()?;
    let system: u64 = rest.next()?.parse().ok()?;
    let started = rest.nth(6)?.parse().ok()?;
    Some(About {
        identity: Identity { pid, started },
        name: stat.get(open + 1..close)?.to_owned(),
        state,
        cpu: user.saturating_add(system),
    })
}

/// The process's number in the innermost of its namespaces: what it takes itself to be.
pub fn number_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(path(pid, "status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// The memory that the system counts for the process, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(path(pid, "statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf has no preconditions.
    Some(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

/// The command line, with spaces between the arguments; empty for one that has none.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(path(pid, "cmdline")).unwrap_or_default();
    let arguments = bytes
        .split(|&b| b == 0)
        .filter(|argument| !argument.is_empty());
    let arguments: Vec<_> = arguments.map(String::from_utf8_lossy).collect();
    arguments.join(" ")
}

/// Letters of a container's identifier that are shown, as `docker ps` does.
const CONTAINER_CHARS: usize = 12;

/// The container that the process runs in, as far as its control group tells: the beginning of its
/// identifier, or its name.
pub fn container(pid: u32) -> Option<String> {
    container_in(&fs::read_to_string(path(pid, "cgroup")).ok()?)
}

fn container_in(groups: &str) -> Option<String> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths
        .flat_map(|path| path.rsplit('/'))
        .find_map(container_of)
}

/// The container that a part of a control group's path names: `docker-ID.scope`, `ID`,
/// `lxc.payload.NAME`, `machine-NAME.scope`.
fn container_of(part: &str) -> Option<String> {
    let scope = part.strip_suffix(".scope");
    let name = scope.unwrap_or(part);
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return Some(name.to_owned());
    }
    if let (Some(name), Some(_)) = (name.strip_prefix("machine-"), scope) {
        return Some(name.to_owned());
    }
    let id = name.rsplit('-').next()?;
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| id[..CONTAINER_CHARS].to_owned())
}

/// Whether the process belongs to the calling user, or that is root; `None` if it is gone.
pub fn is_ours(pid: u32) -> Option<bool> {
    let owner = fs::metadata(path(pid, "")).ok()?.uid();
    // SAFETY: geteuid has no preconditions.
    let me = unsafe { libc::geteuid() };
    Some(me == 0 || owner == me)
}

/// The numbers of all processes.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Nanoseconds of the monotonic clock, which all processes share.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills in the record; the call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_are_read() {
        let stat = "7 (a) (b) S 1 7 7 0 -1 4194560 1 0 0 0 70 8 0 0 20 0 1 0 4242 1 1 1";
        let about = parse_stat(7, stat).unwrap();
        assert_eq!((about.name.as_str(), about.state), ("a) (b", 'S'));
        assert_eq!((about.identity.started, about.cpu), (4242, 78));
        assert_eq!(parse_stat(7, "7 (a S"), None);
        assert_eq!(parse_stat(7, "7 )a( S"), None);
    }

    #[test]
    fn containers_are_told_from_services_by_their_control_groups() {
        let id = "0123456789abcdef".repeat(4);
        let short = Some("0123456789ab".to_owned());
        for group in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("12:pids:/docker/{id}\n0::/\n"),
            format!("0::/kubepods.slice/kubepods-pod7_3.slice/cri-containerd-{id}.scope"),
            format!("0::/machine.slice/libpod-{id}.scope/container"),
            format!("0::/../../kubepods/burstable/pod7-3/{id}"),
        ] {
            assert_eq!(container_in(&group), short, "{group}");
        }
        let name = |group: &str| container_in(group);
        assert_eq!(name("0::/lxc.payload.web/init.scope"), Some("web".into()));
        assert_eq!(
            name("0::/machine.slice/machine-db.scope"),
            Some("db".into())
        );
        for group in [
            "0::/",
            "0::/system.slice/nginx.service",
            "",
            "0::/user.slice/session-2.scope",
        ] {
            assert_eq!(name(group), None, "{group}");
        }
    }

    #[test]
    fn this_process_is_known() {
        let me = std::process::id();
        let about = about(me).unwrap();
        assert_eq!(about.identity.pid, me);
        // The state is that of the first thread.
        assert!("RSD".contains(about.state), "{}", about.state);
        assert_eq!(number_inside(me), Some(me));
        assert_eq!(is_ours(me), Some(true));
        assert!(all().contains(&me) && resident(me) > Some(0));
        assert!(!command_line(me).is_empty());
    }
}
