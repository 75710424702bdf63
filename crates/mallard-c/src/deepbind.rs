//! Plug-ins that are loaded with `RTLD_DEEPBIND`; only in `libmallard.so`.
//!
//! The flag makes a plug-in look for its symbols among its own dependencies first. The C library is
//! one of them, so the plug-in would use the C library's `malloc` and `free`, and the first block
//! passed between it and the program would end the process. The library therefore has its own
//! `dlopen` and `dlmopen`, which check the flag. When it is set for the first time, they redirect
//! the entries of `malloc`'s family in the C library's table of dynamic symbols to the functions
//! that the rest of the process uses: the loader and `dlsym` then find those in the C library too.
//! Symbols bound before do not change.
//!
//! Then they jump to the original function. The loader takes the caller's search path and namespace
//! from the return address, so there must be no frame of ours in between.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write;
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mallard_core::api;
use mallard_core::sys::errno::{self, KeepErrno};
use mallard_core::sys::fault::MessageLine;
use mallard_core::sys::mem::os_page;

/// The names that are redirected, each with a zero at its end, and an empty one. One text, because
/// a table of pointers would be relocated at every start. `malloc` and `free` come first.
const TEXT: &[u8] = b"malloc\0free\0calloc\0realloc\0posix_memalign\0aligned_alloc\0memalign\0valloc\0pvalloc\0\
    malloc_usable_size\0reallocarray\0free_sized\0free_aligned_sized\0cfree\0mallinfo\0mallinfo2\0malloc_info\0\
    malloc_trim\0mallopt\0malloc_stats\0\0";
/// How many there are.
const COUNT: usize = {
    let (mut zeros, mut i) = (0, 0);
    while i < TEXT.len() {
        zeros += (TEXT[i] == 0) as usize;
        i += 1;
    }
    zeros - 1
};

/// [`TEXT`]. The symbol's name is a pattern: rustc puts it on the linker's list of exports, where
/// it matches `dlopen` and `dlmopen`, which only the linker script defines (`layout.ld.in`). The
/// archive must not define them, because a static program has no other `dlopen`.
#[unsafe(export_name = "dl*ope[n]")]
pub static NAMES: [u8; TEXT.len()] = match TEXT.first_chunk() {
    Some(names) => *names,
    None => unreachable!(),
};

