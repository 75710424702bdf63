//! The files that this crate embeds, and the folder that holds them and the built peers.
//!
//! A library can only be preloaded from a file. Each is written once, under a name with the hash of
//! its content, so an upgrade never changes a file that a running process uses. An existing file is
//! compared with the embedded content before use. Writing uses a temporary file and a rename, so
//! two labs can run at once. [`cleanup`] removes the folders of old builds.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256};

use super::cleanup;

pub(crate) const LIBRARY: &[u8] = include_bytes!(env!("MALLARD_CARRIED_LIBRARY"));
const PROBE: &[u8] = include_bytes!(env!("MALLARD_CARRIED_PROBE"));

/// Writes `libmallard.so` if it is missing and returns its path.
pub(crate) fn library(cache: Option<&Path>) -> Result<PathBuf, String> {
    install(cache, "libmallard.so", LIBRARY)
}

/// Writes the probe program if it is missing and returns its path.
pub(crate) fn probe(cache: Option<&Path>) -> Result<PathBuf, String> {
    install(cache, "mallard-probe", PROBE)
}

/// The folder for all cached files: `chosen`, or else the first usual one that is writable and
/// whose path has no character that `LD_PRELOAD` would misread.
pub(crate) fn cache_folder(chosen: Option<&Path>) -> Result<PathBuf, String> {
    let mut refusals = Vec::new();
    for (folder, shared) in candidates(chosen) {
        match usable(&folder, shared) {
            Ok(()) => return Ok(folder),
            Err(reason) => refusals.push(format!("{} {reason}", folder.display())),
        }
    }
    Err(format!(
        "no usable folder for cached files: {}",
        refusals.join("; ")
    ))
}

/// The folders to try, and whether other users can write beside each.
fn candidates(chosen: Option<&Path>) -> Vec<(PathBuf, bool)> {
    if let Some(chosen) = chosen {
        let path = std::path::absolute(chosen).unwrap_or_else(|_| chosen.to_owned());
        return vec![(path, false)];
    }
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let mut folders = Vec::new();
    folders.extend(variable("XDG_CACHE_HOME").map(|folder| (folder.join("mallard"), false)));
    folders.extend(variable("HOME").map(|folder| (folder.join(".cache/mallard"), false)));
    let user = rustix::process::geteuid().as_raw();
    folders.push((std::env::temp_dir().join(format!("mallard-{user}")), true));
    folders
}

fn usable(folder: &Path, shared: bool) -> Result<(), String> {
    preloadable(folder)?;
    let failed = |error: std::io::Error| format!("cannot be written to: {error}");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(failed)?;
    if shared {
        let found = fs::symlink_metadata(folder).map_err(failed)?;
        let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
        if !ours || found.mode() & 0o022 != 0 {
            return Err("belongs to another user or is writable by others".to_owned());
        }
    }
    let trial = folder.join(unique_name("trial"));
    File::create_new(&trial).map_err(failed)?;
    fs::remove_file(&trial).map_err(failed)
}

/// Checks that the path can be an entry of `LD_PRELOAD`, which has no quoting.
pub(crate) fn preloadable(path: &Path) -> Result<(), String> {
    match path.to_str() {
        None => Err("has a name that is not UTF-8, which cannot be preloaded".to_owned()),
        Some(text) => match text
            .chars()
            .find(|c| c.is_whitespace() || [':', '$'].contains(c))
        {
            Some(c) => Err(format!("has {c:?} in its path, which cannot be preloaded")),
            None => Ok(()),
        },
    }
}

/// The first twelve digits of the SHA-256, enough to distinguish versions.
pub(crate) fn short_hash(content: &[u8]) -> String {
    hex(&Sha256::digest(content)[..6])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn install(cache: Option<&Path>, name: &str, content: &[u8]) -> Result<PathBuf, String> {
    let cache = cache_folder(cache)?;
    let folder = cache.join(short_hash(content));
    let path = folder.join(name);
    // First, so that no other lab removes what is found.
    cleanup::touch(&folder);
    if fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(path);
    }
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    replace(&path, content).map_err(failed)?;
    cleanup::prune(&cache);
    Ok(path)
}

/// Writes `content` to `path` in one atomic step, as an executable.
pub(crate) fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("file");
    let temporary = path.with_file_name(unique_name(name));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A hidden name that no other process and no other thread of this process uses now.
fn unique_name(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".{name}.{}.{number}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_written_once_and_damage_is_repaired() {
        let cache = tempfile::tempdir().unwrap();
        let path = install(Some(cache.path()), "lib.so", b"one").unwrap();
        let written = fs::metadata(&path).unwrap().ino();
        assert_eq!(install(Some(cache.path()), "lib.so", b"one").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), written);

        fs::write(&path, b"damaged").unwrap();
        install(Some(cache.path()), "lib.so", b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn different_content_gets_a_different_folder() {
        let cache = tempfile::tempdir().unwrap();
        let one = install(Some(cache.path()), "lib.so", b"one").unwrap();
        let two = install(Some(cache.path()), "lib.so", b"two").unwrap();
        assert_ne!(one, two);
        assert_eq!(fs::read(one).unwrap(), b"one");
    }

    #[test]
    fn nothing_is_left_beside_the_file() {
        let cache = tempfile::tempdir().unwrap();
        let path = install(Some(cache.path()), "lib.so", b"one").unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_with_a_separator_in_its_path_is_rejected() {
        let cache = tempfile::tempdir().unwrap();
        for name in ["with space", "with:colon", "$ORIGIN"] {
            let reason = cache_folder(Some(&cache.path().join(name))).unwrap_err();
            assert!(reason.contains("cannot be preloaded"), "{name}: {reason}");
        }
    }

    #[test]
    fn a_folder_below_a_file_is_rejected_with_its_name() {
        let cache = tempfile::tempdir().unwrap();
        let file = cache.path().join("file");
        fs::write(&file, "").unwrap();
        let reason = cache_folder(Some(&file.join("below"))).unwrap_err();
        assert!(reason.contains("file/below"), "{reason}");
    }

    #[test]
    fn a_shared_folder_that_others_may_write_to_is_rejected() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            usable(folder.path(), true)
                .unwrap_err()
                .contains("another user")
        );
        assert_eq!(usable(folder.path(), false), Ok(()));
    }
}
