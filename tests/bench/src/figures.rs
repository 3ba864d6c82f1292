//! Figures, from single measurements to what a person looks at.

pub(crate) mod histogram;
pub(crate) mod plot;
pub(crate) mod statistics;
pub(crate) mod table;