/// The function of this name that the process uses, by `dlsym`. The reference is weak, because a
/// static program that links the archive has no `dlsym`; it never calls this.
fn find(name: &CStr) -> usize {
    let dlsym = mallard_core::symbol_address!(weak "dlsym");
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> usize;
    // SAFETY: the function has this type, and the name is a C string.
    unsafe { transmute::<usize, Dlsym>(dlsym)(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Whether the C library's table is in its final state.
static DONE: AtomicBool = AtomicBool::new(false);

/// The new values of the table, in the order of [`NAMES`], and the error if the system refuses.
struct Work {
    targets: [usize; COUNT],
    refused: c_int,
}

/// Called by `dlopen` and `dlmopen` (`arch`) when the flag is set.
pub extern "C" fn redirect() {
    if DONE.load(Ordering::Acquire) {
        return;
    }
    let _keep = KeepErrno::new();
    let mut work = Work {
        targets: [0; COUNT],
        refused: 0,
    };
    for (target, name) in work.targets.iter_mut().zip(Names::new()) {
        *target = find(name);
    }
    let walk = find(c"dl_iterate_phdr");
    if walk == 0 || !gives_ours(&work.targets) {
        DONE.store(true, Ordering::Release);
        return;
    }
    type Callback = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
    type Walk = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;
    // The loader holds its lock meanwhile, so only one thread at a time changes the table.
    // SAFETY: the function has this type; the callback gets the record.
    unsafe { transmute::<usize, Walk>(walk)(visit, (&raw mut work).cast()) };
    if work.refused != 0 {
        let mut line = MessageLine::new();
        let _ = line.write_str("mallard: plug-ins that are loaded with RTLD_DEEPBIND have another malloc than the program: mprotect of the C library's symbols: ");
        let _ = match work.refused {
            libc::EPERM => line.write_str("EPERM"),
            libc::EACCES => line.write_str("EACCES"),
            libc::ENOMEM => line.write_str("ENOMEM"),
            other => write!(line, "error {other}"),
        };
        line.emit();
    }
}

/// Iterates over [`NAMES`].
struct Names(*const c_char);

impl Names {
    fn new() -> Names {
        Names(NAMES.as_ptr().cast())
    }
}

impl Iterator for Names {
    type Item = &'static CStr;

    #[inline(never)]
    fn next(&mut self) -> Option<&'static CStr> {
        // SAFETY: it points to one of the names, or to the empty one after them.
        let name = unsafe { CStr::from_ptr(self.0) };
        self.0 = self.0.wrapping_add(name.count_bytes() + 1);
        (!name.is_empty()).then_some(name)
    }
}

/// Whether the process's blocks are ours, even if through a wrapper.
fn gives_ours(targets: &[usize; COUNT]) -> bool {
    type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
    type Free = unsafe extern "C" fn(*mut c_void);
    // SAFETY: these are the process's functions with these names, found by the loader.
    unsafe {
        let (malloc, free) = (
            transmute::<usize, Malloc>(targets[0]),
            transmute::<usize, Free>(targets[1]),
        );
        let block = malloc(1);
        let ours = api::is_ours(block.cast());
        free(block);
        ours
    }
}

/// Redirects the table if the object is the C library.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, work: *mut c_void) -> c_int {
    // SAFETY: the loader's record of an object that stays loaded meanwhile, and the `Work` of
    // `redirect`.
    let (info, work) = unsafe { (&*info, &mut *work.cast::<Work>()) };
    if DONE.load(Ordering::Relaxed) {
        return 1;
    }
    // SAFETY: as above.
    let Some(object) = (unsafe { Object::of(info) }) else {
        return 0;
    };
    if object.find(c"gnu_get_libc_version").is_none() {
        return 0;
    }
    work.refused = object.redirect(&work.targets);
    DONE.store(true, Ordering::Release);
    1
}

/// A function that is sought in all objects of the process, and its address or 0.
struct Wanted<'a> {
    name: &'a CStr,
    /// Whether our own object counts.
    also_ours: bool,
    address: usize,
}

/// The function of this name in the first object that has it; 0 if none does.
#[cold]
#[inline(never)]
pub fn find_anywhere(name: &CStr, also_ours: bool) -> usize {
    let mut wanted = Wanted {
        name,
        also_ours,
        address: 0,
    };
    // SAFETY: the callback gets the record.
    unsafe { libc::dl_iterate_phdr(Some(look_in), (&raw mut wanted).cast()) };
    wanted.address
}

unsafe extern "C" fn look_in(
    info: *mut libc::dl_phdr_info,
    _: usize,
    wanted: *mut c_void,
) -> c_int {
    // SAFETY: the loader's record of an object that stays loaded meanwhile, and the record of
    // `find_anywhere`.
    let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Wanted>()) };
    // SAFETY: as above.
    let object = unsafe { Object::of(info) };
    let counts = |object: &Object| wanted.also_ours || object.find(c"mallocx").is_none();
    let Some(object) = object.filter(counts) else {
        return 0;
    };
    let found = object.find(wanted.name).map(|v| v.load(Ordering::Relaxed));
    if let Some(value @ 1..) = found {
        wanted.address = (info.dlpi_addr + value) as usize;
    }
    (wanted.address != 0).into()
}

/// What the loader knows about an object.
struct Object<'a> {
    info: &'a libc::dl_phdr_info,
    names: *const c_char,
    symbols: *const libc::Elf64_Sym,
    /// The table of `DT_GNU_HASH`.
    hash: *const u32,
}

const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

