//! The functions of `stacks.cpp`, compiled for the tests.

use std::ffi::CString;
use std::process::Command;
use std::string::String;
use std::sync::OnceLock;

pub struct Library(usize);

type Function = extern "C" fn(extern "C" fn()) -> i32;

impl Library {
    /// The library; `None` without a C++ compiler.
    pub fn get() -> Option<&'static Library> {
        static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
        LIBRARY.get_or_init(Library::load).as_ref()
    }

    fn load() -> Option<Library> {
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/prof/unwind/tests/stacks.cpp"
        );
        let name = std::format!("mallard-stacks-{}.so", std::process::id());
        let file = std::env::temp_dir().join(name);
        let compiler = std::env::var("CXX").unwrap_or_else(|_| String::from("c++"));
        // Functions are bound when they are first called, through the linkage table.
        let options = [
            "-O2",
            "-g0",
            "-shared",
            "-fPIC",
            "-fplt",
            "-Wl,-z,lazy",
            "-Wl,-z,norelro",
        ];
        let status = Command::new(compiler)
            .args(options)
            .arg(source)
            .arg("-o")
            .arg(&file)
            .status();
        assert!(status.ok()?.success(), "{source} is compiled");
        let path = CString::new(file.to_str()?).ok()?;
        // SAFETY: a C string; the library has no constructors of its own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        std::fs::remove_file(&file).ok();
        assert!(!handle.is_null(), "what was compiled is loaded");
        Some(Library(handle.expose_provenance()))
    }

    /// Calls a function by its name.
    pub fn call(&self, name: &str, probe: extern "C" fn()) -> i32 {
        self.function(name)(probe)
    }

    pub fn function(&self, name: &str) -> Function {
        let name = CString::new(name).unwrap();
        let handle = std::ptr::with_exposed_provenance_mut(self.0);
        // SAFETY: the library stays loaded, and the name is a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        // SAFETY: all functions of the library have this type.
        unsafe { std::mem::transmute::<*mut libc::c_void, Function>(found) }
    }
}
