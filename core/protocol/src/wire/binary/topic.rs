//! The topics of Stat.

use crate::command::ScanCursor;
use crate::stats::StatsTopic;

/// The topic of a Stat; `None` if it does not exist.
///
/// memcached compares only the first bytes with `reset` and `settings`, so `resets` resets too; and
/// it knows `conns` in text only. Source: 1.6.45 `proto_bin.c`, `process_bin_stat`.
pub(super) fn stats_topic(topic: &[u8]) -> Option<StatsTopic> {
    match topic {
        b"" => Some(StatsTopic::General),
        b"items" => Some(StatsTopic::Items),
        b"slabs" => Some(StatsTopic::Slabs),
        b"sizes" => Some(StatsTopic::Sizes),
        b"locks" => Some(StatsTopic::Locks(ScanCursor::default())),
        b"detail on" => Some(StatsTopic::DetailOn),
        b"detail off" => Some(StatsTopic::DetailOff),
        b"detail dump" => Some(StatsTopic::Detail(ScanCursor::default())),
        _ if topic.starts_with(b"settings") => Some(StatsTopic::Settings),
        _ => None,
    }
}
