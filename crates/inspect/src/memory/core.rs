//! Core files of the kernel and of gdb.
//!
//! A core has the memory that the process itself had written, and mostly not that of its files'
//! mappings. What it lacks is read from those files, if they are still the same.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use mallard_procfs::mapping::DELETED;
use memmap2::Mmap;
use zstd::stream::read::Decoder;

use super::image::{self, Note, Notes};
use super::{
    Fault, Fields, HEADER_BYTES, Mapped, Memory, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PT_LOAD, PT_NOTE,
    Piece, SEGMENT_BYTES,
};

const ET_CORE: u16 = 4;
const PF_X: u32 = 1;
/// The number of segments stands elsewhere.
const PN_XNUM: u16 = 0xffff;
const NT_PRSTATUS: u32 = 1;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;
const AT_PAGESZ: u64 = 6;
const AT_SYSINFO_EHDR: u64 = 33;
/// Where the file's name lies in `prpsinfo`, and its room; where the process lies in `prstatus`.
const NAME_AT: usize = 40;
const NAME_MAX: usize = 16;
const PID_AT: usize = 32;
/// Where the registers lie in `prstatus`, and the address in `siginfo`.
const REGISTERS_AT: usize = 112;
const FAULT_AT: usize = 16;
/// The numbers of machines, and the names of their registers in the order of `prstatus`.
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const X86_64: [&str; 20] = [
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
    "rdi", "", "rip", "", "", "rsp",
];
const AARCH64: [&str; 33] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp", "pc",
];

/// Why a core file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the core file cannot be used: {0}")]
    NoCore(&'static str),
    #[error("the file is compressed with {0}")]
    Packed(&'static str),
    #[error("the core file is cut short: it ends at {has} of {needs} bytes")]
    Short { has: u64, needs: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether the bytes begin like a core file.
pub fn is_core(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF") && head.len() >= 18 && Fields(head).u16(16) == ET_CORE
}

/// The most bytes of a packed core.
const UNPACKED_BYTES: u64 = 1 << 40;

/// The bytes of a file, if it is a core file, packed by gzip or zstd or not.
///
/// # Errors
/// The file cannot be read, or the core is compressed in a way that is not read here.
pub fn open(path: &Path) -> Result<Option<Mmap>, Error> {
    let mut file = File::open(path)?;
    // Reading would take from a pipe what another reader needs.
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let head = head(&mut file)?;
    if let Some((_, advice)) = PACKED.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(Error::Packed(advice));
    }
    let packed = Packing::of(&head);
    if let Some(packed) = packed {
        file.rewind()?;
        if !is_core(&self::head(&mut packed.open(&file)?).unwrap_or_default()) {
            return Ok(None);
        }
        file.rewind()?;
        let whole = unpacked(packed.open(&file)?)?;
        file = whole;
    } else if !is_core(&head) {
        return Ok(None);
    }
    // SAFETY: the bytes are only read, and checked at every use. If the file is shortened
    // meanwhile, a signal ends this process.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Some(map))
}

/// The first bytes of files that only other programs decompress, and how they do.
const PACKED: [(&[u8], &str); 2] = [
    (
        &[0x04, 0x22, 0x4d, 0x18],
        "lz4; `lz4 -d FILE core` decompresses it",
    ),
    (
        &[0xfd, b'7', b'z', b'X', b'Z'],
        "xz; `xz -dc FILE > core` decompresses it",
    ),
];

/// How a file is packed that is unpacked here: by systemd's zstd, or by gzip.
#[derive(Debug, Clone, Copy)]
enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    fn of(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    /// What is in the file, from where it is read next.
    fn open(self, file: &File) -> io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(file)),
            Packing::Zstd => Box::new(Decoder::with_buffer(BufReader::new(file))?),
        })
    }
}

/// A file with what is packed. A core that was cut short is read as far as it goes.
fn unpacked(from: Box<dyn Read + '_>) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    match io::copy(&mut from.take(UNPACKED_BYTES), &mut file) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(file),
    }
}

