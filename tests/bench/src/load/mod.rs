//! Load that only measurements beside peers use: short connections, and a paced client beside the load.

pub(crate) mod churn;
pub(crate) mod innocent;

#[cfg(test)]
mod tests;
