//! The lines of `/proc/PID/maps`: which file lies where in a process.

use mallard_procfs::mapping;

use crate::model::{Mapping, Texts};

/// The mappings that can hold code, in the order of their addresses.
///
/// # Errors
/// A line is none of `/proc/PID/maps`; the error has its place in the text, from 0.
pub fn executable(text: &str) -> Result<Vec<Mapping>, (usize, String)> {
    let mut texts = Texts::default();
    let mut mappings = Vec::new();
    for (place, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let Some(mapping) = mapping::Mapping::parse(line) else {
            return Err((
                place,
                format!("not a line of /proc/PID/maps: {}", shown(line)),
            ));
        };
        if mapping.is_executable {
            mappings.push(Mapping {
                start: mapping.start,
                limit: mapping.end,
                file_offset: mapping.offset,
                path: texts.get(&mapping.path),
                build_id: texts.get(""),
                deleted: mapping.is_deleted,
            });
        }
    }
    mappings.sort_by_key(|mapping| mapping.start);
    Ok(mappings)
}

/// The start of a text, for an error's line.
pub fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let printable: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect();
    let more = if text.chars().count() > SHOWN_CHARS_MAX {
        "…"
    } else {
        ""
    };
    format!("`{printable}{more}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_with_its_file_and_place() {
        let text = "\
55d0-55e0 r--p 00000000 fe:00 12 /opt/my app/server\n\
55e0-5600 r-xp 00001000 fe:00 12                         /opt/my app/server\n\
7000-7100 r-xp 00002000 fe:00 13 /tmp/lib x.so (deleted)\n\
7100-7200 rwxp 00000000 00:00 0 \n\
7200-7300 r-xp 00000000 00:00 0                          [vdso]\n";
        let mappings = executable(text).unwrap();
        let read: Vec<(u64, u64, &str, bool)> = mappings
            .iter()
            .map(|m| (m.start, m.file_offset, &*m.path, m.deleted))
            .collect();
        assert_eq!(
            read,
            [
                (0x55e0, 0x1000, "/opt/my app/server", false),
                (0x7000, 0x2000, "/tmp/lib x.so", true),
                (0x7100, 0, "", false),
                (0x7200, 0, "[vdso]", false),
            ]
        );
        assert_eq!(mappings[0].name(), "server");
        assert_eq!(mappings[2].name(), "[anon]");
    }

    #[test]
    fn any_other_line_is_named() {
        let (place, what) = executable("55e0-5600 r-xp 0 fe:00 12 /x\nhello world\n").unwrap_err();
        assert_eq!(
            (place, what.as_str()),
            (1, "not a line of /proc/PID/maps: `hello world`")
        );
        assert!(executable("5600-55e0 r-xp 0 fe:00 12 /x").is_err());
        assert!(executable("-1-2 r-xp 0 fe:00 12 /x").is_err());
        assert!(executable("+1-2 r-xp 0 fe:00 12 /x").is_err());
    }
}
