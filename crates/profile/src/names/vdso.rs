//! The kernel's page of functions in every process. No file holds it, so it is read from this
//! process, whose kernel is most often that of the profile.

use std::fs;
use std::io::{Read, Seek, SeekFrom};

use mallard_procfs::mapping;

use super::file::{Arena, File};
use crate::model::Mapping;

/// The vdso is a few pages.
const VDSO_BYTES_MAX: u64 = 1 << 20;

/// The vdso of this process, if the profile's can be the same one: by build id if the profile has
/// it, else by size.
pub fn image(profile: &Mapping) -> Option<Vec<u8>> {
    let mappings = mapping::own().ok()?;
    let own = mappings.iter().find(|mapping| mapping.path == "[vdso]")?;
    let size = own.end - own.start;
    if size > VDSO_BYTES_MAX {
        return None;
    }
    let mut image = vec![0; usize::try_from(size).ok()?];
    let mut memory = fs::File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(own.start)).ok()?;
    memory.read_exact(&mut image).ok()?;
    let same = if profile.build_id.is_empty() {
        profile.limit.wrapping_sub(profile.start) == size
    } else {
        let arena = Arena::default();
        let file = File::from_bytes(&image, &arena).ok()?;
        file.build_id().eq_ignore_ascii_case(&profile.build_id)
    };
    same.then_some(image)
}
