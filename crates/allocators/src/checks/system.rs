//! Whether a system has what a file needs of it: the C library, its version, the kernel.
//!
//! A loader that lacks something says so in words of its own (`version 'GLIBC_2.34' not found`,
//! `Error relocating`, `No such file or directory` for a loader that is missing), or passes a
//! preloaded library over. The files themselves have the answer: a program names its loader, the C
//! library lies beside the loader, and both say in their tables of versions what they need and
//! have.

use std::fmt;
use std::path::{Path, PathBuf};

use mallard_procfs::kernel;

use super::elf::{Elf, Want};

/// A C library of Linux, under which a file was linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Libc {
    Glibc,
    Musl,
}

/// The main library of glibc.
const GLIBC: &str = "libc.so.6";

/// What the names of glibc's versions begin with, and no other library's.
const VERSIONS: &str = "GLIBC_";

impl Libc {
    /// The one that a program names by its loader, or a library by the libraries that it needs;
    /// none if it needs none.
    pub(crate) fn of(elf: &Elf) -> Option<Libc> {
        let mut names = elf.interpreter.iter().chain(&elf.needed);
        names.find_map(|name| match name.rsplit('/').next()? {
            "libc.so" => Some(Libc::Musl),
            name if name.starts_with("ld-musl-") || name.starts_with("libc.musl-") => {
                Some(Libc::Musl)
            }
            name if name.starts_with("libc.so.") || name.starts_with("ld-linux") => {
                Some(Libc::Glibc)
            }
            _ => None,
        })
    }
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
        })
    }
}

/// What loads a program, and the libraries beside it.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) loader: String,
    libc: Option<Libc>,
    /// The folder of the C library.
    folder: PathBuf,
}

impl System {
    /// The system of a program; none for one without a loader.
    pub(crate) fn of(program: &Elf) -> Option<System> {
        let loader = program.interpreter.clone()?;
        let real = Path::new(&loader).canonicalize().unwrap_or_default();
        Some(System {
            loader,
            libc: Libc::of(program),
            folder: real.parent().unwrap_or(Path::new("/")).to_owned(),
        })
    }

    /// The system of this process.
    pub(crate) fn own() -> Option<System> {
        System::of(&Elf::read(Path::new("/proc/self/exe")).ok()?)
    }

    /// What a file needs that this system lacks: half a sentence about the file, with a reason and
    /// what to do.
    pub(crate) fn lacks(&self, file: &Elf) -> Option<String> {
        self.another_libc(file)
            .or_else(|| self.missing_version(file))
            .or_else(|| self.newer_kernel(file))
    }

    fn another_libc(&self, file: &Elf) -> Option<String> {
        let (theirs, ours) = (Libc::of(file)?, self.libc?);
        (theirs != ours).then(|| {
            let loader = &self.loader;
            format!(
                "is linked for {theirs}, and the programs here use {ours} ({loader}): \
                 take its build for {ours}"
            )
        })
    }

    /// The newest version that is missing in a part of this system's glibc. Other libraries may
    /// come from any folder that the loader knows.
    fn missing_version(&self, file: &Elf) -> Option<String> {
        let of_glibc = |want: &&Want| want.version.starts_with(VERSIONS);
        let wants: Vec<&Want> = file.wants.iter().filter(of_glibc).collect();
        let mut libraries: Vec<&str> = wants.iter().map(|want| want.file.as_str()).collect();
        libraries.sort_unstable();
        libraries.dedup();
        libraries.into_iter().find_map(|library| {
            let path = self.folder.join(library);
            let has = Elf::read(&path).ok()?.has;
            let wants =
                (wants.iter()).filter(|want| want.file == library && !has.contains(&want.version));
            let want = wants.max_by_key(|want| numbers(&want.version))?;
            // The parts of glibc have one version, which the main one tells.
            let main = self.folder.join(GLIBC);
            let newest = has
                .iter()
                .filter_map(|version| version.strip_prefix(VERSIONS));
            let newest = newest.max_by_key(|number| numbers(number));
            let newest = release_of(&main).or_else(|| newest.map(str::to_owned));
            Some(lack(want, newest.as_deref(), &main))
        })
    }

    /// The loader of a program asks the C library about the kernel, and not the program.
    fn newer_kernel(&self, file: &Elf) -> Option<String> {
        if file.interpreter.is_none() {
            return newer_kernel(file);
        }
        let libc = self.folder.join(GLIBC);
        let lack = newer_kernel(&Elf::read(&libc).ok()?)?;
        Some(format!("uses {}, which {lack}", libc.display()))
    }
}

