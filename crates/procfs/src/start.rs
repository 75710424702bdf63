//! How a program is started that this process has just written.

use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long a child of another thread may keep a program's file open for writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
const BUSY_INTERVAL: Duration = Duration::from_millis(2);

/// Starts a program whose file may be busy. If another thread of this process forks while the file
/// is open for writing, its child keeps the file open until it executes its own program. Until then
/// the system refuses to run the file, and this function tries again.
///
/// # Errors
/// As [`Command::spawn`].
pub fn newly_written(command: &mut Command) -> io::Result<Child> {
    let begun = Instant::now();
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && begun.elapsed() < BUSY_TIMEOUT =>
            {
                std::thread::sleep(BUSY_INTERVAL);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn a_program_that_is_still_open_for_writing_is_started_once_it_is_closed() {
        let path = std::env::temp_dir().join(format!("mallard-start-{}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .mode(0o700)
            .open(&path)
            .unwrap();
        io::copy(&mut fs::File::open("/bin/true").unwrap(), &mut file).unwrap();
        let busy = Command::new(&path).spawn().unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ExecutableFileBusy);
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(file);
        });
        let mut child = newly_written(&mut Command::new(&path)).unwrap();
        assert!(child.wait().unwrap().success());
        closing.join().unwrap();
        fs::remove_file(&path).unwrap();
    }
}
