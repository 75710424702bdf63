//! Every name answers, and follows the rules of lengths and permissions.

extern crate std;

use super::{Row, first, rows};
use crate::api;
use crate::ctl::{self, DEPTH, Error, Leaf, Mode, Request, opt};
use crate::testing::alone;
use std::vec::Vec;
use std::{collections::BTreeSet, vec};

/// The bytes of a value of this type; `None` if it has no plain type.
fn size(leaf: &Leaf) -> Option<usize> {
    match leaf.c_type() {
        "bool" => Some(1),
        "unsigned" | "uint32_t" => Some(4),
        "size_t" | "ssize_t" | "uint64_t" | "int64_t" | "const char *" | "uint64_t *"
        | "size_t *" | "extent_hooks_t *" => Some(8),
        _ => None,
    }
}

/// A request for the old value with room for `room.len()` bytes.
fn get(name: &str, room: &mut [u8]) -> (Result<(), Error>, usize) {
    let mut len = room.len();
    // SAFETY: the room has this length.
    let mut request =
        unsafe { Request::new(room.as_mut_ptr().cast(), &mut len, std::ptr::null(), 0) };
    let answer = ctl::by_name(name.as_bytes(), &mut request);
    (answer, len)
}

/// A request with a new value and none for the old one.
fn set(name: &str, value: &[u8]) -> Result<(), Error> {
    let none = std::ptr::null_mut();
    // SAFETY: the value has this length; callers only pass names that read no pointer.
    let mut request =
        unsafe { Request::new(none, none.cast(), value.as_ptr().cast(), value.len()) };
    ctl::by_name(name.as_bytes(), &mut request)
}

/// Takes the process for this test, with a first arena and a cache for the thread.
fn ready() -> crate::testing::Alone {
    let alone = alone();
    // SAFETY: a block that is not in use.
    unsafe { api::dealloc(api::alloc(100)) };
    alone
}

fn plain(row: &Row) -> bool {
    !matches!(row.leaf, Leaf::Special(_))
}

#[test]
fn options_are_sorted_and_found_where_they_stand() {
    let names: Vec<&str> = opt::names().collect();
    assert!(names.len() > 90 && names.is_sorted());
    for (i, name) in names.iter().enumerate() {
        assert_eq!(opt::position(name.as_bytes()), Some(i), "{name}");
        assert_eq!(opt::at_position(i).map(|option| option.name()), Some(*name));
    }
    assert_eq!(opt::position(b"narena"), None);
    assert!(opt::leaf(names.len()).is_none());
}

#[test]
fn names_are_different_and_as_deep_as_a_mib_can_be() {
    let rows = rows();
    let paths: BTreeSet<&str> = rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(paths.len(), rows.len());
    for path in paths {
        assert!(path.split('.').count() <= DEPTH, "{path}");
    }
}

#[test]
fn what_is_read_has_its_types_length_and_is_cut_to_any_other() {
    crate::testing::own_process!();
    let _alone = ready();
    for row in rows().iter().filter(|row| plain(row)) {
        if !matches!(row.leaf.mode(), Mode::ReadOnly | Mode::ReadWrite) {
            continue;
        }
        let name = first(row);
        let size = size(&row.leaf).expect("a plain type");
        if name.starts_with("opt.malloc_conf.") {
            // A source that the process does not have does not exist.
            assert_eq!(get(&name, &mut vec![0; size]).0, Err(Error::NotFound));
            continue;
        }
        let mut whole = vec![0xee; size];
        assert_eq!(get(&name, &mut whole), (Ok(()), size), "{name}");
        let mut large = vec![0xee; size + 3];
        assert_eq!(
            get(&name, &mut large),
            (Err(Error::Invalid), size),
            "{name}"
        );
        assert_eq!(large[size..], [0xee; 3], "{name}: nothing beyond the value");
        for short in 0..size {
            let mut room = vec![0xee; size];
            let (answer, len) = get(&name, &mut room[..short]);
            assert_eq!((answer, len), (Err(Error::Invalid), short), "{name}");
            assert!(room[short..].iter().all(|&byte| byte == 0xee), "{name}");
        }
    }
}

