//! Finds the files of a module: the program or library itself, and its debug information. A file of
//! another build gives wrong names, so a file whose build id differs from the known one is not
//! used.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Crc;
use object::Object;

use super::file::{Arena, File, build_id_of};
use super::{Options, Why, place};
use crate::model::Mapping;

/// Where distributions put debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// Build ids are 20 bytes, or what the options of the linker say.
const BUILD_ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=128;

pub struct Search<'a> {
    options: &'a Options,
    /// The files that the user named, with their build ids.
    given: Vec<(&'a Path, Option<String>)>,
    debug_folders: Vec<PathBuf>,
}

impl<'a> Search<'a> {
    pub fn new(options: &'a Options) -> Search<'a> {
        let given = options
            .files
            .iter()
            .map(|file| (&**file, build_id_of(file)));
        let mut debug_folders = options.debug_folders.clone();
        if let Some(root) = &options.root {
            debug_folders.push(under(root, Path::new(DEBUG_FOLDER)));
        }
        debug_folders.push(DEBUG_FOLDER.into());
        Search {
            options,
            given: given.collect(),
            debug_folders,
        }
    }

    /// The file of a module, and where it lies.
    pub fn module<'b>(
        &self,
        module: &Mapping,
        arena: &'b Arena,
    ) -> Result<(File<'b>, PathBuf), Why> {
        if let Some(path) = self.given_for(module) {
            let file = File::open(path, arena).map_err(|error| damaged(path, &error))?;
            return Ok((file, path.to_path_buf()));
        }
        if let Some(found) = self.held(module, arena) {
            return Ok(found);
        }
        let path = self.path_of(module);
        let file = match File::open(&path, arena) {
            Ok(file) => file,
            Err(super::file::Error::Io(_)) if module.deleted => return Err(Why::Deleted),
            Err(super::file::Error::Io(error)) => {
                return Err(Why::Missing(format!("{}: {error}", path.display())));
            }
            Err(error) => return Err(damaged(&path, &error)),
        };
        if module.build_id.is_empty() {
            // Whatever lies there now is another file.
            if module.deleted {
                return Err(Why::Deleted);
            }
            return if place::can_hold(&file, module) {
                Ok((file, path))
            } else {
                Err(Why::Replaced)
            };
        }
        if same_build(&file.build_id(), &module.build_id) {
            Ok((file, path))
        } else {
            Err(Why::Replaced)
        }
    }

