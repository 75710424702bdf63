//! Asks the loader, the kernel or the list for a module.

use super::elf::{Image, Known};
use super::list::ModuleList;
use crate::prof::unwind::table::Table;
use crate::sys::atomic::{AtomicBool, Ordering};
use crate::sys::published::Published;
use core::ffi::{c_int, c_ulong};
use core::ptr::null;

/// A module, as far as a walk asks about it.
#[derive(Clone, Copy)]
pub struct Module {
    pub start: usize,
    pub end: usize,
    /// Where its header is, or would be if that is not at the start; 0 for a module at the very
    /// addresses that its file names, of which the loader does not say it.
    header: usize,
    /// Where `.eh_frame_hdr` starts; 0 if it has none.
    pub unwind: usize,
    /// Whether the module may have been unloaded since it was found.
    pub is_doubtful: bool,
    /// Whether its header and tables were found to be where they should.
    pub is_checked: bool,
}

impl Module {
    /// Contains no address.
    pub const NONE: Module = Module {
        start: 0,
        end: 0,
        header: 0,
        unwind: 0,
        is_doubtful: false,
        is_checked: false,
    };

    #[inline(always)]
    pub fn contains(&self, at: usize) -> bool {
        at.wrapping_sub(self.start) < self.end - self.start
    }

    fn of(image: &Image, header: usize) -> Module {
        Module {
            start: image.start,
            end: image.end,
            header,
            unwind: image.unwind,
            is_doubtful: false,
            is_checked: false,
        }
    }

    /// The unwind tables of the module, if they are within it.
    #[cold]
    #[inline(never)]
    pub fn table(&self) -> Option<Table<'static>> {
        if self.unwind == 0 {
            return None;
        }
        let header = match self.header {
            0 => header_of_program(),
            header => header,
        };
        [header, self.start].into_iter().find_map(|header| {
            let mut image = Image::unread(Known {
                is_doubtful: self.is_doubtful,
                is_checked: self.is_checked,
            });
            // SAFETY: the loader, the kernel or the list has named the module.
            unsafe { image.read(header) }?;
            (image.unwind == self.unwind).then(|| image.table())?
        })
    }

    /// Whether its table is within it, and long enough for [`super::super::tag::tag_of`].
    pub fn is_sound(&self) -> bool {
        let needed = self.unwind.wrapping_add(2 * size_of::<u64>());
        let table = self.table();
        table.is_some_and(|table| table.index.contains(needed))
    }
}

/// Where modules are looked up.
pub struct Modules {
    /// For glibc before 2.35; none until a list is handed over.
    list: Published<ModuleList>,
    /// Whether code was met that no module contains, since the list was made.
    met_unknown: AtomicBool,
    /// Whether the program is static. The loader's part in it can be asked only once it has been
    /// prepared, which itself allocates, and names one segment alone.
    is_static: AtomicBool,
    /// Whether the loader is treated as one that cannot be asked.
    #[cfg(test)]
    is_old: bool,
}

/// What the loader says of an object: the beginning of glibc's `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// The beginning of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
}

type FindObject = unsafe extern "C" fn(usize, *mut Found) -> c_int;

/// The loader's function; none before glibc 2.35, and in static programs that do not contain it.
#[inline(always)]
fn find_object() -> Option<FindObject> {
    let address = crate::symbol_address!(weak "_dl_find_object");
    // SAFETY: 0, or the C library's function of this type.
    unsafe { core::mem::transmute::<usize, Option<FindObject>>(address) }
}

impl Modules {
    pub const fn new() -> Modules {
        Modules {
            list: Published::none(),
            met_unknown: AtomicBool::new(false),
            is_static: AtomicBool::new(false),
            #[cfg(test)]
            is_old: false,
        }
    }

    /// Takes note of what kind of program this is, before the first walk.
    pub fn begin(&self) {
        self.is_static.store(is_static(), Ordering::Relaxed);
    }

    /// Modules of a C library whose loader cannot be asked; of a static program, unless there is a
    /// list.
    #[cfg(test)]
    pub fn without_loader() -> Modules {
        Modules {
            is_old: true,
            ..Modules::new()
        }
    }

    /// The loader's function, if it may be asked.
    #[inline(always)]
    fn loader(&self) -> Option<FindObject> {
        #[cfg(test)]
        if self.is_old {
            return None;
        }
        find_object()
    }

