//! The tests of latchd that are not beside the code they test.

mod corpus;
mod differential;
mod linear;
mod properties;
mod rows;
mod simulation;
mod stores;
mod transcripts;
mod wording;

/// A number from the environment, or else another.
fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number"))
    })
}