/// The first bytes of a file.
fn head(file: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEADER_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// A range of the process's memory.
struct Segment {
    start: u64,
    limit: u64,
    /// Where its bytes lie in the core, and how many there are.
    offset: u64,
    bytes: u64,
    executable: bool,
}

/// A range that shows a file.
struct Shown {
    start: u64,
    limit: u64,
    offset: u64,
    path: String,
}

/// A core file.
pub struct Core<'a> {
    bytes: &'a [u8],
    /// By address.
    segments: Vec<Segment>,
    shown: Vec<Shown>,
    /// The contents of `shown`, where the file is there.
    files: Vec<Option<std::sync::Arc<Mmap>>>,
    vdso: Option<u64>,
    page_bytes: u64,
    /// The process's name; `core` if the file has none.
    pub name: String,
    pub pid: Option<u32>,
    /// The signal that ended it, and the address that it is about.
    pub signal: Option<Signal>,
    machine: u16,
    /// Those of the thread that ended the process, by their names.
    pub registers: Vec<(&'static str, u64)>,
}

/// A signal as the kernel described it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    pub number: u32,
    /// For signals that are about an address.
    pub address: Option<u64>,
}

impl<'a> Core<'a> {
    /// Reads what the file says of the process.
    ///
    /// # Errors
    /// It is not a core file, or is cut within its headers.
    pub fn parse(bytes: &'a [u8]) -> Result<Core<'a>, Error> {
        let header = bytes
            .get(..HEADER_BYTES)
            .ok_or(Error::NoCore("its header is cut short"))?;
        if !header.starts_with(b"\x7fELF\x02\x01") || !is_core(header) {
            return Err(Error::NoCore("it does not come from a 64-bit process"));
        }
        let header = Fields(header);
        let mut count = usize::from(header.u16(56));
        if header.u16(56) == PN_XNUM {
            let section = range(bytes, header.u64(40), HEADER_BYTES as u64).unwrap_or_default();
            count = Fields(section).u32(44) as usize;
        }
        let table =
            range(bytes, header.u64(32), (count * SEGMENT_BYTES) as u64).ok_or(Error::Short {
                has: bytes.len() as u64,
                needs: header
                    .u64(32)
                    .saturating_add((count * SEGMENT_BYTES) as u64),
            })?;
        let mut core = Core {
            bytes,
            segments: Vec::new(),
            shown: Vec::new(),
            files: Vec::new(),
            vdso: None,
            page_bytes: PAGE_BYTES_MIN,
            name: "core".to_owned(),
            pid: None,
            signal: None,
            machine: header.u16(18),
            registers: Vec::new(),
        };
        for segment in table.chunks_exact(SEGMENT_BYTES).map(Fields) {
            let (offset, bytes) = (segment.u64(8), segment.u64(32));
            match segment.u32(0) {
                PT_LOAD => core.segments.push(Segment {
                    start: segment.u64(16),
                    limit: segment.u64(16).saturating_add(segment.u64(40).max(bytes)),
                    offset,
                    bytes,
                    executable: segment.u32(4) & PF_X != 0,
                }),
                PT_NOTE => {
                    let notes = range(core.bytes, offset, bytes).unwrap_or_default();
                    Notes::new(notes).for_each(|(note, _)| core.take(note));
                }
                _ => {}
            }
        }
        core.segments.sort_by_key(|segment| segment.start);
        Ok(core)
    }

    fn take(&mut self, note: Note<'_>) {
        let text = Fields(note.text);
        // The thread that ended the process comes first.
        if note.kind == NT_PRSTATUS && self.registers.is_empty() {
            let names = match self.machine {
                EM_X86_64 => &X86_64[..],
                EM_AARCH64 => &AARCH64[..],
                _ => &[],
            };
            let values = (REGISTERS_AT..note.text.len())
                .step_by(8)
                .map(|at| text.u64(at));
            let all = names.iter().copied().zip(values);
            self.registers = all.filter(|(name, _)| !name.is_empty()).collect();
        }
        match note.kind {
            NT_SIGINFO => {
                let number = text.u32(0);
                // SIGILL, SIGBUS, SIGFPE and SIGSEGV.
                let has_address = [4, 7, 8, 11].contains(&number);
                self.signal = Some(Signal {
                    number,
                    address: has_address.then(|| text.u64(FAULT_AT)),
                });
            }
            NT_PRPSINFO => {
                let name = note
                    .text
                    .get(NAME_AT..NAME_AT + NAME_MAX)
                    .unwrap_or_default();
                let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                self.name = String::from_utf8_lossy(&name[..end]).into_owned();
                self.pid = Some(text.u32(24));
            }
            NT_PRSTATUS if self.pid.is_none() => self.pid = Some(text.u32(PID_AT)),
            NT_AUXV => {
                let pairs = || note.text.chunks_exact(16).map(Fields);
                let value = |of| Some(pairs().find(|pair| pair.u64(0) == of)?.u64(8));
                self.vdso = value(AT_SYSINFO_EHDR);
                let pages = PAGE_BYTES_MIN..=PAGE_BYTES_MAX;
                let page = value(AT_PAGESZ)
                    .filter(|bytes| bytes.is_power_of_two() && pages.contains(bytes));
                self.page_bytes = page.unwrap_or(PAGE_BYTES_MIN);
            }
            NT_FILE => self.take_files(note.text),
            _ => {}
        }
    }

    /// A count, the unit of places, three numbers for each file, and then the names.
    fn take_files(&mut self, text: &[u8]) {
        let fields = Fields(text);
        let (count, unit) = (fields.u64(0), fields.u64(8));
        let most = (text.len() / 24) as u64;
        let count = count.min(most) as usize;
        let names = text.get(16 + 24 * count..).unwrap_or_default();
        let names = names.split(|&byte| byte == 0);
        for (i, name) in (0..count).zip(names) {
            let at = 16 + 24 * i;
            self.shown.push(Shown {
                start: fields.u64(at),
                limit: fields.u64(at + 8),
                offset: fields.u64(at + 16).saturating_mul(unit),
                path: String::from_utf8_lossy(name).into_owned(),
            });
        }
        self.shown.sort_by_key(|shown| shown.start);
    }

    /// Opens the files of the process whose build ids are those in the core. They are looked for
    /// under `root`.
    pub fn open_files(&mut self, root: Option<&Path>) {
        let mut known: Vec<(&str, Option<std::sync::Arc<Mmap>>)> = Vec::new();
        let mut files = Vec::new();
        for shown in &self.shown {
            let file = match known.iter().find(|(path, _)| *path == shown.path) {
                Some((_, file)) => file.clone(),
                None => {
                    let first = self
                        .shown
                        .iter()
                        .find(|s| s.path == shown.path && s.offset == 0);
                    let file = first.and_then(|first| self.open(root, first));
                    known.push((&shown.path, file.clone()));
                    file
                }
            };
            files.push(file);
        }
        self.files = files;
    }

    fn open(&self, root: Option<&Path>, first: &Shown) -> Option<std::sync::Arc<Mmap>> {
        let path = match root {
            Some(root) => root.join(first.path.strip_prefix('/')?),
            None => PathBuf::from(&first.path),
        };
        // The path comes from the core. Opening a pipe would wait for its other end.
        if !path.is_absolute() || !std::fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let file = File::open(&path).ok()?;
        // SAFETY: the bytes are only read, and checked at every use. Programs and libraries are
        // replaced by renaming, not by writing into them, since processes map them too.
        let map = unsafe { Mmap::map(&file).ok()? };
        // Without its first page in the core, nothing shows whether the file is still the same.
        let in_core = image::read(self, first.start)?.build_id;
        let in_file = image::read_file(&|at, into| copy(&map, at, into))?.build_id;
        (!in_core.is_empty() && in_file == in_core).then(|| std::sync::Arc::new(map))
    }

    /// All mappings. Where a file is shown, a segment may be one of several of its parts.
    pub fn mapped(&self) -> Vec<Mapped> {
        let shown_at = |start: u64| {
            let next = self.shown.partition_point(|shown| shown.start <= start);
            let shown = next.checked_sub(1).map(|index| &self.shown[index]);
            shown.filter(|shown| start < shown.limit)
        };
        let mapped = self.segments.iter().map(|segment| {
            let shown = shown_at(segment.start);
            let (path, file_offset) = match shown {
                Some(shown) => {
                    let inside = segment.start - shown.start;
                    (&*shown.path, shown.offset.saturating_add(inside))
                }
                None if self.vdso == Some(segment.start) => ("[vdso]", 0),
                None => ("", 0),
            };
            let kept = path.strip_suffix(DELETED);
            Mapped {
                start: segment.start,
                limit: segment.limit,
                file_offset,
                path: kept.unwrap_or(path).into(),
                deleted: kept.is_some(),
                executable: segment.executable,
            }
        });
        let mut mapped: Vec<Mapped> = mapped.collect();
        // gdb leaves out the segments of code, which no process changes.
        for shown in &self.shown {
            let inside = shown.start..shown.limit;
            let next = self
                .segments
                .partition_point(|segment| segment.start < shown.start);
            let first = self.segments.get(next);
            if first.is_some_and(|segment| inside.contains(&segment.start)) {
                continue;
            }
            let kept = shown.path.strip_suffix(DELETED);
            mapped.push(Mapped {
                start: shown.start,
                limit: shown.limit,
                file_offset: shown.offset,
                path: kept.unwrap_or(&shown.path).into(),
                deleted: kept.is_some(),
                executable: true,
            });
        }
        mapped.sort_by_key(|mapped| mapped.start);
        mapped
    }

    /// An error if the file ends before the memory that it should have.
    pub fn short(&self) -> Option<Error> {
        let ends = self
            .segments
            .iter()
            .map(|s| s.offset.saturating_add(s.bytes));
        let (has, needs) = (self.bytes.len() as u64, ends.max()?);
        (needs > has).then_some(Error::Short { has, needs })
    }

    /// The bytes at an address, as many as lie together.
    fn at(&self, at: u64) -> Option<&[u8]> {
        let next = self.segments.partition_point(|segment| segment.start <= at);
        let segment = &self.segments[next.checked_sub(1)?];
        let inside = at - segment.start;
        if inside < segment.bytes {
            let from = usize::try_from(segment.offset.checked_add(inside)?).ok()?;
            let bytes = self.bytes.get(from..)?;
            let left = usize::try_from(segment.bytes - inside).ok()?;
            return Some(&bytes[..left.min(bytes.len())]);
        }
        let next = self.shown.partition_point(|shown| shown.start <= at);
        let index = next.checked_sub(1)?;
        let shown = &self.shown[index];
        let inside = at - shown.start;
        let left = usize::try_from(shown.limit.checked_sub(at)?).ok()?;
        let from = usize::try_from(shown.offset.checked_add(inside)?).ok()?;
        let bytes = self.files.get(index)?.as_ref()?.get(from..)?;
        Some(&bytes[..left.min(bytes.len())])
    }
}

/// Copies a part of the file.
fn copy(bytes: &[u8], at: u64, into: &mut [u8]) -> Option<()> {
    into.copy_from_slice(range(bytes, at, into.len() as u64)?);
    Some(())
}

/// A part of the file.
fn range(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let from = usize::try_from(offset).ok()?;
    bytes.get(from..from.checked_add(usize::try_from(length).ok()?)?)
}

impl Memory for Core<'_> {
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        for piece in pieces {
            let mut at = piece.at;
            let mut left = &mut *piece.into;
            while !left.is_empty() {
                let bytes = self.at(at).filter(|bytes| !bytes.is_empty());
                let bytes = bytes.ok_or(Fault { at })?;
                let n = bytes.len().min(left.len());
                let (into, rest) = left.split_at_mut(n);
                into.copy_from_slice(&bytes[..n]);
                left = rest;
                at = at.checked_add(n as u64).ok_or(Fault { at })?;
            }
        }
        Ok(())
    }

    fn most_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_running(&self) -> bool {
        false
    }

    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core file whose only note is the auxiliary vector with this pair.
    fn core_with(key: u64, value: u64) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [5, 16, NT_AUXV] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"CORE\0\0\0\0");
        note.extend([key.to_le_bytes(), value.to_le_bytes()].concat());
        let mut file = vec![0; HEADER_BYTES + SEGMENT_BYTES];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[16..18].copy_from_slice(&ET_CORE.to_le_bytes());
        file[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        file[56..58].copy_from_slice(&1u16.to_le_bytes());
        let segment = &mut file[HEADER_BYTES..];
        segment[..4].copy_from_slice(&PT_NOTE.to_le_bytes());
        segment[8..16].copy_from_slice(&((HEADER_BYTES + SEGMENT_BYTES) as u64).to_le_bytes());
        segment[32..40].copy_from_slice(&(note.len() as u64).to_le_bytes());
        file.extend(note);
        file
    }

    #[test]
    fn pages_are_those_of_the_machine_that_wrote_it() {
        let page = |key, value| Core::parse(&core_with(key, value)).unwrap().page_bytes();
        for bytes in [4096, 16 << 10, 64 << 10] {
            assert_eq!(page(AT_PAGESZ, bytes), bytes);
        }
        // It says nothing, or what no machine has.
        for (key, value) in [(AT_SYSINFO_EHDR, 1), (AT_PAGESZ, 0), (AT_PAGESZ, 1 << 40)] {
            assert_eq!(page(key, value), 4096);
        }
    }
}