    /// Hands over a list; it is empty until [`Modules::refresh`].
    pub fn set_list(&self, list: &'static ModuleList) {
        self.list.set(list);
    }

    /// Whether the C library needs a list ([`Modules::set_list`]).
    pub fn needs_list(&self) -> bool {
        self.loader().is_none() && !is_static()
    }

    /// Whether the list should be made anew: a walk met code that no module contains.
    pub fn wants_refresh(&self) -> bool {
        self.list.get().is_some() && self.met_unknown.load(Ordering::Relaxed)
    }

    /// Makes the list anew. Not from within `malloc`: it reads a file. Returns whether it is whole.
    pub fn refresh(&self) -> bool {
        self.met_unknown.store(false, Ordering::Relaxed);
        self.list.get().is_some_and(ModuleList::refresh)
    }

    /// The module that an address is in.
    pub fn find(&self, at: usize) -> Option<Module> {
        let mut module = Module::NONE;
        self.find_into(at, &mut module);
        (module.start != module.end).then_some(module)
    }

    /// Finds the module that an address is in; [`Module::NONE`] if there is none.
    #[inline(always)]
    pub fn find_into(&self, at: usize, module: &mut Module) {
        *module = Module::NONE;
        match self.loader() {
            Some(_) if self.is_static.load(Ordering::Relaxed) => {
                self.find_without_loader(at, module);
            }
            Some(find_object) => ask_loader(find_object, at, module),
            None => self.find_without_loader(at, module),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_without_loader(&self, at: usize, module: &mut Module) {
        let found = match self.list.get() {
            Some(list) => self.find_in(list, at),
            None => find_in_static(at),
        };
        if let Some(found) = found {
            *module = found;
        }
    }

    fn find_in(&self, list: &ModuleList, at: usize) -> Option<Module> {
        let found = list.find(at).map(|found| Module {
            start: found.start,
            end: found.end,
            header: found.header,
            unwind: found.unwind,
            is_doubtful: true,
            is_checked: false,
        });
        if found.is_none() {
            self.met_unknown.store(true, Ordering::Relaxed);
        }
        found
    }
}

// Not part of its caller: the loader's answer is large.
#[inline(never)]
fn ask_loader(find_object: FindObject, at: usize, module: &mut Module) {
    let mut found = Found {
        flags: 0,
        map_start: 0,
        map_end: 0,
        link_map: null(),
        eh_frame: 0,
        reserved: [0; 7],
    };
    // SAFETY: the function may be called anywhere, and writes one such answer.
    if unsafe { find_object(at, &mut found) } != 0 || found.map_end <= found.map_start {
        return;
    }
    // SAFETY: null, or the record of the object, which stays loaded while its code is on the stack.
    let base = unsafe { found.link_map.as_ref() }.map_or(0, |map| map.base);
    *module = Module {
        start: found.map_start,
        end: found.map_end,
        // Of a program with gaps between its segments, which is never moved, the loader names one
        // segment alone.
        header: base,
        unwind: found.eh_frame,
        is_doubtful: false,
        is_checked: false,
    };
}

/// A value that the kernel passed to the process at its start; 0 if it did not.
fn told(which: c_ulong) -> usize {
    // SAFETY: reads what the C library keeps, without a lock.
    unsafe { libc::getauxval(which) as usize }
}

/// Where the program's header is: right before its program headers. 0 if the kernel did not say.
fn header_of_program() -> usize {
    const DISTANCE: usize = 64;
    told(libc::AT_PHDR).saturating_sub(DISTANCE)
}

/// The program, and its header.
fn program() -> Option<(Image, usize)> {
    let header = header_of_program();
    // SAFETY: the program is never unloaded.
    unsafe { Image::at(header) }.map(|image| (image, header))
}

/// Whether no loader has taken part: the kernel then names no place where it lies.
fn is_static() -> bool {
    told(libc::AT_BASE) == 0
}

/// The module of a static program that an address is in.
#[cold]
#[inline(never)]
fn find_in_static(at: usize) -> Option<Module> {
    let contains = |module: &Module| module.contains(at);
    let of_program = program().map(|(image, header)| Module::of(&image, header));
    if let Some(module) = of_program.filter(contains) {
        return Some(module);
    }
    let header = told(libc::AT_SYSINFO_EHDR);
    // SAFETY: the kernel named the place, if it is not 0.
    let vdso = (header != 0).then(|| unsafe { Image::at(header) })??;
    Some(Module::of(&vdso, header)).filter(contains)
}
