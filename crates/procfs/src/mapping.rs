//! `maps`: which file lies where in a process.

use std::path::Path;
use std::{fs, io};

/// What the kernel appends to the path of a file that was deleted since it was mapped.
pub const DELETED: &str = " (deleted)";

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    /// The address behind the last byte.
    pub end: u64,
    pub is_executable: bool,
    /// The place of `start` in the file.
    pub offset: u64,
    /// The file's device (major and minor number) and inode.
    pub device: (u32, u32),
    pub inode: u64,
    /// A file's path, or a name in brackets as `[heap]`; empty for anonymous memory. The kernel
    /// writes a newline in a path as `\012`.
    pub path: String,
    /// Whether the file was deleted or replaced since. The path does not have [`DELETED`] then.
    pub is_deleted: bool,
}

impl Mapping {
    /// Whether the path is that of a file, which the kernel may also say of shared memory.
    pub fn is_file(&self) -> bool {
        self.path.starts_with('/')
    }

    /// Reads a line, without its end. None for any other text.
    pub fn parse(line: &str) -> Option<Mapping> {
        // start-end permissions offset device inode path, where the path may have spaces.
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (permissions, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let (device, rest) = rest.split_once(' ')?;
        let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
        let (major, minor) = device.split_once(':')?;
        let path = path.trim_start();
        let kept = path.strip_suffix(DELETED);
        let mapping = Mapping {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            is_executable: permissions.as_bytes().get(2) == Some(&b'x'),
            offset: hexadecimal(offset)?,
            device: (
                hexadecimal(major)?.try_into().ok()?,
                hexadecimal(minor)?.try_into().ok()?,
            ),
            inode: inode.parse().ok()?,
            path: kept.unwrap_or(path).to_owned(),
            is_deleted: kept.is_some(),
        };
        (mapping.start < mapping.end && permissions.len() == 4).then_some(mapping)
    }
}

/// The mappings of a process, in the order of their addresses. A process that has ended, and a
/// thread of the kernel, has none.
///
/// # Errors
/// The process is gone, or may not be read.
pub fn all(pid: u32) -> io::Result<Vec<Mapping>> {
    read(&super::path(pid, "maps"))
}

/// The mappings of this process.
///
/// # Errors
/// There is no `/proc`.
pub fn own() -> io::Result<Vec<Mapping>> {
    read(Path::new("/proc/self/maps"))
}

fn read(path: &Path) -> io::Result<Vec<Mapping>> {
    let bytes = fs::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(Mapping::parse).collect())
}

/// The paths of the files that a process has mapped, once each and in order; none if it cannot be
/// read.
pub fn files(pid: u32) -> Vec<String> {
    let mappings = all(pid).unwrap_or_default().into_iter();
    let files = mappings.filter(Mapping::is_file);
    let mut paths: Vec<String> = files.map(|mapping| mapping.path).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// A number of hexadecimal digits alone: `from_str_radix` would take a sign.
pub fn hexadecimal(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_spaces_and_deleted_ones_are_read() {
        let line = "7f10-7f20 r-xp 00001000 fe:1a 77                         /usr/lib/a b.so";
        let mapping = Mapping {
            start: 0x7f10,
            end: 0x7f20,
            is_executable: true,
            offset: 0x1000,
            device: (0xfe, 0x1a),
            inode: 77,
            path: "/usr/lib/a b.so".to_owned(),
            is_deleted: false,
        };
        assert_eq!(Mapping::parse(line), Some(mapping.clone()));
        assert!(mapping.is_file());
        let deleted = Mapping::parse(&format!("{line} (deleted)")).unwrap();
        assert!(deleted.is_deleted && deleted.path == mapping.path);
        for (line, path) in [
            ("7f40-7f50 rw-p 00000000 00:00 0 ", ""),
            ("7f40-7f50 rw-p 00000000 00:00 0", ""),
            (
                "7fff-8000 rw-p 00000000 00:00 0     [anon:a/b c]",
                "[anon:a/b c]",
            ),
        ] {
            let mapping = Mapping::parse(line).unwrap();
            assert_eq!(mapping.path, path);
            assert!(!mapping.is_file() && !mapping.is_executable);
        }
    }

    #[test]
    fn other_text_is_no_mapping() {
        for line in [
            "",
            "hello world",
            "8000-7fff r-xp 0 fe:00 12 /x",
            "-1-2 r-xp 0 fe:00 12 /x",
            "+1-2 r-xp 0 fe:00 12 /x",
            "1-2 r-x 0 fe:00 12 /x",
            "1-2 r-xp 0 fe 12 /x",
        ] {
            assert_eq!(Mapping::parse(line), None, "{line}");
        }
    }

    #[test]
    fn this_process_maps_its_program() {
        let program = std::env::current_exe().unwrap();
        assert!(files(std::process::id()).contains(&program.to_string_lossy().into_owned()));
        assert!(files(u32::MAX).is_empty() && all(u32::MAX).is_err());
        let has_program = |mapping: &Mapping| Path::new(&mapping.path) == program;
        assert!(own().unwrap().iter().any(has_program));
    }
}
