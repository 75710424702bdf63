//! Functions, inlined functions and lines by debug information of the DWARF kind.
//!
//! [`look_up`] asks for ascending addresses. Many are divided into a range for each of two threads.
//! Each reads the units of its range when the first of their addresses comes, and
//! keeps them until the module is done. Parts that lie in files of their own (`-gsplit-dwarf`: one
//! `.dwo` for each unit, or one `.dwp` for the program) are opened when they are needed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{AbbreviationsCacheStrategy, Dwarf, DwarfPackage, EndianSlice, SectionId};
use object::Object;

use super::Names;
use super::demangling::demangled;
use super::file::{Arena, File, NEEDED_SECTIONS, Slice, hexadecimal};
use crate::model::{Frame, Texts};

/// Fewer addresses than this are not worth a thread.
const THREAD_ADDRESSES_MIN: usize = 500;
/// Every thread reads the heads of all units, which takes a fifth of the size of DWARF.
const THREADS_MAX: usize = 2;

/// Fills in the frames of the addresses that the file's debug information covers. `program` is the
/// path of the file that ran, beside which a `.dwp` may lie.
pub fn look_up(
    file: &File<'_>,
    program: &Path,
    probes: &[u64],
    names: &mut Names,
    texts: &mut Texts,
) -> Result<(), gimli::Error> {
    let own = Sections::of(file)?;
    let shared = match shared_part(file, program) {
        Some(shared) => Some(Sections::of(&shared)?),
        None => None,
    };
    file.forget_pages();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let threads = (probes.len() / THREAD_ADDRESSES_MIN).clamp(1, cpus.min(THREADS_MAX));
    let length = probes.len().div_ceil(threads).max(1);
    let found: Vec<Result<Names, gimli::Error>> = thread::scope(|scope| {
        let ranges = probes.chunks(length);
        let workers: Vec<_> = ranges
            .map(|range| scope.spawn(|| frames_of(&own, shared.as_ref(), program, range)))
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|found| found.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let mut places = names.iter_mut();
    for range in found {
        for frames in range? {
            let place = places.next().expect("one for each address");
            // Each thread has texts of its own.
            let shared = frames.into_iter().map(|frame| Frame {
                function: texts.get(&frame.function),
                file: texts.get(&frame.file),
                line: frame.line,
            });
            *place = shared.collect();
        }
    }
    Ok(())
}

/// The frames of some ascending addresses.
fn frames_of(
    own: &Sections<'_>,
    shared: Option<&Sections<'_>>,
    program: &Path,
    probes: &[u64],
) -> Result<Names, gimli::Error> {
    let arena = Arena::default();
    let mut dwarf = own.dwarf()?;
    if let Some(shared) = shared {
        dwarf.set_sup(shared.dwarf()?);
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let context = Context::from_dwarf(dwarf)?;
    let split = Split {
        arena: &arena,
        package: package(program, &arena),
    };
    let mut texts = Texts::default();
    let mut names: Names = Vec::with_capacity(probes.len());
    for (place, &probe) in probes.iter().enumerate() {
        let frames = if place > 0 && probe == probes[place - 1] {
            names[place - 1].clone()
        } else {
            // One damaged unit leaves the others their names.
            frames_at(&context, &split, probe, &mut texts).unwrap_or_default()
        };
        names.push(frames);
    }
    Ok(names)
}

/// The sections of a file that are needed, unpacked. Threads share them.
struct Sections<'a> {
    bytes: HashMap<SectionId, Slice<'a>>,
    empty: Slice<'a>,
}

impl<'a> Sections<'a> {
    fn of(file: &File<'a>) -> Result<Sections<'a>, gimli::Error> {
        let mut bytes = HashMap::new();
        for id in NEEDED_SECTIONS {
            bytes.insert(id, file.dwarf_section(Some(id.name()))?);
        }
        Ok(Sections {
            bytes,
            empty: file.dwarf_section(None)?,
        })
    }

    fn dwarf(&self) -> Result<Dwarf<Slice<'a>>, gimli::Error> {
        Dwarf::load(|id| Ok(self.bytes.get(&id).copied().unwrap_or(self.empty)))
    }
}

fn frames_at<'a>(
    context: &Context<Slice<'a>>,
    split: &Split<'a>,
    probe: u64,
    texts: &mut Texts,
) -> Result<Vec<Frame>, gimli::Error> {
    let mut lookup = context.find_frames(probe);
    let mut found = loop {
        match lookup {
            LookupResult::Output(found) => break found?,
            LookupResult::Load { load, continuation } => {
                lookup = continuation.resume(split.load(&load));
            }
        }
    };
    let mut frames = Vec::new();
    while let Some(frame) = found.next()? {
        let function = match &frame.function {
            Some(name) => texts.get(&demangled(&name.raw_name()?)),
            None => texts.get(""),
        };
        let location = frame.location.as_ref();
        let file = location
            .and_then(|location| location.file)
            .unwrap_or_default();
        frames.push(Frame {
            function,
            file: texts.get(file),
            line: location.and_then(|location| location.line).unwrap_or(0),
        });
    }
    Ok(frames)
}

/// The file that several debug files share by dwz, which `.gnu_debugaltlink` names.
fn shared_part<'a>(file: &File<'a>, program: &Path) -> Option<File<'a>> {
    let (path, build_id) = file.elf.gnu_debugaltlink().ok()??;
    let link = Path::new(OsStr::from_bytes(path));
    let name = link.file_name()?;
    let debug = Path::new("/usr/lib/debug/.dwz");
    let id = hexadecimal(build_id);
    let (start, rest) = id.split_at_checked(2)?;
    let candidates = [
        program.parent().unwrap_or(Path::new("")).join(link),
        debug.join(name),
        debug.join("x86_64-linux-gnu").join(name),
        debug.join("aarch64-linux-gnu").join(name),
        PathBuf::from(format!("/usr/lib/debug/.build-id/{start}/{rest}.debug")),
    ];
    candidates.into_iter().find_map(|path| {
        let shared = File::open(&path, file.arena()).ok()?;
        (shared.build_id() == id).then_some(shared)
    })
}

