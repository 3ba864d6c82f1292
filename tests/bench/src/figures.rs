//! Figures, from single measurements to tables and plots.

pub(crate) mod histogram;
pub(crate) mod plot;
pub(crate) mod statistics;
pub(crate) mod table;
