//! What the server counts of its connections and turns.
//!
//! Uses `config`, `os` and `sync`.

pub(crate) mod connection_stats;
pub(crate) mod turn_times;
