//! Figures, from single measurements to tables and plots.

pub(crate) mod plot;
pub(crate) mod statistics;
