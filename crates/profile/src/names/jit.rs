//! Code that a JIT compiler made, by the map it writes for perf: lines of a start, a size and a
//! name.

use std::fs;
use std::path::{Path, PathBuf};

use mallard_procfs::mapping::hexadecimal;

use super::search::under;
use super::{Address, Names, Options};
use crate::model::{Frame, Texts};

pub struct Map {
    /// Start, end, name; in the order of their starts.
    functions: Vec<(u64, u64, String)>,
}

impl Map {
    /// The map of the process, if the process is known and wrote one.
    pub fn of(options: &Options) -> Option<Map> {
        let path = PathBuf::from(format!("/tmp/perf-{}.map", options.pid?));
        let root = options.root.as_deref().unwrap_or(Path::new("/"));
        let text = fs::read(under(root, &path)).ok()?;
        Some(Map::read(&String::from_utf8_lossy(&text)))
    }

    /// Lines that are not understood are left out: some are half written when the process ends.
    fn read(text: &str) -> Map {
        let mut functions: Vec<(u64, u64, String)> = text
            .lines()
            .filter_map(|line| {
                let (start, rest) = line.split_once(' ')?;
                let (size, name) = rest.split_once(' ')?;
                let number = |text: &str| hexadecimal(text.strip_prefix("0x").unwrap_or(text));
                let start = number(start)?;
                Some((
                    start,
                    start.checked_add(number(size)?)?,
                    name.trim().to_owned(),
                ))
            })
            .collect();
        // Stable: of two functions at one place the later one has replaced the earlier.
        functions.sort_by_key(|(start, ..)| *start);
        Map { functions }
    }

    pub fn names(&self, addresses: &[Address<'_>], texts: &mut Texts) -> Names {
        let name = |address: &Address<'_>| match self.at(address.value) {
            Some(function) => vec![Frame {
                function: texts.get(function),
                ..Frame::default()
            }],
            None => Vec::new(),
        };
        addresses.iter().map(name).collect()
    }

    fn at(&self, address: u64) -> Option<&str> {
        let next = self
            .functions
            .partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = &self.functions[next.checked_sub(1)?];
        (address < *end).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_map_names_its_range() {
        let map = Map::read(
            "1000 10 LazyCompile:~f a.js:3\n0x2000 0x8 old\n2000 10 new\njunk\n3000 zz x\n",
        );
        assert_eq!(map.at(0xfff), None);
        assert_eq!(map.at(0x1000), Some("LazyCompile:~f a.js:3"));
        assert_eq!(map.at(0x100f), Some("LazyCompile:~f a.js:3"));
        assert_eq!(map.at(0x1010), None);
        assert_eq!(map.at(0x2004), Some("new"));
        assert_eq!(map.at(0x3000), None);
    }
}