impl<'a> Object<'a> {
    /// # Safety
    /// The record is the loader's, and the object stays loaded.
    unsafe fn of(info: &'a libc::dl_phdr_info) -> Option<Self> {
        let header = segments(info).find(|s| s.p_type == libc::PT_DYNAMIC)?;
        let mut at = (info.dlpi_addr + header.p_vaddr) as *const [u64; 2];
        let (mut names, mut symbols, mut hash) = (0, 0, 0);
        loop {
            // SAFETY: the dynamic section ends with a tag of 0.
            let [tag, value] = unsafe { at.read() };
            match tag {
                0 => break,
                DT_STRTAB => names = value,
                DT_SYMTAB => symbols = value,
                DT_GNU_HASH => hash = value,
                _ => {}
            }
            at = at.wrapping_add(1);
        }
        // The loader has converted them to addresses, except in the kernel's object, which it did
        // not load.
        (hash > info.dlpi_addr).then_some(Object {
            info,
            names: names as _,
            symbols: symbols as _,
            hash: hash as _,
        })
    }

    /// The value field of a symbol that the object defines.
    #[inline(never)]
    fn find(&self, name: &CStr) -> Option<&'a AtomicU64> {
        let mut hash = 5381u32;
        for &byte in name.to_bytes() {
            hash = hash.wrapping_mul(33).wrapping_add(byte.into());
        }
        // SAFETY: the table begins with the number of its buckets, the first symbol in it, and the
        // number of words of its filter, which lies before the buckets. A chain of hashes follows
        // them, one for each symbol. The last hash of a bucket has its lowest bit set. The object's
        // own tables give the positions of symbols and names.
        unsafe {
            let [buckets, first, words] = [0, 1, 2].map(|i| *self.hash.add(i));
            let bucket = self.hash.add(4 + 2 * words as usize);
            let chain = bucket.add(buckets as usize);
            let mut at = *bucket.add((hash % buckets) as usize);
            while at >= first {
                let symbol = self.symbols.add(at as usize);
                let link = *chain.add((at - first) as usize);
                if (link ^ hash) < 2
                    && libc::strcmp(self.names.add((*symbol).st_name as usize), name.as_ptr()) == 0
                {
                    return Some(AtomicU64::from_ptr(
                        (&raw const (*symbol).st_value).cast_mut(),
                    ));
                }
                if link & 1 != 0 {
                    break;
                }
                at += 1;
            }
        }
        None
    }

    /// Makes the object's symbols of [`NAMES`] point to the targets; returns the error if the
    /// system refuses, else 0.
    fn redirect(&self, targets: &[usize; COUNT]) -> c_int {
        let base = self.info.dlpi_addr;
        let mut entries = [None; COUNT];
        let (mut from, mut to) = (usize::MAX, 0);
        for (slot, name) in entries.iter_mut().zip(Names::new()) {
            *slot = self.find(name);
            if let Some(entry) = *slot {
                let at = core::ptr::from_ref(entry).addr();
                (from, to) = (from.min(at), to.max(at + size_of::<u64>()));
            }
        }
        let segment = segments(self.info).find(|s| {
            let offset = (from as u64).wrapping_sub(base + s.p_vaddr);
            s.p_type == libc::PT_LOAD && offset < s.p_memsz
        });
        let Some(segment) = segment else {
            return libc::EFAULT;
        };
        // Old linkers put the table next to code, which other threads run meanwhile.
        let rights = match segment.p_flags & libc::PF_X {
            0 => libc::PROT_READ,
            _ => libc::PROT_READ | libc::PROT_EXEC,
        };
        from -= from % os_page();
        // SAFETY: the pages are in the object's segment, and never lose any of its rights.
        let protect = |rights| unsafe { libc::mprotect(from as *mut c_void, to - from, rights) };
        if protect(rights | libc::PROT_WRITE) != 0 {
            return errno::get();
        }
        for (entry, &target) in entries.iter().zip(targets) {
            if let Some(entry) = entry {
                // Relative, because the loader adds the base.
                entry.store((target as u64).wrapping_sub(base), Ordering::Relaxed);
            }
        }
        protect(rights);
        0
    }
}

fn segments(info: &libc::dl_phdr_info) -> impl Iterator<Item = &libc::Elf64_Phdr> {
    // SAFETY: the loader's record gives the address and the number of the object's program headers.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }.iter()
}
