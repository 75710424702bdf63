//! Tests of the option reader.
