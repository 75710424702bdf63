//! The description of the machine for the reports.

use std::fs;

use mallard_report::model::Machine;
use mallard_runner::{Cpus, memory};

/// Describes this machine. The measured processes may use `cpus`.
pub fn describe(cpus: &Cpus) -> Machine {
    let uname = rustix::system::uname();
    Machine {
        cpu: cpu_model().unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
        cpus: cpus.count(),
        memory_bytes: memory::total(),
        kernel: format!(
            "{} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy()
        ),
        libc: String::new(),
        distribution: distribution().unwrap_or_default(),
        thp: thp().unwrap_or_default(),
        page_size: rustix::param::page_size() as u64,
        facts: Vec::new(),
    }
}

/// The commit of the sources that this binary was built from.
const COMMIT: &str = env!("MALLARD_COMMIT");

/// What else can change figures, and how busy the machine is: `load_at_start` and now.
pub fn facts(load_at_start: &str) -> Vec<(String, String)> {
    let cpu = "/sys/devices/system/cpu";
    let facts = [
        ("commit of the lab", Some(COMMIT.to_owned())),
        (
            "governor",
            line(&format!("{cpu}/cpu0/cpufreq/scaling_governor")),
        ),
        ("SMT", line(&format!("{cpu}/smt/control"))),
        (
            "turbo disabled",
            line(&format!("{cpu}/intel_pstate/no_turbo")),
        ),
        ("frequency boost", line(&format!("{cpu}/cpufreq/boost"))),
        ("NUMA nodes", Some(numa_nodes().to_string())),
        (
            "address randomisation",
            line("/proc/sys/kernel/randomize_va_space"),
        ),
        ("memory limit of the cgroup", cgroup("memory.max")),
        ("CPU limit of the cgroup", cgroup("cpu.max")),
        ("load at start", Some(load_at_start.to_owned())),
        ("load at end", Some(load())),
    ];
    let known = facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let known = known.filter(|(_, value)| !value.is_empty());
    known
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The number of NUMA nodes, which the kernel lists as it lists CPUs; one if it lists none.
pub fn numa_nodes() -> usize {
    let online = line("/sys/devices/system/node/online");
    let online = online.and_then(|list| list.parse::<Cpus>().ok());
    online.map_or(1, |online| online.count())
}

/// The load averages over 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = line("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn line(file: &str) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// A limit of this process's own control group (version 2), if it has one.
fn cgroup(limit: &str) -> Option<String> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = format!("/sys/fs/cgroup{}/{limit}", path.trim_end_matches('/'));
    line(&file).filter(|value| !value.starts_with("max"))
}

fn cpu_model() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    };
    // ARM machines name their model, if at all, in the device tree.
    info.lines().find_map(model).or_else(|| {
        let tree = fs::read_to_string("/proc/device-tree/model").ok()?;
        Some(tree.trim_end_matches('\0').to_owned())
    })
}

fn distribution() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn thp() -> Option<String> {
    let policy = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    Some(bracketed(&policy)?.to_owned())
}

/// The word in brackets, which is how the kernel marks the active choice.
fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_policy_is_the_one_in_brackets() {
        assert_eq!(bracketed("always [madvise] never\n"), Some("madvise"));
        assert_eq!(bracketed("nothing"), None);
    }

    #[test]
    fn this_machine_has_a_processor_a_kernel_and_memory() {
        let machine = describe(&Cpus::allowed());
        assert!(!machine.cpu.is_empty() && machine.cpus > 0);
        assert!(machine.kernel.starts_with("Linux "), "{}", machine.kernel);
        assert!(machine.memory_bytes > 1 << 20 && machine.page_size >= 4096);
    }
}
