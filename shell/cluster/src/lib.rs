//! The part of a latchd server in a cluster: the election of a partition's primary, its records, etcd and the serving lease.
//!
//! An [`Election`](election::Election) decides which process serves a partition, without I/O and without a clock. [`Etcd`]
//! has its records. A [`Candidacy`] prepares a process and starts the thread of its election, which calls the server as a
//! [`Host`]. A [`Member`] is the part of one process, as all its threads share it.
//!
//! The package knows no items and no sockets of clients. `latchd-server` uses it with its feature `cluster`. Which guarantees a
//! cluster gives: docs/CLUSTER.md.

extern crate alloc;

mod answer_times;
mod candidacy;
mod candidate;
pub mod election;
mod endpoints;
mod etcd;
mod host;
mod member;
mod partitions;
mod random_id;
mod serving_lease;
mod settings;
#[cfg(feature = "verify")]
pub mod verify;

pub use answer_times::AnswerTimes;
pub use candidacy::{Candidacy, Standing};
pub use candidate::Over;
pub use etcd::{
    AuthorityError, AuthorityLogin, AuthorityOptions, AuthorityUrl, ENDPOINTS_MAX, Endpoint, Etcd,
    InTurn, LOGIN_BYTES_MAX, RECORDS_MAX, Unanswered,
};
pub use host::{Host, SpawnThread};
pub use member::Member;
pub use partitions::CheckKeys;
pub use random_id::random_id;
pub use serving_lease::ServingLease;
pub use settings::ClusterSettings;
