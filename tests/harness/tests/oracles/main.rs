//! The core beside specifications that share no code with it: engines beside the oracle, and stores
//! beside lists of their items. They need nothing but the harness, so they are quick to build with
//! another core.

mod drawn;
mod properties;
mod stores;

/// A number from the environment, or else another.
fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number"))
    })
}
