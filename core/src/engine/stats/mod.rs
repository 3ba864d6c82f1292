//! Statistics that a core collects for reports: counts by prefix, and the locks in force.
//!
//! No rule of items, locks or wins reads them.

pub(in crate::engine) mod detail;
mod lock_lines;
