//! Tests of all layers together.

mod faults;
