//! A cluster: the real elections and the real core of five processes, etcd, and clients, all from one seed.
//!
//! Two partitions have three and two processes. Each process is an [`Election`] and, once it is primary, a [`Server`]
//! behind a gate, which is asked as in the shell: before a batch is executed and before anything is sent, at once or
//! deferred. Twenty clients are the client library's own [`Grants`] locks, which believe by `H`; twenty others write and
//! read items. Time is virtual, and every clock has a rate of its own, at most 5 % off.
//!
//! A run is a series of episodes, with calm between them. Most are rough: processes are killed, paused, stuck, told to
//! leave or cut off; records are deleted or restored; etcd is away; transactions and answers are lost, late and doubled.
//! In the others etcd is away, and nothing else goes wrong.
//!
//! - X1: At most one process holds a partition, and no reply leaves a process while another one holds the partition.
//! - X2: While a client believes in a lock, no other client believes in it, and no other process executes or sends.
//! - X3: The fences that clients hear of a key rise over all terms, and so do the CAS numbers.
//! - X4: A read returns an item that the same process has stored, and none older than one that was acknowledged.
//! - X5: A partition is served at most T + 1 s after the last fault, by the slowest clock.
//! - X6: An outage of etcd shorter than H - C - heartbeat, less the time of an answer, suspends no process. After a longer
//!   one the same process goes on, with its items.
//!
//! One assumption: a client learns that a process was killed before the next one starts in the same state directory.
//!
//! [`Grants`]: latchd_client_core::Grants
//! [`Election`]: latchd_cluster::election::Election
//! [`Server`]: latchd_core::Server

mod cache;
mod clock;
mod etcd;
mod faults;
mod judge;
mod locker;
mod network;
mod process;
mod serving;
mod world;

pub(super) use world::World;

/// The partition of each process.
const PARTITION_OF: [usize; 5] = [0, 0, 0, 1, 1];

/// The number of partitions.
const PARTITIONS: usize = 2;

/// The number of clients of each kind.
const CLIENTS: usize = 20;

/// The number of keys with locks in a partition.
const LOCKS: u64 = 5;

/// The threads of a process that answer to the election.
const WORKERS: usize = 2;

/// Microseconds in a millisecond and in a second.
const MS: u64 = 1_000;
const S: u64 = 1_000_000;