#[test]
fn what_is_only_read_cannot_be_written() {
    crate::testing::own_process!();
    let _alone = ready();
    for row in rows().iter().filter(|row| plain(row)) {
        if row.leaf.mode() != Mode::ReadOnly {
            continue;
        }
        let name = first(row);
        let value = vec![0; size(&row.leaf).expect("a plain type")];
        assert_eq!(set(&name, &value), Err(Error::NotPermitted), "{name}");
        let none = std::ptr::null_mut::<u8>();
        // SAFETY: nothing is read or written: a length alone is refused.
        let mut request = unsafe { Request::new(none.cast(), none.cast(), none.cast(), 1) };
        let answer = ctl::by_name(name.as_bytes(), &mut request);
        assert_eq!(answer, Err(Error::NotPermitted), "{name}");
    }
}

#[test]
fn what_is_only_written_cannot_be_read_and_what_is_done_is_neither() {
    crate::testing::own_process!();
    let _alone = ready();
    for row in rows().iter().filter(|row| plain(row)) {
        let name = first(row);
        let mode = row.leaf.mode();
        if matches!(mode, Mode::WriteOnly | Mode::Neither) {
            let mut room = [0; 8];
            assert_eq!(get(&name, &mut room).0, Err(Error::NotPermitted), "{name}");
        }
        if mode == Mode::Neither {
            assert_eq!(set(&name, &[0; 8]), Err(Error::NotPermitted), "{name}");
        }
    }
}

#[test]
fn new_values_of_another_length_change_nothing() {
    crate::testing::own_process!();
    let _alone = ready();
    for row in rows().iter().filter(|row| plain(row)) {
        if !matches!(row.leaf.mode(), Mode::WriteOnly | Mode::ReadWrite) {
            continue;
        }
        let name = first(row);
        let size = size(&row.leaf).expect("a plain type");
        let mut before = vec![0; size];
        let readable = row.leaf.mode() == Mode::ReadWrite;
        if readable {
            assert_eq!(get(&name, &mut before).0, Ok(()), "{name}");
        }
        for wrong in (0..size + 2).filter(|&len| len != size) {
            assert_eq!(set(&name, &vec![1; wrong]), Err(Error::Invalid), "{name}");
        }
        if readable {
            let mut after = vec![1; size];
            assert_eq!(get(&name, &mut after).0, Ok(()), "{name}");
            assert_eq!(after, before, "{name}");
        }
    }
}

#[test]
fn every_name_has_a_mib_that_leads_to_it_and_so_has_its_beginning() {
    crate::testing::own_process!();
    let _alone = ready();
    for row in rows() {
        let name = first(&row);
        let components: Vec<&str> = name.split('.').collect();
        let mut whole = [usize::MAX; DEPTH];
        let depth = ctl::name_to_mib(name.as_bytes(), &mut whole).expect("the name is known");
        assert_eq!(depth, components.len(), "{name}");
        for short in 0..=depth {
            let mut part = [usize::MAX; DEPTH];
            // Less room gives the MIB of a shorter name.
            let cut = ctl::name_to_mib(name.as_bytes(), &mut part[..short]);
            assert_eq!(cut, Ok(short), "{name}");
            assert_eq!(part[..short], whole[..short], "{name}");
            if short > 0 {
                let beginning = components[..short].join(".");
                let found = ctl::name_to_mib(beginning.as_bytes(), &mut part);
                assert_eq!(found, Ok(short), "{beginning}");
                assert_eq!(part[..short], whole[..short], "{beginning}");
            }
            if short < depth {
                // SAFETY: nothing is read or written.
                let mut nothing = unsafe {
                    Request::new(
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        std::ptr::null(),
                        0,
                    )
                };
                let answer = ctl::by_mib(&part[..short], &mut nothing);
                assert_eq!(answer, Err(Error::NotFound), "half of {name}");
            }
        }
        if plain(&row) && row.leaf.mode() == Mode::ReadOnly && row.leaf.c_type() == "size_t" {
            let (mut value, mut len) = (0usize, 8);
            // SAFETY: the room has this length.
            let mut request =
                unsafe { Request::new((&raw mut value).cast(), &mut len, std::ptr::null(), 0) };
            assert_eq!(ctl::by_mib(&whole[..depth], &mut request), Ok(()), "{name}");
        }
    }
}
