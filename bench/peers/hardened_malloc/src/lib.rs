//! Nothing here: the build script makes the library.