    /// The file that the user named for this module: by build id where both are known, else by
    /// name.
    fn given_for(&self, module: &Mapping) -> Option<&'a Path> {
        let fits = |(path, build_id): &&(&Path, Option<String>)| match build_id {
            Some(own) if !module.build_id.is_empty() => same_build(own, &module.build_id),
            _ => path.file_name() == Some(OsStr::new(module.name())),
        };
        self.given.iter().find(fits).map(|(path, _)| *path)
    }

    /// The file that the process maps, whatever lies at its path now. Its place is given as that
    /// path, beside which debug files may lie.
    fn held<'b>(&self, module: &Mapping, arena: &'b Arena) -> Option<(File<'b>, PathBuf)> {
        let process = self.options.process.as_ref()?;
        let range = format!("map_files/{:x}-{:x}", module.start, module.limit);
        if let Ok(file) = File::open(&process.join(range), arena) {
            return Some((file, self.path_of(module)));
        }
        // Less rights do for the program itself.
        let file = File::open(&process.join("exe"), arena).ok()?;
        let known = !module.build_id.is_empty();
        let same = known && same_build(&file.build_id(), &module.build_id);
        same.then(|| (file, self.path_of(module)))
    }

    fn path_of(&self, module: &Mapping) -> PathBuf {
        match &self.options.root {
            Some(root) => under(root, Path::new(&*module.path)),
            None => PathBuf::from(&*module.path),
        }
    }

    /// A separate file with debug information that belongs to the module.
    pub fn debug_file<'b>(
        &self,
        module: &Mapping,
        own: Option<&(File<'b>, PathBuf)>,
        arena: &'b Arena,
    ) -> Option<File<'b>> {
        if own.is_some_and(|(file, _)| file.has_dwarf()) {
            return None;
        }
        let build_id = match own {
            Some((file, _)) => file.build_id(),
            None => module.build_id.to_string(),
        };
        let by_id = self.by_build_id(&build_id).into_iter().find_map(|path| {
            let file = File::open(&path, arena).ok()?;
            let same = same_build(&file.build_id(), &build_id);
            (same && file.has_dwarf()).then_some(file)
        });
        by_id
            .or_else(|| own.and_then(|(file, path)| self.by_link(file, path, arena)))
            .or_else(|| self.fetched(&build_id, arena))
    }

    /// The debug file that a server has.
    fn fetched<'b>(&self, build_id: &str, arena: &'b Arena) -> Option<File<'b>> {
        let fetcher = self.options.fetcher.as_ref()?;
        if !is_build_id(build_id) {
            return None;
        }
        let mut command = Command::new(fetcher);
        let output = command.args(["debuginfo", build_id]).stdin(Stdio::null());
        let output = output.stderr(Stdio::null()).output().ok()?;
        let path = output.stdout.trim_ascii_end();
        let file = File::open(Path::new(OsStr::from_bytes(path)), arena).ok()?;
        (same_build(&file.build_id(), build_id) && file.has_dwarf()).then_some(file)
    }

    /// Where the debug file of a build id may lie.
    fn by_build_id(&self, build_id: &str) -> Vec<PathBuf> {
        if !is_build_id(build_id) {
            return Vec::new();
        }
        let build_id = build_id.to_ascii_lowercase();
        let (start, rest) = build_id.split_at(2);
        let folders = self.debug_folders.iter();
        let mut paths: Vec<PathBuf> = folders
            .map(|folder| folder.join(format!(".build-id/{start}/{rest}.debug")))
            .collect();
        // What debuginfod's clients have fetched.
        let cache = std::env::var_os("DEBUGINFOD_CACHE_PATH")
            .map(PathBuf::from)
            .or_else(|| {
                let home = std::env::var_os("HOME")?;
                Some(Path::new(&home).join(".cache/debuginfod_client"))
            });
        paths.extend(cache.map(|cache| cache.join(build_id).join("debuginfo")));
        paths
    }

    /// The file that `.gnu_debuglink` names, where gdb would look for it.
    fn by_link<'b>(&self, own: &File<'b>, path: &Path, arena: &'b Arena) -> Option<File<'b>> {
        let (name, checksum) = own.elf.gnu_debuglink().ok()??;
        let name = Path::new(OsStr::from_bytes(name));
        // The link is a name, not a path that leads elsewhere.
        if name.components().count() != 1 || name.file_name().is_none() {
            return None;
        }
        let folder = path.parent()?;
        let mut candidates = vec![folder.join(name), folder.join(".debug").join(name)];
        let folders = self.debug_folders.iter();
        candidates.extend(folders.map(|debug| under(debug, folder).join(name)));
        candidates.into_iter().find_map(|candidate| {
            let file = File::open(&candidate, arena).ok()?;
            let id = own.build_id();
            let belongs = if !id.is_empty() && !file.build_id().is_empty() {
                same_build(&id, &file.build_id())
            } else {
                let mut crc = Crc::new();
                crc.update(file.bytes);
                crc.sum() == checksum
            };
            (belongs && file.has_dwarf()).then_some(file)
        })
    }
}

fn damaged(path: &Path, error: &super::file::Error) -> Why {
    Why::Damaged(format!("{}: {error}", path.display()))
}

/// A build id becomes part of paths and command lines, so it has to be one.
fn is_build_id(text: &str) -> bool {
    let plain = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain && BUILD_ID_DIGITS.contains(&text.len())
}

fn same_build(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// An absolute path under another root.
pub fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
