//! Functions, inlined functions and lines by debug information of the DWARF kind.
//!
//! [`look_up`] asks for ascending addresses. Units are read when the first of their addresses comes,
//! and stay until the module is done. Parts that lie in files of their own (`-gsplit-dwarf`: one
//! `.dwo` for each unit, or one `.dwp` for the program) are opened when they are needed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{AbbreviationsCacheStrategy, Dwarf, DwarfPackage, EndianSlice};
use object::Object;

use super::Names;
use super::demangle::demangled;
use super::file::{File, Slice, hexadecimal, is_needed};
use crate::model::{Frame, Texts};

/// Fills in the frames of the addresses that the file's debug information covers. `program` is the
/// path of the file that ran, beside which a `.dwp` may lie.
pub fn look_up(
    file: &File<'_>,
    program: &Path,
    probes: &[u64],
    names: &mut Names,
    texts: &mut Texts,
) -> Result<(), gimli::Error> {
    let mut dwarf = load(file)?;
    if let Some(shared) = shared_part(file, program) {
        dwarf.set_sup(load(&shared)?);
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let context = Context::from_dwarf(dwarf)?;
    let split = Split {
        file,
        package: package(file, program),
    };
    for (place, &probe) in probes.iter().enumerate() {
        if place > 0 && probe == probes[place - 1] {
            names[place] = names[place - 1].clone();
            continue;
        }
        // One damaged unit leaves the others their names.
        if let Ok(frames) = frames_at(&context, &split, probe, texts) {
            names[place] = frames;
        }
    }
    Ok(())
}

fn load<'a>(file: &File<'a>) -> Result<Dwarf<Slice<'a>>, gimli::Error> {
    Dwarf::load(|id| file.dwarf_section(is_needed(id).then(|| id.name())))
}

fn frames_at<'a>(
    context: &Context<Slice<'a>>,
    split: &Split<'a, '_>,
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
struct Split<'a, 'f> {
    file: &'f File<'a>,
    package: Option<DwarfPackage<Slice<'a>>>,
}

/// All units in one file, as `dwp` makes it: `program.dwp`.
fn package<'a>(file: &File<'a>, program: &Path) -> Option<DwarfPackage<Slice<'a>>> {
    let mut path = program.as_os_str().to_owned();
    path.push(".dwp");
    let package = File::open(Path::new(&path), file.arena()).ok()?;
    let empty = EndianSlice::new(&[][..], package.endian());
    DwarfPackage::load(|id| package.dwarf_section(id.dwo_name()), empty).ok()
}

impl<'a> Split<'a, '_> {
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
        let file = File::open(&path, self.file.arena()).ok()?;
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
