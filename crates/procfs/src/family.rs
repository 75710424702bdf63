//! The processes that a process started.

/// A process and its descendants, the process first. A process whose parent ended is in no family.
pub fn of(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        for child in children(process) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

/// The children of a process, those that ended and were not waited for included.
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for thread in super::threads(pid) {
        let list = super::text(super::path(pid, &format!("task/{thread}/children")));
        let list = list.unwrap_or_default();
        found.extend(list.split_ascii_whitespace().flat_map(str::parse::<u32>));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn descendants_are_found() {
        // The inner shell says its number, and both end with the pipe.
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo $$; read line; exit 0'; exit 0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let inner: u32 = line.trim().parse().unwrap();
        assert_eq!(of(shell.id()), [shell.id(), inner]);
        assert!(children(std::process::id()).contains(&shell.id()));
        shell.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(shell.wait().unwrap().success());
        assert_eq!(of(shell.id()), [shell.id()]);
    }
}
