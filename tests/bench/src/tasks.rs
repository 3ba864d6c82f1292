//! The tasks, one a module.

pub(crate) mod hits;
pub(crate) mod instructions;
pub(crate) mod memory;
pub(crate) mod pauses;
pub(crate) mod speed;
