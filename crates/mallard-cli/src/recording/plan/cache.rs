//! Plans of long recordings, kept between replays.
//!
//! A plan lies in the folder of cached files under a name that is made of all it depends on: what
//! the recording holds, the processes, how it is compiled, the format of plans, and the build of
//! this program. So a changed recording, and a changed compiler, never find an old plan. Beside it
//! lies what the plan does, with its digest, which is checked before use. Both are written under
//! other names first, the plan before its description, so that two replays may run at once and one
//! that is killed leaves nothing that is used.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use mallard_trace::Recording;
use mallard_trace::plan::{self, Family, Plan};
use serde::{Deserialize, Serialize};

/// Recordings of fewer events compile in a moment.
const KEPT_EVENTS_MIN: u64 = 500_000;
/// Bytes of all plans that are kept. What was used since a day stays all the same.
const KEPT_BYTES_MAX: u64 = 2 << 30;
const KEPT_TIME_MIN: Duration = Duration::from_secs(24 * 60 * 60);

/// What a plan does, and its digest.
#[derive(Serialize, Deserialize)]
struct Description {
    digest: String,
    plan: Plan,
}

/// Where a recording's plan is kept.
pub struct Kept {
    plan: PathBuf,
    description: PathBuf,
}

impl Kept {
    /// None for a short recording, and where nothing can be kept.
    pub fn of(
        recording: &Recording<File>,
        file: &Path,
        family: &Family,
        how: plan::Options,
    ) -> Option<Kept> {
        let processes = family.processes.iter();
        let threads = processes.flat_map(|process| recording.threads_of(*process));
        let events: u64 = threads.map(|(_, thread)| thread.events).sum();
        if events < KEPT_EVENTS_MIN {
            return None;
        }
        let folder = mallard_allocators::cache_folder().ok()?.join("plans");
        fs::create_dir_all(&folder).ok()?;
        let content = mallard_trace::digest(File::open(file).ok()?).ok()?;
        let build = fs::metadata(std::env::current_exe().ok()?).ok()?;
        let (size, seconds, nanoseconds) = (build.len(), build.mtime(), build.mtime_nsec());
        let all = format!(
            "{content:032x} {:?} {} {:x} {size} {seconds} {nanoseconds}",
            family.processes,
            how.serial,
            plan::MAGIC
        );
        let name = format!("{:032x}", mallard_trace::digest(all.as_bytes()).ok()?);
        Some(Kept {
            plan: folder.join(format!("{name}.plan")),
            description: folder.join(format!("{name}.json")),
        })
    }

    /// The plan, if it is there and whole.
    pub fn find(&self) -> Option<(PathBuf, Plan)> {
        let text = fs::read(&self.description).ok()?;
        let described: Description = serde_json::from_slice(&text).ok()?;
        let file = File::open(&self.plan).ok()?;
        let is_whole = file.metadata().ok()?.len() == described.plan.bytes
            && digest(&file).ok()? == described.digest;
        if !is_whole {
            return None;
        }
        // A plan that is used is not old.
        let _ = file.set_modified(SystemTime::now());
        Some((self.plan.clone(), described.plan))
    }

    /// Compiles the plan and keeps it.
    pub fn make(
        &self,
        compile: impl FnOnce(&File) -> mallard_trace::Result<Plan>,
    ) -> Result<(PathBuf, Plan)> {
        let own = |path: &Path| path.with_extension(format!("{}.part", std::process::id()));
        let part = own(&self.plan);
        let made = (|| -> Result<Plan> {
            let file = File::options();
            let file = file
                .clone()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&part)?;
            let plan = compile(&file)?;
            let described = Description {
                digest: digest(&File::open(&part)?)?,
                plan,
            };
            fs::rename(&part, &self.plan)?;
            let text = serde_json::to_vec(&described)?;
            let description = own(&self.description);
            fs::write(&description, text)?;
            fs::rename(&description, &self.description)?;
            Ok(described.plan)
        })();
        if made.is_err() {
            let _ = fs::remove_file(&part);
        }
        let plan = made.with_context(|| format!("cannot keep {}", self.plan.display()));
        self.forget_old();
        Ok((self.plan.clone(), plan?))
    }

    /// Removes plans that were not used for long, the oldest first, until the rest is small enough.
    fn forget_old(&self) {
        let Some(entries) = self
            .plan
            .parent()
            .and_then(|folder| fs::read_dir(folder).ok())
        else {
            return;
        };
        let file = |entry: fs::DirEntry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        };
        let mut all: Vec<_> = entries.flatten().filter_map(file).collect();
        all.sort();
        let mut bytes: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
        for (used, length, path) in all {
            let is_old = used.elapsed().is_ok_and(|since| since > KEPT_TIME_MIN);
            if bytes <= KEPT_BYTES_MAX || !is_old {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                bytes -= length;
            }
        }
    }
}

fn digest(file: &File) -> std::io::Result<String> {
    Ok(format!("{:032x}", mallard_trace::digest(file)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_a_whole_plan_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept {
            plan: folder.path().join("a.plan"),
            description: folder.path().join("a.json"),
        };
        assert!(kept.find().is_none());
        let plan = Plan {
            bytes: 4,
            calls: 7,
            ..Plan::default()
        };
        let write = |mut file: &File| {
            file.write_all(b"plan")?;
            Ok(plan.clone())
        };
        assert_eq!(kept.make(write).unwrap().1, plan);
        assert_eq!(kept.find().unwrap(), (kept.plan.clone(), plan.clone()));
        // Damaged, cut, and without its description.
        fs::write(&kept.plan, b"plam").unwrap();
        assert!(kept.find().is_none());
        fs::write(&kept.plan, b"pla").unwrap();
        assert!(kept.find().is_none());
        assert_eq!(kept.make(write).unwrap().1, plan);
        fs::remove_file(&kept.description).unwrap();
        assert!(kept.find().is_none());
        // One that cannot be made leaves nothing.
        let fail = |_: &File| Err(mallard_trace::Error::NotOne);
        assert!(kept.make(fail).is_err());
        let left = fs::read_dir(folder.path()).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["a.plan"]);
    }
}
