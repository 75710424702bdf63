//! The effects of calls on the process: epochs, decay times, the background thread, `errno`; and
//! the helpers for names with their own rules.

extern crate std;

use crate::api;
use crate::ctl::{self, Error, Request};
use crate::sys::errno;
use crate::testing::alone;
use core::ptr::{null, null_mut};
use std::vec::Vec;

/// A request with room for an old value of `old` bytes, and a new one of `new` bytes.
fn request(old: &mut Option<Vec<u8>>, old_len: &mut usize, new: Option<&[u8]>) -> Request {
    let (at, len) = match old {
        Some(bytes) => {
            *old_len = bytes.len();
            (bytes.as_mut_ptr(), old_len as *mut usize)
        }
        None => (null_mut(), null_mut()),
    };
    let (new, new_len) = new.map_or((null(), 0), |bytes| (bytes.as_ptr(), bytes.len()));
    // SAFETY: the lengths are correct.
    unsafe { Request::new(at.cast(), len, new.cast(), new_len) }
}

#[test]
fn what_must_be_read_needs_room_of_its_length() {
    for room in [None, Some(0), Some(3), Some(5)] {
        let (mut old, mut len) = (room.map(|n| std::vec![1; n]), 77);
        let mut request = request(&mut old, &mut len, None);
        assert_eq!(request.must_read::<u32>(), Err(Error::Invalid), "{room:?}");
        assert_eq!(len, if room.is_some() { 0 } else { 77 });
    }
    let (mut old, mut len) = (Some(std::vec![1; 4]), 0);
    assert_eq!(request(&mut old, &mut len, None).must_read::<u32>(), Ok(()));
    assert_eq!(len, 4);
}

#[test]
fn what_must_be_given_is_there_and_of_its_length() {
    let mut len = 0;
    for new in [None, Some(&[][..]), Some(&[1, 2, 3]), Some(&[1; 5])] {
        let answer = request(&mut None, &mut len, new).must_give::<u32>();
        assert_eq!(answer, Err(Error::Invalid), "{new:?}");
    }
    let given = request(&mut None, &mut len, Some(&[1, 2, 0, 0])).must_give::<u32>();
    assert_eq!(given, Ok(513));
    assert_eq!(request(&mut None, &mut len, None).given::<u32>(), Ok(None));
    // Any byte becomes a valid bool.
    let given = request(&mut None, &mut len, Some(&[0xfe])).must_give::<bool>();
    assert_eq!(given, Ok(true));
}

#[test]
fn reading_and_writing_at_once_can_be_refused() {
    let (mut old, mut len) = (Some(std::vec![1; 4]), 0);
    let both = request(&mut old, &mut len, Some(&[0; 4]));
    assert_eq!(both.allow_one_of_both(), Err(Error::NotPermitted));
    assert_eq!(
        request(&mut old, &mut len, None).allow_one_of_both(),
        Ok(())
    );
    let write = request(&mut None, &mut len, Some(&[0; 4]));
    assert_eq!(write.allow_one_of_both(), Ok(()));
}

#[test]
fn writing_the_epoch_goes_on_by_one_and_reading_does_not() {
    crate::testing::own_process!();
    let _alone = alone();
    let before: u64 = ctl::read(b"epoch").unwrap();
    assert_eq!(ctl::read(b"epoch"), Ok(before));
    // SAFETY: a number.
    unsafe { ctl::write(b"epoch", 0u64) }.unwrap();
    assert_eq!(ctl::read(b"epoch"), Ok(before + 1));
    // SAFETY: a number of the wrong length.
    assert_eq!(unsafe { ctl::write(b"epoch", 0u32) }, Err(Error::Invalid));
    assert_eq!(ctl::read(b"epoch"), Ok(before + 1));
}

