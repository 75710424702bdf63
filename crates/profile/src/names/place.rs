//! Where an address of a process lies in the file's own addresses, which debug information and
//! symbol tables use.
//!
//! Segments are mapped by whole pages. Files are linked for pages of up to 64 KiB; the smallest
//! size is what every mapping is aligned to.

use mallard_inspect::memory::PAGE_BYTES;
use object::elf::PF_X;
use object::{Object, ObjectSegment, SegmentFlags};

use super::Address;
use super::file::File;
use crate::model::Mapping;

pub struct Places {
    /// Those with code first.
    segments: Vec<Segment>,
    /// Whether the file has debug information alone.
    is_separate: bool,
}

struct Segment {
    address: u64,
    file_start: u64,
    file_size: u64,
    has_code: bool,
}

/// Whether the mapping can be one of this file's code. Without build ids this is all that tells a
/// file that was replaced.
pub fn can_hold(file: &File<'_>, mapping: &Mapping) -> bool {
    let size = mapping.limit.saturating_sub(mapping.start);
    let end = mapping.file_offset.saturating_add(size);
    let code = Places::new(file).segments.into_iter();
    code.filter(|segment| segment.has_code)
        .any(|segment| segment.first_page() <= mapping.file_offset && end <= segment.end_page())
}

impl Segment {
    /// The place in the file of the first page that is mapped.
    fn first_page(&self) -> u64 {
        self.file_start & !(PAGE_BYTES - 1)
    }

    /// The place behind the last page.
    fn end_page(&self) -> u64 {
        let end = self.file_start.saturating_add(self.file_size);
        end.saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1)
    }
}

impl Places {
    pub fn new(file: &File<'_>) -> Places {
        let mut segments: Vec<Segment> = file
            .elf
            .segments()
            .map(|segment| {
                let (file_start, file_size) = segment.file_range();
                let flags = segment.flags();
                Segment {
                    address: segment.address(),
                    file_start,
                    file_size,
                    has_code: matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0),
                }
            })
            .collect();
        segments.sort_by_key(|segment| !segment.has_code);
        let code = segments.first().filter(|segment| segment.has_code);
        Places {
            is_separate: code.is_some_and(|code| code.file_size == 0),
            segments,
        }
    }

    pub fn of(&self, address: Address<'_>) -> u64 {
        let mapping = address.mapping;
        let in_mapping = address.value.wrapping_sub(mapping.start);
        let in_file = in_mapping.wrapping_add(mapping.file_offset);
        let holder = self.segments.iter().find(|segment| {
            let pages = segment.first_page()..segment.end_page();
            !self.is_separate && segment.file_size > 0 && pages.contains(&in_file)
        });
        if let Some(segment) = holder {
            return in_file
                .wrapping_sub(segment.file_start)
                .wrapping_add(segment.address);
        }
        // A separate debug file has segments without contents. Where the mapping shows the start of
        // the file, it is that of the lowest segment, else that of the code.
        let lowest = self.segments.iter().min_by_key(|segment| segment.address);
        let code = self.segments.first().filter(|segment| segment.has_code);
        let mapped = if mapping.file_offset == 0 {
            lowest
        } else {
            code
        };
        match mapped {
            Some(segment) => in_mapping.wrapping_add(segment.address & !(PAGE_BYTES - 1)),
            None => in_file,
        }
    }
}
