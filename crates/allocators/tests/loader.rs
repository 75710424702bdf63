//! The loader's answers about real processes: libraries that serve, libraries that only appear to,
//! and programs that cannot take a preloaded library.

use std::path::{Path, PathBuf};
use std::process::Command;

use mallard_allocators::probe::NotBound;
use mallard_allocators::{Allocator, Catalog, Kind, Settings, Unavailable, probe, program};
use tempfile::TempDir;

/// A library that serves its own memory and never frees, which is enough for the probe.
const BUMP: &str = r#"
    #include <errno.h>
    #include <stdatomic.h>
    #include <stddef.h>
    #include <string.h>
    #include <sys/mman.h>
    static _Atomic size_t used;
    static char *memory(void) {
        static char *_Atomic start;
        char *here = start;
        if (here) return here;
        here = mmap(0, 1ul << 32, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char *none = 0;
        return atomic_compare_exchange_strong(&start, &none, here) ? here : none;
    }
    void *memalign(size_t alignment, size_t size) {
        if (alignment < 16) alignment = 16;
        size_t offset = atomic_fetch_add(&used, size + alignment + 16) + 16;
        offset = (offset + alignment - 1) / alignment * alignment;
        char *block = memory() + offset;
        ((size_t *)block)[-1] = size;
        return block;
    }
    void *malloc(size_t size) { return memalign(16, size); }
    void free(void *block) { (void)block; }
    size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] : 0; }
    void *calloc(size_t count, size_t size) { return malloc(count * size); }
    void *realloc(void *old, size_t size) {
        void *block = malloc(size);
        size_t before = malloc_usable_size(old);
        if (old) memcpy(block, old, before < size ? before : size);
        return block;
    }
    int posix_memalign(void **block, size_t alignment, size_t size) {
        *block = memalign(alignment, size);
        return 0;
    }
    void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
"#;

/// A library that passes every request to glibc.
const FALSE_FRONT: &str = r#"
    #include <stddef.h>
    void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
    void *__libc_memalign(size_t, size_t);
    void __libc_free(void *);
    void *malloc(size_t size) { return __libc_malloc(size); }
    void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
    void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
    void free(void *block) { __libc_free(block); }
    void *memalign(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
    void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
    int posix_memalign(void **block, size_t alignment, size_t size) {
        *block = __libc_memalign(alignment, size);
        return 0;
    }
    size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] - 16 : 0; }
"#;

struct Lab {
    folder: TempDir,
    catalog: Catalog,
}

impl Lab {
    fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let cache = Some(folder.path().join("cache"));
        Lab {
            folder,
            catalog: Catalog::new(Settings {
                cache,
                ..Settings::default()
            }),
        }
    }

    fn compile(&self, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
        let code = self.folder.path().join(format!("{name}.c"));
        let file = self.folder.path().join(name);
        std::fs::write(&code, source).unwrap();
        let mut command = Command::new("cc");
        command
            .args(["-O1", "-fno-builtin", "-o"])
            .arg(&file)
            .arg(&code)
            .args(arguments);
        assert!(
            command
                .status()
                .expect("the tests need a C compiler")
                .success()
        );
        file
    }

    /// Adds a library under the name `front` and prepares it.
    fn front(&mut self, source: &str) -> Result<Allocator, Unavailable> {
        let library = self.compile("front.so", source, &["-shared", "-fPIC"]);
        let name = self
            .catalog
            .add_custom(&format!("front={}", library.display()))
            .unwrap();
        self.catalog.prepare(&name, &mut |_| {}).unwrap()
    }

    fn glibc(&self) -> Allocator {
        self.catalog.prepare("glibc", &mut |_| {}).unwrap().unwrap()
    }
}

fn program(path: &Path) -> program::Program {
    program::check(path.to_str().unwrap()).unwrap()
}

#[test]
fn a_front_that_serves_is_ready_and_serves_real_programs() {
    let mut lab = Lab::new();
    let front = lab.front(BUMP).unwrap();
    assert_eq!(front.kind, Kind::Custom);
    assert_eq!(front.version, "front.so");
    for name in ["sh", "cc"] {
        let target = program::check(name).unwrap();
        let served = probe::verify_in_target(&target, &front).unwrap();
        assert_eq!(Some(served), front.file, "{name}");
    }
}

#[test]
fn a_front_that_passes_everything_to_glibc_is_unavailable() {
    let reason = Lab::new().front(FALSE_FRONT).unwrap_err().reason;
    assert!(reason.contains("glibc"), "{reason}");
}

#[test]
fn a_front_that_the_loader_cannot_link_is_unavailable_with_the_loader_s_message() {
    let broken = format!("{BUMP}\nvoid nowhere(void); void *pull(void) {{ return &nowhere; }}\n");
    let reason = Lab::new().front(&broken).unwrap_err().reason;
    assert!(reason.contains("nowhere"), "{reason}");
}

