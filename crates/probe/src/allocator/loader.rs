//! Finds functions in the objects of the process by reading the loader's list of objects and their
//! hash tables. `dlsym` would do the same, but it may allocate and takes the loader's lock, which
//! deadlocks interposers of malloc.

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;

/// One object of the process; the loader's `struct link_map`.
#[repr(C)]
pub struct Object {
    /// What its addresses in the file count from.
    pub base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Object,
    previous: *const Object,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Debug {
    version: i32,
    map: *const Object,
    breakpoint: usize,
    state: i32,
    loader: usize,
}

unsafe extern "C" {
    /// The loader's description of the process for debuggers.
    static _r_debug: Debug;
    /// Our own dynamic section, by which we find ourselves in the list.
    static _DYNAMIC: Dynamic;
}

core::arch::global_asm!(".hidden _DYNAMIC");

const HASH: i64 = 4;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const GNU_HASH: i64 = 0x6fff_fef5;
const VERSIONS: i64 = 0x6fff_fff0;
/// A symbol's version that is not the default one.
const HIDDEN: u16 = 0x8000;
const TYPE_FUNCTION: u8 = 2;
const TYPE_UNTYPED: u8 = 0;
const TYPE_INDIRECT: u8 = 10;

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// Whether the objects of the process are all loaded and bound. Before that their functions must
/// not be called.
pub fn is_complete() -> bool {
    const CONSISTENT: i32 = 0;
    // SAFETY: the loader's structure is valid from before our first instruction.
    unsafe { (&raw const _r_debug.state).read_volatile() == CONSISTENT && !_r_debug.map.is_null() }
}

/// The objects of the process from `first` on, in the order in which the loader looks names up.
pub struct Objects(*const Object);

/// All objects.
pub fn all() -> Objects {
    // SAFETY: as in `is_complete`.
    Objects(unsafe { _r_debug.map })
}

/// The objects after this library.
pub fn after_us() -> Objects {
    let mut objects = all();
    let ours = &raw const _DYNAMIC;
    objects
        .by_ref()
        .find(|object| core::ptr::eq(object.dynamic, ours));
    objects
}

impl Iterator for Objects {
    type Item = &'static Object;

    fn next(&mut self) -> Option<&'static Object> {
        // SAFETY: the list holds valid objects. Objects leave it only by `dlclose`, which the
        // program does not do with an object whose functions it is calling.
        let object = unsafe { self.0.as_ref()? };
        self.0 = object.next;
        Some(object)
    }
}

impl Object {
    /// The path of the object; empty for the program itself.
    pub fn name(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the loader's names end with a zero and stay as long as the object.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// The address of the function `name` if this object defines it; 0 if not.
    pub fn find(&self, name: &CStr) -> usize {
        let Some(tables) = Tables::of(self) else {
            return 0;
        };
        let index = match tables.gnu {
            Some(gnu) => tables.by_gnu_hash(gnu, name),
            None => tables.by_old_hash(name),
        };
        let Some(symbol) = index else { return 0 };
        let address = self.base + symbol.value;
        if symbol.info & 15 == TYPE_INDIRECT {
            // SAFETY: the resolver of an indirect function takes nothing that matters here and
            // returns the address of the implementation.
            return unsafe { transmute::<usize, extern "C" fn() -> usize>(address)() };
        }
        address
    }
}

/// The tables of an object's dynamic symbols.
struct Tables {
    symbols: *const Symbol,
    strings: *const c_char,
    versions: *const u16,
    gnu: Option<*const u32>,
    old: *const u32,
}

impl Tables {
    fn of(object: &Object) -> Option<Tables> {
        let mut found = [0_usize; 5];
        let mut entry = object.dynamic;
        if entry.is_null() {
            return None;
        }
        // SAFETY: the dynamic section ends with an entry whose tag is 0.
        unsafe {
            while (*entry).tag != 0 {
                let place = [HASH, STRINGS, SYMBOLS, GNU_HASH, VERSIONS]
                    .iter()
                    .position(|tag| *tag == (*entry).tag);
                if let Some(place) = place {
                    let value = (*entry).value;
                    // The loader has made addresses of the values, but for the kernel's object.
                    found[place] = if value < object.base {
                        object.base + value
                    } else {
                        value
                    };
                }
                entry = entry.add(1);
            }
        }
        let [old, strings, symbols, gnu, versions] = found;
        if strings == 0 || symbols == 0 || (gnu == 0 && old == 0) {
            return None;
        }
        Some(Tables {
            symbols: symbols as *const Symbol,
            strings: strings as *const c_char,
            versions: versions as *const u16,
            gnu: (gnu != 0).then_some(gnu as *const u32),
            old: old as *const u32,
        })
    }

