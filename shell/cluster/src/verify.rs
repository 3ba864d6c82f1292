//! A record of an election's authority, in memory: etcd as models and simulations see it.

use std::convert::Infallible;

use crate::election::{Answer, Authority, Found};

/// The record of a partition.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Register {
    /// The record; `None` before the first write, and once it is deleted.
    pub found: Option<Found>,
    /// The number of writes so far, which is the revision of the last one.
    pub writes: u64,
}

impl Authority for Register {
    type Error = Infallible;

    fn read(&mut self, _: &str) -> Result<Option<Found>, Infallible> {
        Ok(self.found.clone())
    }

    fn swap(
        &mut self,
        _: &str,
        expected: Option<&Found>,
        value: &str,
    ) -> Result<Answer, Infallible> {
        if self.found.as_ref() != expected {
            return Ok(Answer::Found(self.found.clone()));
        }
        self.writes += 1;
        let (revision, value) = (self.writes, value.to_owned());
        self.found = Some(Found { revision, value });
        Ok(Answer::Swapped { revision })
    }
}
