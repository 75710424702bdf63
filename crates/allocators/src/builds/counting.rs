//! The build of Mallard that counts lock contention, made from the sources on request.
//!
//! The lab does not embed it: only Mallard's developers need it, and they have the sources.

use std::path::{Path, PathBuf};

use crate::cache::{cleanup, files};

/// The variable that names the file to which such a build appends its counts when a process ends.
pub const VARIABLE: &str = match mallard_formats::variables::COUNTERS.to_str() {
    Ok(name) => name,
    Err(_) => panic!("a name in ASCII"),
};

/// Builds `libmallard.so` with the feature `counters`; returns at once if it is up to date. An
/// error is a sentence.
pub fn counting_library(cache: Option<&Path>) -> Result<PathBuf, String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mallard-c/Cargo.toml");
    if !manifest.is_file() {
        return Err(format!(
            "the counting build needs Mallard's sources, which are not here ({})",
            manifest.display()
        ));
    }
    let target = files::cache_folder(cache)?.join(folder_of(&manifest));
    let mut command = mallard_cargo::command();
    command
        .args(["build", "--release", "--locked", "--quiet"])
        .args(["--features", "counters", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target);
    let output = command
        .output()
        .map_err(|error| format!("cannot run cargo for the counting build: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "the counting build failed ({}):\n{said}",
            manifest.display()
        ));
    }
    cleanup::touch(&target);
    let library = target.join("release/libmallard.so");
    files::preloadable(&library).map_err(|reason| format!("{} {reason}", library.display()))?;
    library
        .canonicalize()
        .map_err(|error| format!("cargo did not build {}: {error}", library.display()))
}

/// The folder for the build of a checkout. Each checkout has its own because cargo does not
/// distinguish builds of two copies of the same sources, and would use files of a copy that may no
/// longer exist.
fn folder_of(manifest: &Path) -> String {
    let path = manifest.canonicalize();
    let path = path.as_deref().unwrap_or(manifest);
    let hash = files::short_hash(path.as_os_str().as_encoded_bytes());
    format!("{}{hash}", cleanup::COUNTING_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::folder_of;
    use std::path::Path;

    #[test]
    fn two_checkouts_do_not_share_a_build() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let [here, there] = ["Cargo.toml", "src/lib.rs"].map(|file| folder_of(&own.join(file)));
        assert_ne!(here, there);
        let roundabout = own.join("src/../Cargo.toml");
        assert_eq!(folder_of(&roundabout), here, "one checkout, one folder");
    }
}
