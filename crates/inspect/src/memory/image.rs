//! The headers of a program or library, in a process's memory or in its file: its build id, and
//! where Mallard's root block is.

use mallard_formats::records::{NOTE_OWNER, NOTE_TEXT_BYTES, NOTE_TYPE};

use super::{Fields, HEADER_BYTES, Memory, PAGE_BYTES_MIN, PT_LOAD, PT_NOTE, SEGMENT_BYTES};

const SEGMENTS_MAX: usize = 64;
/// Bytes of notes that are examined.
const NOTES_BYTES_MAX: u64 = 64 << 10;
const NT_GNU_BUILD_ID: u32 = 3;

/// What the notes of an image say.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Image {
    /// In hexadecimal; empty if it has none.
    pub build_id: String,
    /// Mallard's root block: its address, or in a file the distance from the image's first byte.
    pub root: Option<u64>,
}

/// Copies bytes of an image, by their distance from its first byte or their place in its file; none
/// if there are no such.
type Copy<'c> = &'c dyn Fn(u64, &mut [u8]) -> Option<()>;

/// Reads the image whose first byte lies at `base`; none if there is no ELF image of 64 bits, or
/// its memory cannot be read.
pub fn read(memory: &dyn Memory, base: u64) -> Option<Image> {
    let copy = |at: u64, into: &mut [u8]| memory.copy(base.wrapping_add(at), into).ok();
    let mut image = read_mapped(&copy)?;
    image.root = image.root.map(|distance| base.wrapping_add(distance));
    Some(image)
}

/// Reads an image in memory, by distances from its first byte; none as for [`read`].
pub fn read_mapped(copy: Copy<'_>) -> Option<Image> {
    parse(copy, true)
}

/// Reads the image of a file; none if it is no ELF file of 64 bits, or cannot be read.
pub fn read_file(copy: Copy<'_>) -> Option<Image> {
    parse(copy, false)
}

fn parse(copy: Copy<'_>, is_mapped: bool) -> Option<Image> {
    let mut header = [0; HEADER_BYTES];
    copy(0, &mut header)?;
    // 64 bits, little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let header = Fields(&header);
    let count = usize::from(header.u16(56)).min(SEGMENTS_MAX);
    let mut table = vec![0; count * SEGMENT_BYTES];
    copy(header.u64(32), &mut table)?;
    let segments = || table.chunks_exact(SEGMENT_BYTES).map(Fields);
    // The loader maps the file from the start of a page, whatever a page is: the address and the
    // place in the file of a segment differ by whole pages.
    let first =
        segments().find(|segment| segment.u32(0) == PT_LOAD && segment.u64(8) < PAGE_BYTES_MIN)?;
    let base = first.u64(16).wrapping_sub(first.u64(8));
    let mut image = Image::default();
    for segment in segments().filter(|segment| segment.u32(0) == PT_NOTE) {
        // Addresses count from the first byte of the image.
        let at = segment.u64(16).wrapping_sub(base);
        let place = if is_mapped { at } else { segment.u64(8) };
        let mut notes = vec![0; segment.u64(32).min(NOTES_BYTES_MAX) as usize];
        if copy(place, &mut notes).is_some() {
            image.take_notes(at, &notes);
        }
    }
    Some(image)
}

impl Image {
    /// Takes what is known from the notes that lie at this distance.
    fn take_notes(&mut self, at: u64, notes: &[u8]) {
        for (note, place) in Notes::new(notes) {
            match (note.owner, note.kind) {
                (b"GNU\0", NT_GNU_BUILD_ID) => {
                    self.build_id = note.text.iter().map(|b| format!("{b:02x}")).collect();
                }
                (owner, NOTE_TYPE) if owner == NOTE_OWNER && note.text.len() == NOTE_TEXT_BYTES => {
                    let distance = Fields(note.text).u64(0);
                    let here = at.wrapping_add(place as u64);
                    self.root = Some(here.wrapping_add(distance));
                }
                _ => {}
            }
        }
    }
}

/// An ELF note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note<'a> {
    pub owner: &'a [u8],
    pub kind: u32,
    pub text: &'a [u8],
}

/// The notes of a segment, each with the place of its text. Ends where they are damaged.
pub struct Notes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Notes<'a> {
    pub fn new(bytes: &'a [u8]) -> Notes<'a> {
        Notes { bytes, at: 0 }
    }
}

impl<'a> Iterator for Notes<'a> {
    type Item = (Note<'a>, usize);

    fn next(&mut self) -> Option<Self::Item> {
        const HEAD_BYTES: usize = 12;
        let rest = self.bytes.get(self.at..)?;
        if rest.len() < HEAD_BYTES {
            return None;
        }
        let head = Fields(rest);
        let (owner, text) = (head.u32(0) as usize, head.u32(4) as usize);
        let from = HEAD_BYTES.checked_add(owner.checked_next_multiple_of(4)?)?;
        let end = from.checked_add(text)?;
        let note = Note {
            owner: rest.get(HEAD_BYTES..HEAD_BYTES.checked_add(owner)?)?,
            kind: head.u32(8),
            text: rest.get(from..end)?,
        };
        let place = self.at + from;
        self.at += from.checked_add(text.checked_next_multiple_of(4)?)?;
        Some((note, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_tell_the_build_id_and_where_the_root_lies() {
        let mut notes = Vec::new();
        for (owner, kind, text) in [
            (&NOTE_OWNER[..], NOTE_TYPE, &(-16i64).to_le_bytes()[..]),
            (b"GNU\0", 3, &[0xab, 0xcd, 0xef][..]),
        ] {
            notes.extend((owner.len() as u32).to_le_bytes());
            notes.extend((text.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(owner);
            notes.extend(text);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        let mut image = Image::default();
        image.take_notes(0x1000, &notes);
        assert_eq!(image.build_id, "abcdef");
        // The text of the first note lies 20 bytes behind the first byte.
        assert_eq!(image.root, Some(0x1000 + 20 - 16));
        for end in 0..notes.len() {
            Image::default().take_notes(0x1000, &notes[..end]);
        }
        assert_eq!(Notes::new(&[0xff; 64]).count(), 0);
    }
}
