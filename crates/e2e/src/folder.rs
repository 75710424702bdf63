//! Folders in the target folder that a test process keeps. They stay for inspection after a failure
//! and for speed; the next run overwrites them, and `cargo clean` removes them.
//!
//! A test may run beside a copy of itself. Each process therefore locks the folders that it writes
//! to until it ends, and the copy takes folders of other names.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};

/// A process's folders by name, and the files whose locks say that they are taken.
type Taken = HashMap<String, (PathBuf, File)>;

/// The process's own folder of this name.
///
/// # Panics
/// If it cannot be made or locked.
pub fn own(name: &str) -> PathBuf {
    static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);
    let mut taken = TAKEN.lock().expect("no thread panics under the lock");
    let taken = taken.get_or_insert_default();
    let (folder, _) = taken
        .entry(name.to_owned())
        .or_insert_with(|| take(name).unwrap_or_else(|error| panic!("{error}")));
    folder.clone()
}

/// The first folder of this name that no other process has.
fn take(name: &str) -> Result<(PathBuf, File), String> {
    let parent = crate::target_dir().join("e2e");
    let fail = |path: &Path, error: std::io::Error| {
        format!("cannot make or lock {}: {error}", path.display())
    };
    for number in 0.. {
        let folder = match number {
            0 => parent.join(name),
            _ => parent.join(format!("{name}-{number}")),
        };
        std::fs::create_dir_all(&folder).map_err(|error| fail(&folder, error))?;
        // Beside the folder, which a test may empty.
        let path = folder.with_file_name(format!("{name}-{number}.lock"));
        let lock = File::create(&path).map_err(|error| fail(&path, error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok((folder, lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(fail(&path, error.into())),
        }
    }
    unreachable!("there are more numbers than processes")
}
