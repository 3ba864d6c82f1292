//! The result of a row of a speed run: each server alone, and against its rival.
//!
//! The rival is the fastest memcached of the row, or, where none takes part, the fastest of the
//! others; for each mix separately.

pub(crate) mod report;

use serde::Serialize;

use crate::figures::statistics::Spread;
use crate::server::cores::Cores;
use crate::server::peer::{Kind, Peer};
use crate::tasks::speed::Sample;
use crate::tasks::speed::rows::{Mix, Row};

/// How much of a processor others may have had, and how much of the time the load may have waited for
/// one, before a row is marked.
const DISTURBED_MAX: f64 = 0.02;

/// Which part a server has in a comparison.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Whose {
    /// The latchd that is measured.
    Ours,
    /// A peer that is no memcached; another latchd may be one.
    Other,
    /// A peer that is to be beaten before others.
    Memcached,
}

impl Whose {
    /// Of the peer at this place: ours is the first.
    pub(crate) fn new(place: usize, peer: &Peer) -> Self {
        match peer.kind {
            _ if place == 0 => Self::Ours,
            Kind::Memcached => Self::Memcached,
            Kind::Latchd | Kind::Yrmcds => Self::Other,
        }
    }
}

/// A server in a row.
#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    pub(crate) label: String,
    #[serde(skip)]
    whose: Whose,
    #[serde(skip)]
    mix: Mix,
    operations_per_second: Spread,
    cpu_us_per_operation: Spread,
    load_cpu_us_per_operation: Spread,
    server_busy: Spread,
    load_busy: Spread,
    server_waited: Spread,
    load_waited: Spread,
    others_busy: Spread,
    p50_us: Spread,
    p99_us: Spread,
    p99_9_us: Spread,
    /// `None` where perf cannot count.
    syscalls_per_operation: Option<f64>,
    rss_bytes: u64,
    /// Ratios to the one to beat; `None` for that one itself.
    against: Option<Against>,
    rounds: Vec<Sample>,
}

/// A server against the one to beat, by rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Against {
    operations: Spread,
    cpu: Spread,
    p50: Spread,
}

/// All servers of a row.
#[derive(Debug, Serialize)]
pub(crate) struct Standings {
    pub(crate) row: &'static str,
    about: &'static str,
    dialect: &'static str,
    value_bytes: usize,
    keys: u32,
    threads: usize,
    cores: String,
    aim: Option<f64>,
    servers: Vec<Standing>,
    /// The cost of locks against gets, for each server of a row that has both.
    locks_against_gets: Vec<LocksAgainstGets>,
}

#[derive(Debug, Serialize)]
struct LocksAgainstGets {
    label: String,
    operations: Spread,
    cpu: Spread,
}

impl Standing {
    pub(crate) fn new(
        label: String,
        whose: Whose,
        mix: Mix,
        rounds: Vec<Sample>,
        syscalls_per_operation: Option<f64>,
        rss_bytes: u64,
    ) -> Self {
        let spread = |part: fn(&Sample) -> f64| {
            Spread::of(rounds.iter().map(part)).expect("there is at least one round")
        };
        Self {
            label,
            whose,
            mix,
            operations_per_second: spread(|s| s.operations_per_second),
            cpu_us_per_operation: spread(|s| s.cpu_us_per_operation),
            load_cpu_us_per_operation: spread(|s| s.load_cpu_us_per_operation),
            server_busy: spread(|s| s.server_busy),
            load_busy: spread(|s| s.load_busy),
            server_waited: spread(|s| s.server_waited),
            load_waited: spread(|s| s.load_waited),
            others_busy: spread(|s| s.others_busy),
            p50_us: spread(|s| s.p50_us),
            p99_us: spread(|s| s.p99_us),
            p99_9_us: spread(|s| s.p99_9_us),
            syscalls_per_operation,
            rss_bytes,
            against: None,
            rounds,
        }
    }

    /// The ratios of one part of the rounds of two servers.
    fn pairs(&self, other: &Self, part: fn(&Sample) -> f64) -> Spread {
        let values = |standing: &Self| standing.rounds.iter().map(part).collect::<Vec<_>>();
        Spread::of_pairs(&values(self), &values(other)).expect("there is at least one round")
    }

    /// Against another one.
    fn against(&self, other: &Self) -> Against {
        Against {
            operations: self.pairs(other, |s| s.operations_per_second),
            cpu: self.pairs(other, |s| s.cpu_us_per_operation),
            p50: self.pairs(other, |s| s.p50_us),
        }
    }

    /// Whether the figures are in doubt. If a server's own threads wait for each other's processor,
    /// that is no disturbance.
    fn is_disturbed(&self) -> bool {
        self.others_busy.median > DISTURBED_MAX || self.load_waited.median > DISTURBED_MAX
    }
}

impl Standings {
    pub(crate) fn new(row: &Row, cores: &Cores, mut standings: Vec<Standing>) -> Self {
        let ratios: Vec<_> = standings
            .iter()
            .map(|standing| {
                let beaten = to_beat(&standings, standing.mix)?;
                (beaten.label != standing.label).then(|| standing.against(beaten))
            })
            .collect();
        for (standing, against) in standings.iter_mut().zip(ratios) {
            standing.against = against;
        }
        Self {
            row: row.name,
            about: row.about,
            dialect: row.dialect.name(),
            value_bytes: row.value_bytes,
            keys: row.keys,
            threads: row.threads,
            cores: cores.to_string(),
            aim: row.aim,
            locks_against_gets: locks_against_gets(&standings),
            servers: standings,
        }
    }
}

/// The one of a mix that the others are measured by; none where latchd is alone.
fn to_beat(standings: &[Standing], mix: Mix) -> Option<&Standing> {
    standings
        .iter()
        .filter(|standing| standing.mix == mix && standing.whose != Whose::Ours)
        .max_by(|one, other| {
            let speed = |s: &Standing| s.operations_per_second.median;
            let by_speed = speed(one).total_cmp(&speed(other));
            one.whose.cmp(&other.whose).then(by_speed)
        })
}

/// Servers of which both gets and locks were measured.
fn locks_against_gets(standings: &[Standing]) -> Vec<LocksAgainstGets> {
    let locks = standings.iter().filter(|s| s.mix == Mix::Locks);
    let pair = |lock: &Standing| {
        let (server, _) = lock.label.split_once(',')?;
        let get = standings.iter().find(|s| {
            s.mix == Mix::Gets
                && s.label
                    .split_once(',')
                    .is_some_and(|(name, _)| name == server)
        })?;
        let Against {
            operations, cpu, ..
        } = lock.against(get);
        Some(LocksAgainstGets {
            label: server.to_owned(),
            operations,
            cpu,
        })
    };
    locks.filter_map(pair).collect()
}

#[cfg(test)]
mod tests;
