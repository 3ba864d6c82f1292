//! Load on a server that speaks a protocol of memcached, and its figures: `latchd bench` and latchd-bench use it.
//!
//! - A figure never comes from a wrong reply: every reply is read whole and judged.
//!
//! Linux only (epoll).

// Figures of measurements: none of them has more digits than a float keeps.
#![allow(clippy::cast_precision_loss)]

pub mod filling;
pub mod latencies;
mod load;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
pub mod table;
pub mod wire;
pub mod workload;
pub mod zipf;

/// The readme: its code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;

pub use load::{Budget, Load, Meter, PATIENCE, Stop, Stream, Workload, read, wait};