/// The release of glibc, of which its banner tells. A release may add no version to the table.
fn release_of(libc: &Path) -> Option<String> {
    const BANNER: &[u8] = b" release version ";
    let content = std::fs::read(libc).ok()?;
    let at = content.windows(BANNER.len()).position(|it| it == BANNER)? + BANNER.len();
    let text = content[at..].iter().map(|&byte| char::from(byte));
    let release: String = text
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    Some(release.trim_end_matches('.').to_owned())
}

/// The sentence about a version that this system's glibc lacks, whose newest one is known.
fn lack(want: &Want, newest: Option<&str>, library: &Path) -> String {
    let function = match &want.function {
        Some(function) => format!(" (`{function}`)"),
        None => String::new(),
    };
    let number = want.version.strip_prefix(VERSIONS).unwrap_or_default();
    let library = library.display();
    let is_number = number.starts_with(|c: char| c.is_ascii_digit());
    match newest {
        Some(newest) if is_number => format!(
            "needs glibc {number}{function}, and this system has {newest} ({library}): take a \
             build for glibc {newest} or older, or a newer system"
        ),
        _ => format!(
            "needs {}{function} of {library}, which lacks it: take an older build, or a newer \
             system",
            want.version
        ),
    }
}

/// The numbers in a version such as `GLIBC_2.34`.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// The sentence about a file that says it needs a newer kernel.
pub(crate) fn newer_kernel(file: &Elf) -> Option<String> {
    let lack = kernel::lacks(&file.kernel?)?;
    Some(format!("{lack}: take an older build, or a newer kernel"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(file: &str, version: &str, function: Option<&str>) -> Want {
        Want {
            file: file.to_owned(),
            version: version.to_owned(),
            function: function.map(str::to_owned),
        }
    }

    fn own() -> Elf {
        Elf::read(&std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_system_has_all_that_this_program_and_the_carried_library_need() {
        let system = System::own().unwrap();
        assert_eq!(system.lacks(&own()), None);
        let carried = Elf::parse(crate::cache::files::LIBRARY).unwrap();
        assert_eq!(system.lacks(&carried), None);
        assert_eq!(Libc::of(&carried), Libc::of(&own()));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn a_version_that_is_missing_is_named_with_its_function_and_what_there_is() {
        let mut elf = own();
        let old = elf.wants.iter().find(|want| want.file == "libc.so.6");
        let old = old.unwrap().clone();
        elf.wants = vec![
            want("libc.so.6", "GLIBC_2.98", None),
            old,
            want("libc.so.6", "GLIBC_2.100", Some("strange")),
            want("libnowhere.so.1", "NOWHERE_1", None),
        ];
        let lack = System::own().unwrap().lacks(&elf).unwrap();
        assert!(
            lack.starts_with("needs glibc 2.100 (`strange`), and this system has 2."),
            "{lack}"
        );
        elf.wants = vec![want("libc.so.6", "GLIBC_ABI_STRANGE", None)];
        let lack = System::own().unwrap().lacks(&elf).unwrap();
        assert!(lack.starts_with("needs GLIBC_ABI_STRANGE of /"), "{lack}");
        // Beside the loader there may be one, and a newer one in another folder.
        elf.wants = vec![want("libgcc_s.so.1", "GCC_99.0", Some("strange"))];
        assert_eq!(System::own().unwrap().lacks(&elf), None);
    }

    #[test]
    fn another_c_library_is_named_with_the_loader() {
        let mut elf = own();
        elf.interpreter = None;
        let (theirs, names) = match Libc::of(&own()) {
            Some(Libc::Musl) => ("glibc", ["libc.so.6", "ld-linux-x86-64.so.2"]),
            // Alpine's name of it, and its own.
            _ => ("musl", ["libc.musl-x86_64.so.1", "libc.so"]),
        };
        let system = System::own().unwrap();
        for name in names {
            elf.needed = vec!["libgcc_s.so.1".to_owned(), name.to_owned()];
            let lack = system.lacks(&elf).unwrap();
            assert!(lack.contains(&format!("is linked for {theirs}")), "{lack}");
            assert!(lack.contains(&system.loader), "{lack}");
        }
        elf.needed.clear();
        assert_eq!(system.another_libc(&elf), None, "it needs no C library");
    }

    #[test]
    fn a_newer_kernel_is_named_with_this_one() {
        let mut elf = own();
        elf.kernel = Some([3, 2, 0]);
        assert_eq!(newer_kernel(&elf), None);
        elf.kernel = Some([99, 0, 0]);
        let lack = newer_kernel(&elf).unwrap();
        assert!(
            lack.starts_with("needs Linux 99.0.0, and this is Linux "),
            "{lack}"
        );
        let system = System::own().unwrap();
        assert_eq!(system.lacks(&elf), None, "the loader does not ask it");
        elf.interpreter = None;
        assert_eq!(system.lacks(&elf), Some(lack));
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("GLIBC_2.9") < numbers("GLIBC_2.34"));
    }
}
