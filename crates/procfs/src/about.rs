//! What a process is called, was started with, and runs in.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The name of a process.
pub fn name(pid: u32) -> Option<String> {
    name_in(super::path(pid, "comm"))
}

pub fn thread_name(pid: u32, thread: u32) -> Option<String> {
    name_in(super::path(pid, &format!("task/{thread}/comm")))
}

fn name_in(path: std::path::PathBuf) -> Option<String> {
    Some(super::text(path)?.trim_end().to_owned())
}

/// The arguments of a process, the program first; none if it has none or is gone. A server that
/// shows its state there has made one text of them.
pub fn arguments(pid: u32) -> Vec<String> {
    strings(pid, "cmdline")
}

/// The environment that a process was started with, as `NAME=VALUE`; none if it may not be read.
pub fn environment(pid: u32) -> Vec<String> {
    strings(pid, "environ")
}

/// The strings of a file that are not empty; each ends with a zero.
fn strings(pid: u32, file: &str) -> Vec<String> {
    let text = super::text(super::path(pid, file)).unwrap_or_default();
    let strings = text.split('\0').filter(|string| !string.is_empty());
    strings.map(str::to_owned).collect()
}

/// The process's number in the innermost of its namespaces: what it takes itself to be.
pub fn number_inside(pid: u32) -> Option<u32> {
    numbers(pid, "status").last().copied()
}

/// The numbers here of a process's threads by those that they have inside of its container; none
/// for a process that is in no other namespace than the caller.
pub fn threads_by_number_inside(pid: u32) -> Option<HashMap<u32, u32>> {
    if numbers(pid, "status").len() < 2 {
        return None;
    }
    let threads = super::threads(pid).into_iter().filter_map(|thread| {
        let numbers = numbers(pid, &format!("task/{thread}/status"));
        Some((*numbers.last()?, thread))
    });
    Some(threads.collect())
}

/// The numbers of a process or thread: the one here, then those in the namespaces that it is in,
/// the innermost last.
fn numbers(pid: u32, file: &str) -> Vec<u32> {
    numbers_in(&super::text(super::path(pid, file)).unwrap_or_default())
}

fn numbers_in(status: &str) -> Vec<u32> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("NSpid:"));
    let numbers = line.unwrap_or_default().split_ascii_whitespace();
    numbers.flat_map(str::parse).collect()
}

/// The process that traces another one, as a debugger does.
pub fn tracer(pid: u32) -> Option<u32> {
    let status = super::text(super::path(pid, "status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    line?.trim().parse().ok().filter(|&tracer| tracer != 0)
}

/// The user that a process belongs to, by number; none if it is gone.
pub fn owner(pid: u32) -> Option<u32> {
    Some(fs::metadata(super::path(pid, "")).ok()?.uid())
}

/// Letters of a container's identifier that are shown, as `docker ps` does.
const CONTAINER_CHARS: usize = 12;

/// The container that the process runs in, as far as its control group shows: the beginning of its
/// identifier, or its name.
pub fn container(pid: u32) -> Option<String> {
    container_in(&super::text(super::path(pid, "cgroup"))?)
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_numbers_of_a_process_in_containers_are_read() {
        let status = "Name:\tx\nPid:\t4711\nNSpid:\t4711\t7\t1\nThreads:\t2\n";
        assert_eq!(numbers_in(status), [4711, 7, 1]);
        assert!(numbers_in("Name:\tx\n").is_empty());
    }

    #[test]
    fn this_process_is_known() {
        let me = std::process::id();
        assert!(name(me).is_some() && thread_name(me, me) == name(me));
        let arguments: Vec<String> = std::env::args().collect();
        assert_eq!(super::arguments(me), arguments);
        let path = std::env::var("PATH").unwrap();
        assert!(environment(me).contains(&format!("PATH={path}")));
        assert_eq!(number_inside(me), Some(me));
        assert_eq!(threads_by_number_inside(me), None, "it is in no container");
        assert_eq!(owner(me), Some(rustix::process::geteuid().as_raw()));
        assert!(crate::all().contains(&me) && crate::threads(me).contains(&me));
        assert_eq!((name(u32::MAX), owner(u32::MAX)), (None, None));
    }
}