#[test]
fn decay_times_of_arenas_to_come_leave_those_there_alone() {
    crate::testing::own_process!();
    let _alone = alone();
    // SAFETY: numbers.
    let write = |ms: isize| unsafe { ctl::write(b"arenas.dirty_decay_ms", ms) };
    let before: isize = ctl::read(b"arenas.dirty_decay_ms").unwrap();
    let muzzy: isize = ctl::read(b"arenas.muzzy_decay_ms").unwrap();
    let first = crate::heap::PAGE_HEAPS.dirty_ms();
    for ms in [0, 1, -1, 18_446_744_072_000] {
        assert_eq!(write(ms), Ok(()));
        assert_eq!(ctl::read(b"arenas.dirty_decay_ms"), Ok(ms));
    }
    for ms in [-2, isize::MIN, isize::MAX, 18_446_744_072_001] {
        assert_eq!(write(ms), Err(Error::Fault), "{ms}");
    }
    assert_eq!(
        ctl::read(b"arenas.dirty_decay_ms"),
        Ok(18_446_744_072_000isize)
    );
    assert_eq!(ctl::read(b"arenas.muzzy_decay_ms"), Ok(muzzy));
    assert_eq!(crate::heap::PAGE_HEAPS.dirty_ms(), first);
    assert_eq!(write(before), Ok(()));
}

#[test]
fn size_classes_are_those_of_blocks_and_the_last_is_a_possible_request() {
    crate::testing::own_process!();
    let _alone = alone();
    let bins: u32 = ctl::read(b"arenas.nbins").unwrap();
    let large: u32 = ctl::read(b"arenas.nlextents").unwrap();
    let size = |name: &str, i: u32| {
        ctl::read::<usize>(std::format!("arenas.{name}.{i}.size").as_bytes()).unwrap()
    };
    for i in 0..bins {
        let block = api::alloc(size("bin", i));
        // SAFETY: a new block that is not in use.
        unsafe {
            assert_eq!(api::usable_size(block), size("bin", i));
            api::dealloc(block);
        }
    }
    let last = size("lextent", large - 1);
    assert!(last <= api::MAX && crate::class::Class::of(last).size() == last);
    assert!(crate::class::Class(crate::class::Class::of(last).0 + 1).size() > api::MAX);
    let kept: u32 = ctl::read(b"arenas.nhbins").unwrap();
    let max: usize = ctl::read(b"arenas.tcache_max").unwrap();
    assert_eq!(kept as usize, crate::class::Class::of(max).number() + 1);
}

#[test]
fn errno_is_kept() {
    crate::testing::own_process!();
    let _alone = alone();
    errno::set(4321);
    let names = [
        &b"version"[..],
        b"nonsense",
        b"arenas.bin.77.size",
        b"epoch",
        b"prof.prefix",
    ];
    for name in names {
        let mut len = 0;
        let _ = ctl::by_name(name, &mut request(&mut None, &mut len, None));
        let _ = ctl::name_to_mib(name, &mut [0; 7]);
    }
    assert_eq!(errno::get(), 4321);
}

#[test]
fn codes_are_those_of_c() {
    for (error, code) in [
        (Error::NotFound, libc::ENOENT),
        (Error::Invalid, libc::EINVAL),
        (Error::NotPermitted, libc::EPERM),
        (Error::Fault, libc::EFAULT),
        (Error::Again, libc::EAGAIN),
    ] {
        assert_eq!((error.code(), Error::from(code)), (code, error));
    }
    assert_eq!(Error::from(libc::EBUSY), Error::Fault);
}

#[test]
fn the_version_begins_with_that_of_the_header() {
    let header = include_str!("../../../../mallard-c/jemalloc/jemalloc.h");
    let version = ctl::VERSION.to_str().unwrap();
    let (jemallocs, own) = version.split_once(' ').unwrap();
    assert!(header.contains(&std::format!("#define JEMALLOC_VERSION \"{jemallocs}\"\n")));
    assert_eq!(own, std::format!("mallard-{}", env!("CARGO_PKG_VERSION")));
}
