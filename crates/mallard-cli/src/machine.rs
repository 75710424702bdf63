//! The description of the machine for the reports.

use std::fs;

use mallard_measure::{Cpus, memory};
use mallard_report::model::Machine;

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
    }
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