#[test]
fn a_front_without_calloc_is_unavailable_by_that_name() {
    let source = BUMP.replace("void *calloc", "void *no_calloc");
    assert_ne!(source, BUMP);
    let reason = Lab::new().front(&source).unwrap_err().reason;
    assert!(reason.contains("calloc"), "{reason}");
}

#[test]
fn a_front_that_crashes_is_unavailable_with_the_signal() {
    let crash = BUMP.replace(
        "{ return memalign(16, size); }",
        "{ if (size == 1000) __builtin_trap(); return memalign(16, size); }",
    );
    assert_ne!(crash, BUMP);
    let reason = Lab::new().front(&crash).unwrap_err().reason;
    assert!(reason.contains("signal"), "{reason}");
}

#[test]
fn a_front_whose_calloc_does_not_clear_is_unavailable() {
    let dirty = BUMP.replace(
        "return malloc(count * size);",
        // Affects only requests of the probe, because the loader's own would not survive this.
        "return memset(malloc(count * size), count == 1 && size % 2, count * size);",
    );
    assert_ne!(dirty, BUMP);
    let reason = Lab::new().front(&dirty).unwrap_err().reason;
    assert!(reason.contains("not zero"), "{reason}");
}

#[test]
fn glibc_serves_an_ordinary_program() {
    let lab = Lab::new();
    let served = probe::verify_in_target(&program::check("sh").unwrap(), &lab.glibc()).unwrap();
    assert!(served.ends_with("libc.so.6"), "{}", served.display());
}

#[test]
fn the_program_itself_does_not_run_while_it_is_verified() {
    let lab = Lab::new();
    let witness = lab.folder.path().join("witness");
    let source = format!(
        "#include <stdio.h>\n#include <stdlib.h>\nint main(void) {{ free(malloc(1)); \
         return fopen(\"{}\", \"w\") == 0; }}\n",
        witness.display()
    );
    let target = lab.compile("target", &source, &[]);
    probe::verify_in_target(&program(&target), &lab.glibc()).unwrap();
    assert!(!witness.exists());
    assert!(Command::new(&target).status().unwrap().success());
    assert!(witness.exists(), "the program writes the file when it runs");
}

#[test]
fn a_program_at_a_fixed_address_that_takes_malloc_s_address_is_served() {
    let mut lab = Lab::new();
    let source = "#include <stdlib.h>\nvoid *(*volatile take)(size_t) = malloc;\n\
                  int main(void) { return take(1) == 0; }\n";
    let target = lab.compile("target", source, &["-no-pie", "-fno-pie"]);
    let front = lab.front(BUMP).unwrap();
    let served = probe::verify_in_target(&program(&target), &front).unwrap();
    assert_eq!(Some(served), front.file);
}

#[test]
fn a_program_with_its_own_malloc_is_detected() {
    let mut lab = Lab::new();
    let source = format!("{BUMP}\nint main(void) {{ return malloc(1) == 0; }}\n");
    let target = lab.compile("target", &source, &["-rdynamic"]);
    let front = lab.front(BUMP).unwrap();
    for allocator in [&front, &lab.glibc()] {
        let reason = probe::verify_in_target(&program(&target), allocator).unwrap_err();
        assert!(matches!(reason, NotBound::OwnFunction(_)), "{reason}");
    }
}

#[test]
fn a_program_that_calls_jemalloc_s_own_functions_needs_an_allocator_that_has_them() {
    let mut lab = Lab::new();
    let own = "#include <stddef.h>\n#include <stdlib.h>\n\
               void *mallocx(size_t size, int flags) { return flags ? NULL : malloc(size); }\n";
    let other = lab.compile("libother.so", own, &["-shared", "-fPIC"]);
    let folder = lab.folder.path().display().to_string();
    let source = "#include <stdlib.h>\nvoid *mallocx(size_t, int);\n\
                  int main(void) { free(mallocx(1, 0)); return 0; }\n";
    let arguments = [other.to_str().unwrap(), &format!("-Wl,-rpath,{folder}")];
    let target = lab.compile("target", source, &arguments);
    let reason = probe::verify_in_target(&program(&target), &lab.glibc()).unwrap_err();
    let reason = reason.to_string();
    assert!(
        reason.contains("jemalloc's `mallocx`") && reason.contains("libother.so"),
        "{reason}"
    );
    let front = lab.front(&format!("{BUMP}\n{own}")).unwrap();
    let served = probe::verify_in_target(&program(&target), &front).unwrap();
    assert_eq!(Some(served), front.file);
}
