//! Reads profiles: jemalloc's `heap_v2` ([`heap_v2`]) and pprof's protobuf ([`pprof`]), packed by
//! gzip or not. [`maps`] reads the lines of `/proc/PID/maps`, which `heap_v2` contains.
//!
//! The input may come from anywhere. A damaged or hostile file gives one error, in memory that the
//! size of the input bounds, and packed input may grow only to [`UNPACKED_BYTES`].

mod heap_v2;
pub mod maps;
mod pprof;
mod wire;

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::model::Profile;

/// The most bytes that a compressed file may contain.
pub const UNPACKED_BYTES: u64 = 256 << 20;

/// Why a file is not a profile that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("neither a heap profile of jemalloc's format (heap_v2) nor one of pprof's")]
    Unknown,
    #[error("the file is empty")]
    Empty,
    #[error("the file is cut short: {0}")]
    Short(String),
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("damaged profile of pprof's format: {0}")]
    Pprof(String),
    #[error("damaged gzip file: {0}")]
    Gzip(String),
    #[error("the compressed file holds more than {} MiB", UNPACKED_BYTES >> 20)]
    TooLarge,
    #[error(
        "a heap profile of gperftools' older format; `pprof -proto` turns it into one that is read"
    )]
    Gperftools,
}

/// Reads a profile of any known format.
///
/// # Errors
/// The bytes are no profile, or a damaged one.
pub fn profile(bytes: &[u8]) -> Result<Profile, Error> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return plain(&unpack(bytes, UNPACKED_BYTES)?);
    }
    plain(bytes)
}

fn plain(bytes: &[u8]) -> Result<Profile, Error> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    if bytes.starts_with(heap_v2::MAGIC) {
        return heap_v2::read(bytes);
    }
    if bytes.starts_with(b"heap profile:") {
        return Err(Error::Gperftools);
    }
    if pprof::MAGIC.contains(&bytes[0]) {
        return pprof::read(bytes);
    }
    Err(Error::Unknown)
}

fn unpack(bytes: &[u8], most: u64) -> Result<Vec<u8>, Error> {
    let mut plain = Vec::new();
    let read = MultiGzDecoder::new(bytes)
        .take(most + 1)
        .read_to_end(&mut plain)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::Short("the gzip stream has no end".into()),
            _ => Error::Gzip(error.to_string()),
        })?;
    if read as u64 > most {
        return Err(Error::TooLarge);
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn what_is_no_profile_is_told_apart() {
        assert_eq!(profile(b""), Err(Error::Empty));
        assert_eq!(profile(b"hello\n"), Err(Error::Unknown));
        assert_eq!(profile(b"\x7fELF\x02\x01\x01"), Err(Error::Unknown));
        assert_eq!(
            profile(b"heap profile: 1: 2 [3: 4] @ heapprofile\n"),
            Err(Error::Gperftools)
        );
        assert!(matches!(
            profile(b"\x1f\x8bxx"),
            Err(Error::Short(_) | Error::Gzip(_))
        ));
    }

    #[test]
    fn a_packed_file_grows_only_so_far() {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&vec![0; 1 << 20]).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(unpack(&packed, 1 << 20).unwrap().len(), 1 << 20);
        assert_eq!(unpack(&packed, (1 << 20) - 1), Err(Error::TooLarge));
        assert!(matches!(
            unpack(&packed[..packed.len() / 2], 1 << 20),
            Err(Error::Short(_))
        ));
    }
}
