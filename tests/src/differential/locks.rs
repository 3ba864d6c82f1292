//! Binary.
