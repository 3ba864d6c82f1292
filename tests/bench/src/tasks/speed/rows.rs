//! The workloads of a speed run: the rows of its table.
//!
//! Keys have 32 bytes, of ten requests one is a set and nine are gets that hit, unless a row says
//! otherwise. An aim is the goal of latchd, in operations per second against the faster memcached
//! of the same run.

use latchd_load::wire::Dialect;

use crate::server::peer::Peer;

/// How many keys most rows use.
const KEYS: u32 = 50_000;
/// How many connections most rows use.
pub(crate) const CONNECTIONS: usize = 50;

/// One workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Its name in `--row`.
    pub(crate) name: &'static str,
    /// Its special feature.
    pub(crate) about: &'static str,
    pub(crate) dialect: Dialect,
    pub(crate) shape: Shape,
    pub(crate) mixes: &'static [Mix],
    pub(crate) value_bytes: usize,
    pub(crate) keys: u32,
    /// Of the server.
    pub(crate) threads: usize,
    /// The least ratio to reach.
    pub(crate) aim: Option<f64>,
}

/// How connections are used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    /// They stay open, each with `depth` requests at a time; `idle` more are silent.
    Open {
        connections: usize,
        depth: usize,
        idle: usize,
    },
    /// They are opened for one request each, `at_once` at a time.
    Churn { at_once: usize },
}

/// The mix of requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mix {
    GetsSets,
    Gets,
    Locks,
}

impl Mix {
    /// The suffix of a server's name where a row has several.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GetsSets => "get and set",
            Self::Gets => "get",
            Self::Locks => "lock, unlock",
        }
    }
}

impl Row {
    /// Whether a server takes part.
    pub(crate) fn admits(&self, peer: &Peer) -> bool {
        let has_commands = !self.mixes.contains(&Mix::Locks) || peer.has_locks();
        peer.speaks(self.dialect) && has_commands
    }
}

const OPEN: Shape = Shape::Open {
    connections: CONNECTIONS,
    depth: 1,
    idle: 0,
};
const PIPELINED: Shape = Shape::Open {
    connections: CONNECTIONS,
    depth: 16,
    idle: 0,
};

const B: Row = Row {
    name: "b",
    about: "50 connections, one request at a time",
    dialect: Dialect::Meta,
    shape: OPEN,
    mixes: &[Mix::GetsSets],
    value_bytes: 100,
    keys: KEYS,
    threads: 1,
    aim: Some(1.2),
};
const C100: Row = Row {
    name: "c100",
    about: "50 connections, 16 requests at a time",
    shape: PIPELINED,
    aim: Some(1.6),
    ..B
};

/// The rows of `speed`.
pub(crate) const SPEED: &[Row] = &[
    Row {
        name: "a",
        about: "1 connection, one request at a time",
        shape: Shape::Open {
            connections: 1,
            depth: 1,
            idle: 0,
        },
        aim: Some(0.95),
        ..B
    },
    B,
    Row {
        name: "b-classic",
        dialect: Dialect::Classic,
        aim: None,
        ..B
    },
    Row {
        name: "b-binary",
        dialect: Dialect::Binary,
        ..B
    },
    Row {
        name: "c10",
        value_bytes: 10,
        aim: Some(1.5),
        ..C100
    },
    C100,
    Row {
        name: "c4k",
        value_bytes: 4096,
        aim: Some(1.25),
        ..C100
    },
    Row {
        name: "c-classic",
        dialect: Dialect::Classic,
        aim: Some(1.5),
        ..C100
    },
    Row {
        name: "d",
        about: "connect, one get, close; 50 at a time",
        shape: Shape::Churn {
            at_once: CONNECTIONS,
        },
        mixes: &[Mix::Gets],
        aim: Some(0.95),
        ..B
    },
    Row {
        name: "e",
        about: "as b, beside 1,000 silent connections",
        shape: Shape::Open {
            connections: CONNECTIONS,
            depth: 1,
            idle: 1_000,
        },
        aim: Some(1.1),
        ..B
    },
    Row {
        name: "1m",
        about: "as c100, with a million keys",
        keys: 1_000_000,
        aim: Some(1.3),
        ..C100
    },
    Row {
        name: "b-t2",
        about: "as b, the server with 2 threads",
        threads: 2,
        aim: Some(1.1),
        ..B
    },
    Row {
        name: "c100-t2",
        about: "as c100, the server with 2 threads",
        threads: 2,
        aim: Some(1.25),
        ..C100
    },
    Row {
        name: "c4k-t2",
        about: "as c4k, the server with 2 threads",
        value_bytes: 4096,
        threads: 2,
        aim: Some(1.0),
        ..C100
    },
];

/// The rows of `locks`: the cost of a lock beside a get of the same form, in the same rounds.
pub(crate) const LOCKS: &[Row] = &[
    Row {
        name: "lock-1",
        about: "50 connections, each with keys of its own, one request at a time",
        dialect: Dialect::Classic,
        mixes: &[Mix::Gets, Mix::Locks],
        aim: None,
        ..B
    },
    Row {
        name: "lock-16",
        about: "50 connections, each with keys of its own, 16 requests at a time",
        dialect: Dialect::Classic,
        shape: PIPELINED,
        mixes: &[Mix::Gets, Mix::Locks],
        aim: None,
        ..B
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows_differ() {
        let mut names: Vec<_> = SPEED.iter().chain(LOCKS).map(|row| row.name).collect();
        names.sort_unstable();
        let rows = names.len();
        names.dedup();
        assert_eq!(names.len(), rows);
    }
}
