//! The output of a measured process.

use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

/// How many lines of a failed program's output are kept.
pub const FAILURE_LINES: usize = 10;

/// One stream of a measured process, kept in an unnamed file that disappears when this value is
/// dropped. (With a pipe, its reader would be part of the measurement.)
#[derive(Debug)]
pub struct Output {
    file: File,
    /// Over the whole stream, in hexadecimal.
    pub sha256: String,
    pub bytes: u64,
}

impl Output {
    /// An empty file for a process to write to.
    pub(crate) fn file(folder: &Path) -> io::Result<File> {
        tempfile::tempfile_in(folder)
    }

    /// What has been written to `file`.
    pub(crate) fn written(mut file: File) -> io::Result<Output> {
        let mut hasher = Sha256::new();
        file.rewind()?;
        let bytes = io::copy(&mut file, &mut hasher)?;
        let digest = hasher.finalize();
        Ok(Output {
            file,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            bytes,
        })
    }

    /// The first `most` bytes as text.
    pub fn head(&self, most: usize) -> io::Result<String> {
        self.text(0, most)
    }

    /// The last `most` lines, not counting empty ones at the end.
    pub fn last_lines(&self, most: usize) -> io::Result<Vec<String>> {
        const WINDOW_BYTES: usize = 16 * 1024;
        let from = self.bytes.saturating_sub(WINDOW_BYTES as u64);
        let text = self.text(from, WINDOW_BYTES)?;
        let mut lines: Vec<&str> = text.trim_end().lines().collect();
        if from > 0 && lines.len() > 1 {
            // The window may begin in the middle of a line.
            lines.remove(0);
        }
        let from = lines.len().saturating_sub(most);
        let shown = lines[from..].iter();
        Ok(shown.map(|line| line.trim_end().to_owned()).collect())
    }

    fn text(&self, from: u64, most: usize) -> io::Result<String> {
        let there = usize::try_from(self.bytes - from).unwrap_or(usize::MAX);
        let mut bytes = vec![0; most.min(there)];
        self.file.read_exact_at(&mut bytes, from)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn output(content: &str) -> Output {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        Output::written(file).unwrap()
    }

    #[test]
    fn the_hash_is_that_of_the_whole_stream() {
        // The example in the standard, FIPS 180-2.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let output = output("abc");
        assert_eq!((output.sha256.as_str(), output.bytes), (expected, 3));
    }

    #[test]
    fn the_last_lines_come_without_the_empty_end() {
        assert_eq!(output("a\nb\nc\n\n").last_lines(2).unwrap(), ["b", "c"]);
        assert_eq!(output("").last_lines(2).unwrap(), [""; 0]);
        assert_eq!(output("only").last_lines(9).unwrap(), ["only"]);
    }

    #[test]
    fn the_last_lines_of_a_long_stream_are_whole_lines() {
        let long: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let lines = output(&long).last_lines(usize::MAX).unwrap();
        assert!(lines.len() > 100 && lines.len() < 10_000);
        assert!(lines.iter().all(|line| line.starts_with("line ")));
        assert_eq!(lines.last().unwrap(), "line 9999");
    }
}
