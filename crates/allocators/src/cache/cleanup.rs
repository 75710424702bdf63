//! Removes cached folders that nothing uses any more.
//!
//! Every build of the lab has other embedded files, so it writes a folder of its own. A folder's
//! time of change says when a lab used it last ([`touch`]). [`prune`] runs only where a lab writes
//! a new folder, and keeps what is young, the newest few, and whatever a running process has loaded
//! or passes on in its environment.
//!
//! Two labs may run at once: one notes under a shared lock of the folder that it uses it, and then
//! looks whether the file is there; the other removes an old folder under an exclusive lock, and
//! only if there is no note still.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A folder that no lab used for this long goes.
const UNUSED_TIME_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// So many folders stay, however many labs were built in a month.
const KEPT_FOLDERS_MIN: usize = 12;
/// The digits of a hash in a folder's name.
const HASH_DIGITS: usize = 12;

/// Notes that a folder is used now, if it exists. To spare the disk, a note of today stays. What
/// is in the folder after this is there for a day at least.
pub(crate) fn touch(folder: &Path) {
    let now = SystemTime::now();
    if used(folder).is_some_and(|then| now.duration_since(then).is_ok_and(|age| age < DAY / 2)) {
        return;
    }
    // A cache that cannot be written to is not pruned either.
    let _ = File::open(folder).and_then(|folder| {
        // Without locks on this disk, none is removed.
        let _ = flock(&folder, FlockOperation::LockShared);
        folder.set_modified(now)
    });
}

/// Removes the folders in `cache` that are not in use. What cannot be removed stays.
pub(crate) fn prune(cache: &Path) {
    let now = SystemTime::now();
    let mut folders: Vec<(SystemTime, PathBuf)> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_ours(&entry.file_name().to_string_lossy()))
        .filter_map(|entry| Some((used(&entry.path())?, entry.path())))
        .collect();
    folders.sort_by(|one, other| other.cmp(one));
    let old: Vec<(SystemTime, PathBuf)> = folders
        .into_iter()
        .enumerate()
        .filter(|(index, (then, _))| {
            let age = now.duration_since(*then).unwrap_or_default();
            age > UNUSED_TIME_MAX || (*index >= KEPT_FOLDERS_MIN && age > DAY)
        })
        .map(|(_, folder)| folder)
        .collect();
    if old.is_empty() {
        return;
    }
    let running = running();
    for (then, folder) in old {
        if !is_named(&running, &folder) {
            remove(&folder, then);
        }
    }
}

/// Removes a folder unless a lab has used it since `then`, or is about to note so.
fn remove(folder: &Path, then: SystemTime) {
    let Ok(open) = File::open(folder) else {
        return;
    };
    let is_locked = flock(&open, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_locked && used(folder) == Some(then) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// When a folder was used last; none for what is no folder.
fn used(folder: &Path) -> Option<SystemTime> {
    let found = fs::symlink_metadata(folder).ok()?;
    found.is_dir().then(|| found.modified().ok())?
}

/// Whether a name is one that the lab gives: a hash. Earlier builds of it also gave
/// `counting-HASH`.
fn is_ours(name: &str) -> bool {
    let name = name.strip_prefix("counting-").unwrap_or(name);
    name.len() == HASH_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What the running processes have mapped and what their environment says, as far as this user may
/// read it.
fn running() -> Vec<u8> {
    let mut all = Vec::new();
    for pid in mallard_procfs::all() {
        for file in ["maps", "environ"] {
            all.extend(fs::read(mallard_procfs::path(pid, file)).unwrap_or_default());
        }
    }
    all
}

/// Whether a path within the folder is named.
fn is_named(text: &[u8], folder: &Path) -> bool {
    let mut path = folder.as_os_str().as_encoded_bytes().to_vec();
    path.push(b'/');
    text.windows(path.len()).any(|window| window == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    /// A folder with a file, last used so many days ago.
    fn folder(cache: &Path, name: &str, days: u32) -> PathBuf {
        let folder = cache.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("libmallard.so"), "").unwrap();
        let then = SystemTime::now() - DAY * days;
        File::open(&folder).unwrap().set_modified(then).unwrap();
        folder
    }

    #[test]
    fn what_was_long_unused_goes_and_everything_else_stays() {
        let cache = tempfile::tempdir().unwrap();
        let stay = [
            ("0123456789ab", 29),
            ("peers", 90),
            ("0123456789abc", 90),
            ("mine", 90),
        ];
        let go = [("ba9876543210", 31), ("cba987654321", 31)];
        let make = |(name, days)| folder(cache.path(), name, days);
        let (stay, go) = (stay.map(make), go.map(make));
        prune(cache.path());
        assert!(stay.iter().all(|folder| folder.exists()), "{stay:?}");
        assert!(!go.iter().any(|folder| folder.exists()), "{go:?}");
    }

    #[test]
    fn of_many_young_folders_the_newest_stay_and_those_of_today() {
        let cache = tempfile::tempdir().unwrap();
        let make = |number: u32, days| folder(cache.path(), &format!("{number:012x}"), days);
        let today: Vec<PathBuf> = (0..10).map(|number| make(number, 0)).collect();
        let older: Vec<PathBuf> = (10..20).map(|number| make(number, number - 8)).collect();
        prune(cache.path());
        assert!(today.iter().all(|folder| folder.exists()));
        let left: Vec<bool> = older.iter().map(|folder| folder.exists()).collect();
        assert_eq!(
            left.iter().filter(|stays| **stays).count(),
            KEPT_FOLDERS_MIN - today.len()
        );
        assert!(left[0] && left[1], "{left:?}");
    }

    #[test]
    fn a_folder_that_another_lab_begins_to_use_meanwhile_stays() {
        let cache = tempfile::tempdir().unwrap();
        let old = folder(cache.path(), "0123456789ab", 40);
        let then = used(&old).unwrap();
        let open = File::open(&old).unwrap();
        flock(&open, FlockOperation::LockShared).unwrap();
        remove(&old, then);
        assert!(old.exists(), "a lab is about to note that it uses it");
        drop(open);
        touch(&old);
        remove(&old, then);
        assert!(old.exists(), "a lab uses it since");
        remove(&old, used(&old).unwrap());
        assert!(!old.exists());
    }

    #[test]
    fn a_folder_that_a_running_process_names_or_that_is_used_again_stays() {
        let cache = tempfile::tempdir().unwrap();
        let named = folder(cache.path(), "0123456789ab", 40);
        let again = folder(cache.path(), "1123456789ab", 40);
        touch(&again);
        // Its environment alone names the folder: glibc does not find what to preload.
        let mut process = Command::new("cat")
            .env("MALLARD_TEST", named.join("libmallard.so"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its environment is to be seen once it runs, which is a moment after its start.
        let (input, output) = (process.stdin.as_mut(), process.stdout.as_mut());
        input.unwrap().write_all(b"x").unwrap();
        output.unwrap().read_exact(&mut [0]).unwrap();
        prune(cache.path());
        assert!(named.exists() && again.exists());
        // It ends with its input.
        drop(process.stdin.take());
        process.wait().unwrap();
        prune(cache.path());
        assert!(!named.exists() && again.exists());
    }
}
