//! The server's counters of connections and turns.
//!
//! Uses `config`, `os` and `sync`.

pub(crate) mod connection_stats;
pub(crate) mod turn_times;
