//! Puts items into a server before a measurement, and checks that they are there.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::load::{Load, Meter, Stop};
use crate::wire::Requests;
use crate::workload::{Fill, GetsSets};

/// How many connections fill a server, and how many requests each has at a time.
const FILLING: (usize, usize) = (4, 64);
/// The seed of the order in which they are read.
const LOOK_SEED: u64 = 1;

/// Stores the first `keys` keys.
///
/// # Errors
/// The server cannot be reached, or does not store one.
pub fn fill(address: SocketAddr, requests: &Requests, keys: u32) -> Result<()> {
    let (connections, depth) = FILLING;
    Load::open(address, connections, depth)?
        .acknowledging_at_once()
        .run(
            requests,
            &mut Fill::new(0..keys),
            Stop::AtTheEnd,
            &mut Meter::new(),
        )
}

/// Looks whether the first `keys` keys are all there, by asking for some of them in a random order.
///
/// # Errors
/// One is missing.
pub fn look(address: SocketAddr, requests: &Requests, keys: u32) -> Result<()> {
    const LOOKS: u64 = 10_000;
    let (connections, depth) = FILLING;
    Load::open(address, connections, depth)?
        .acknowledging_at_once()
        .run(
            requests,
            &mut GetsSets::gets(LOOK_SEED, keys),
            Stop::Requests(LOOKS),
            &mut Meter::new(),
        )
        .context("an item is missing without any reason")
}
