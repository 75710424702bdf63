//! Properties of any name and any MIB, for the property tests beside this file and the fuzzer
//! (`fuzz/`), which includes this file.
//!
//! Nothing is written, because an arbitrary value could be a pointer, and nothing is created. A
//! name that is an action acts.

use super::ctl::{self, DEPTH, Error, Request};

/// Guard bytes around the room of an answer.
const MARGIN: usize = 16;
const CANARY: u8 = 0xee;
/// Longer than any value.
const VALUE_BYTES_MAX: usize = 64;

type Reply = (Result<(), Error>, usize, [u8; VALUE_BYTES_MAX]);

/// Reads with room for `len` bytes, and checks that nothing beyond them is touched, whatever the
/// result.
fn ask(len: usize, serve: impl FnOnce(&mut Request) -> Result<(), Error>) -> Reply {
    let mut room = [CANARY; VALUE_BYTES_MAX + 2 * MARGIN];
    // Zeros, because a few names read a pointer there.
    room[MARGIN..MARGIN + len].fill(0);
    let mut told = len;
    // SAFETY: the room holds this many bytes, and there is no new value.
    let mut request = unsafe {
        Request::new(
            room[MARGIN..].as_mut_ptr().cast(),
            &mut told,
            core::ptr::null(),
            0,
        )
    };
    let answer = serve(&mut request);
    let (before, after) = (&room[..MARGIN], &room[MARGIN + len..]);
    assert!(before.iter().chain(after).all(|&byte| byte == CANARY));
    assert!(told <= len, "{told} bytes of {len}");
    assert!(answer.is_err() || told == len, "a success tells all");
    if matches!(answer, Err(Error::NotFound | Error::NotPermitted)) {
        assert_eq!(told, len, "nothing was told");
    }
    let mut value = [0; VALUE_BYTES_MAX];
    value[..told].copy_from_slice(&room[MARGIN..MARGIN + told]);
    (answer, told, value)
}

/// Whether reading this creates something: each call would create more.
fn makes(mib: &[usize]) -> bool {
    [&b"arenas.create"[..], b"tcache.create"]
        .iter()
        .any(|name| {
            let mut made = [0; DEPTH];
            ctl::name_to_mib(name, &mut made).is_ok_and(|depth| made[..depth] == *mib)
        })
}

/// A name and its MIB give the same result, both exist or neither does, and the MIB grows with the
/// room for it.
pub fn name(name: &[u8]) {
    let mut whole = [usize::MAX; DEPTH];
    let depth = match ctl::name_to_mib(name, &mut whole) {
        Ok(depth) => depth,
        Err(error) => {
            assert_eq!(error, Error::NotFound);
            assert_eq!(ask(8, |r| ctl::by_name(name, r)).0, Err(error));
            return;
        }
    };
    let components = name.split(|&byte| byte == b'.').count();
    assert_eq!(depth, components, "no name is deeper than a MIB");
    for room in 0..=depth {
        let mut part = [usize::MAX; DEPTH];
        assert_eq!(ctl::name_to_mib(name, &mut part[..room]), Ok(room));
        assert_eq!(part[..room], whole[..room]);
        assert!(part[room..].iter().all(|&n| n == usize::MAX));
    }
    if makes(&whole[..depth]) {
        return;
    }
    for len in [0, 1, 4, 7, 8, 9, VALUE_BYTES_MAX] {
        let by_name = ask(len, |r| ctl::by_name(name, r));
        let by_mib = ask(len, |r| ctl::by_mib(&whole[..depth], r));
        assert_eq!((by_name.0, by_name.1), (by_mib.0, by_mib.1));
    }
}

/// A valid MIB is at most as long as a name can be, and nothing follows a leaf.
pub fn mib(mib: &[usize]) {
    if makes(mib) {
        return;
    }
    for len in [0, 1, 4, 8, 9] {
        let (answer, ..) = ask(len, |r| ctl::by_mib(mib, r));
        if answer != Err(Error::NotFound) {
            assert!(mib.len() <= DEPTH);
            let mut longer = [0; DEPTH + 1];
            longer[..mib.len()].copy_from_slice(mib);
            for end in mib.len() + 1..=DEPTH + 1 {
                let beyond = ask(len, |r| ctl::by_mib(&longer[..end], r)).0;
                assert_eq!(beyond, Err(Error::NotFound));
            }
        }
    }
}

/// Bytes as numbers, some small and some of any size.
pub fn mib_of(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.chunks(2).map(|pair| match *pair {
        [0xff, top] => usize::MAX - top as usize,
        [0xfe, shift] => 1 << (shift % 64),
        [0xfd, n] => 4090 + n as usize,
        [n, _] | [n] => n as usize,
        _ => 0,
    })
}