/// The parts of split debug information.
struct Split<'a> {
    arena: &'a Arena,
    package: Option<DwarfPackage<Slice<'a>>>,
}

/// All units in one file, as `dwp` makes it: `program.dwp`.
fn package<'a>(program: &Path, arena: &'a Arena) -> Option<DwarfPackage<Slice<'a>>> {
    let mut path = program.as_os_str().to_owned();
    path.push(".dwp");
    let package = File::open(Path::new(&path), arena).ok()?;
    let empty = EndianSlice::new(&[][..], package.endian());
    DwarfPackage::load(|id| package.dwarf_section(id.dwo_name()), empty).ok()
}

impl<'a> Split<'a> {
    fn load(&self, part: &SplitDwarfLoad<Slice<'a>>) -> Option<Arc<Dwarf<Slice<'a>>>> {
        let package = self.package.as_ref();
        if let Some(unit) = package.and_then(|p| p.find_cu(part.dwo_id, &part.parent).ok()?) {
            return Some(Arc::new(unit));
        }
        let mut path = PathBuf::new();
        if let Some(folder) = &part.comp_dir {
            path.push(OsStr::from_bytes(folder.slice()));
        }
        path.push(OsStr::from_bytes(part.path.as_ref()?.slice()));
        let file = File::open(&path, self.arena).ok()?;
        let mut dwarf = Dwarf::load(|id| file.dwarf_section(id.dwo_name())).ok()?;
        let header = dwarf.units().next().ok()??;
        let unit = dwarf.unit(header).ok()?;
        if unit.dwo_id != Some(part.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&part.parent);
        Some(Arc::new(dwarf))
    }
}