    /// The table: counts of buckets, of the first symbol, of the filter's words and its shift; the
    /// filter; the buckets; a hash for each symbol, whose lowest bit ends a chain.
    fn by_gnu_hash(&self, table: *const u32, name: &CStr) -> Option<&'static Symbol> {
        let mut hash = 5381_u32;
        for byte in name.to_bytes() {
            hash = hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
        }
        // SAFETY: the linker wrote the table in this form, and the loader relies on it too.
        unsafe {
            let (buckets, first, words, shift) =
                (*table, *table.add(1), *table.add(2), *table.add(3));
            let filter = table.add(4).cast::<u64>();
            let word = *filter.add((hash / 64) as usize & (words as usize - 1));
            if (word >> (hash % 64)) & (word >> ((hash >> shift) % 64)) & 1 == 0 || buckets == 0 {
                return None;
            }
            let bucket = table.add(4 + words as usize * 2);
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let stored = *chain.add((index - first) as usize);
                if stored | 1 == hash | 1
                    && let Some(symbol) = self.matches(index, name)
                {
                    return Some(symbol);
                }
                if stored & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// The table: counts of buckets and symbols, the buckets, the chains.
    fn by_old_hash(&self, name: &CStr) -> Option<&'static Symbol> {
        let mut hash = 0_u32;
        for byte in name.to_bytes() {
            hash = (hash << 4).wrapping_add(u32::from(*byte));
            hash ^= (hash & 0xf000_0000) >> 24;
            hash &= 0x0fff_ffff;
        }
        // SAFETY: the linker wrote the table in this form, and the loader relies on it too.
        unsafe {
            let buckets = *self.old;
            if buckets == 0 {
                return None;
            }
            let chain = self.old.add(2 + buckets as usize);
            let mut index = *self.old.add(2 + (hash % buckets) as usize);
            while index != 0 {
                if let Some(symbol) = self.matches(index, name) {
                    return Some(symbol);
                }
                index = *chain.add(index as usize);
            }
            None
        }
    }

    /// The symbol if it is the default definition of the function `name`.
    ///
    /// # Safety
    /// The object has a symbol with this index.
    unsafe fn matches(&self, index: u32, name: &CStr) -> Option<&'static Symbol> {
        // SAFETY: the caller's promise; the tables live as long as the object.
        unsafe {
            let symbol = &*self.symbols.add(index as usize);
            let function =
                [TYPE_FUNCTION, TYPE_UNTYPED, TYPE_INDIRECT].contains(&(symbol.info & 15));
            let hidden =
                !self.versions.is_null() && *self.versions.add(index as usize) & HIDDEN != 0;
            let theirs = CStr::from_ptr(self.strings.add(symbol.name as usize));
            (symbol.section != 0 && function && !hidden && theirs == name).then_some(symbol)
        }
    }
}

/// The first of the objects that defines the function `name`, and its address.
pub fn first(objects: Objects, name: &CStr) -> Option<(&'static Object, usize)> {
    let mut found = objects.map(|object| (object, object.find(name)));
    found.find(|(_, address)| *address != 0)
}

/// A function of type `F` at an address that [`Object::find`] returned.
///
/// # Safety
/// `F` is a pointer to a function of the type that the function has.
pub unsafe fn function<F>(address: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: the caller's promise.
    unsafe { core::mem::transmute_copy(&address) }
}

/// The argument of functions that take any pointer.
pub type Pointer = *mut c_void;

/// A hash of a block's address. Its highest bits are the best.
#[inline(always)]
pub fn hash_of(block: Pointer) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    (block.addr() as u64 >> 4).wrapping_mul(MULTIPLIER)
}
