//! The names, types and help texts of `/metrics`, by their names in `stats`. Each metric has a line.

/// The Prometheus type of a metric.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
}
use Kind::{Counter, Gauge};

/// Name in `stats`, name in the exporter, type, and help.
#[rustfmt::skip]
pub(super) const OF_MEMCACHED: &[(&str, &str, Kind, &str)] = &[
    ("uptime", "uptime_seconds", Counter, "Seconds since the server started."),
    ("time", "time_seconds", Gauge, "Unix time of the server."),
    ("rusage_user", "process_user_cpu_seconds_total", Counter, "User processor time of the process, in seconds."),
    ("rusage_system", "process_system_cpu_seconds_total", Counter, "System processor time of the process, in seconds."),
    ("bytes_read", "read_bytes_total", Counter, "Bytes received from clients."),
    ("bytes_written", "written_bytes_total", Counter, "Bytes sent to clients."),
    ("curr_connections", "current_connections", Gauge, "Open connections."),
    ("max_connections", "max_connections", Gauge, "Maximum number of open connections (-c)."),
    ("total_connections", "connections_total", Counter, "Accepted connections."),
    ("rejected_connections", "connections_rejected_total", Counter, "Connections closed because of the limit -c."),
    ("conn_yields", "connections_yielded_total", Counter, "Times a connection yielded to other connections."),
    ("listen_disabled_num", "connections_listener_disabled_total", Counter, "Times the server stopped accepting connections."),
    ("accepting_conns", "accepting_connections", Gauge, "1 if the server accepts connections, else 0."),
    ("bytes", "current_bytes", Gauge, "Bytes used by items."),
    ("limit_maxbytes", "limit_bytes", Gauge, "Maximum bytes of items (-m)."),
    ("curr_items", "current_items", Gauge, "Stored items."),
    ("total_items", "items_total", Counter, "Items stored since the start."),
    ("evictions", "items_evicted_total", Counter, "Items evicted to free memory."),
    ("reclaimed", "items_reclaimed_total", Counter, "Expired items removed."),
    ("store_too_large", "item_too_large_total", Counter, "Refused stores of values larger than -I."),
    ("store_no_memory", "item_no_memory_total", Counter, "Refused stores without free memory."),
    ("crawler_items_checked", "lru_crawler_items_checked_total", Counter, "Items checked by the expiry sweep."),
    ("crawler_reclaimed", "lru_crawler_reclaimed_total", Counter, "Expired items removed by the sweep."),
    ("direct_reclaims", "direct_reclaims_total", Counter, "Always 0 here."),
    ("lru_crawler_starts", "lru_crawler_starts_total", Counter, "Always 0 here."),
    ("moves_to_cold", "lru_crawler_moves_to_cold_total", Counter, "Always 0 here."),
    ("moves_to_warm", "lru_crawler_moves_to_warm_total", Counter, "Always 0 here."),
    ("moves_within_lru", "lru_crawler_moves_within_lru_total", Counter, "Always 0 here."),
];

/// `memcached_commands_total`: name in `stats`, command and status.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("get_hits", "get", "hit"),
    ("get_misses", "get", "miss"),
    ("delete_hits", "delete", "hit"),
    ("delete_misses", "delete", "miss"),
    ("incr_hits", "incr", "hit"),
    ("incr_misses", "incr", "miss"),
    ("decr_hits", "decr", "hit"),
    ("decr_misses", "decr", "miss"),
    ("cas_hits", "cas", "hit"),
    ("cas_misses", "cas", "miss"),
    ("cas_badval", "cas", "badval"),
    ("touch_hits", "touch", "hit"),
    ("touch_misses", "touch", "miss"),
    ("cmd_flush", "flush", "hit"),
];

/// The one class of items, `slab="1"`: name in `stats items` or `stats slabs`, name in the exporter, type,
/// and help.
#[rustfmt::skip]
pub(super) const OF_CLASS: &[(&str, &str, Kind, &str)] = &[
    ("number", "current_items", Gauge, "Stored items."),
    ("age", "items_age_seconds", Gauge, "Age of the next item to evict, in seconds."),
    ("crawler_reclaimed", "items_crawler_reclaimed_total", Counter, "Expired items removed by the sweep."),
    ("evicted", "items_evicted_total", Counter, "Evicted items."),
    ("evicted_nonzero", "items_evicted_nonzero_total", Counter, "Evicted items with an exptime."),
    ("evicted_time", "items_evicted_time_seconds", Gauge, "Seconds between last access and eviction of the last evicted item."),
    ("evicted_unfetched", "items_evicted_unfetched_total", Counter, "Evicted items that were never read."),
    ("expired_unfetched", "items_expired_unfetched_total", Counter, "Expired items that were never read."),
    ("outofmemory", "items_outofmemory_total", Counter, "Refused stores without free memory."),
    ("reclaimed", "items_reclaimed_total", Counter, "Expired items removed."),
    ("tailrepairs", "items_tailrepairs_total", Counter, "Always 0 here."),
    ("moves_to_cold", "items_moves_to_cold", Counter, "Always 0 here."),
    ("moves_to_warm", "items_moves_to_warm", Counter, "Always 0 here."),
    ("moves_within_lru", "items_moves_within_lru", Counter, "Always 0 here."),
    ("number_hot", "hot_items", Gauge, "Always 0 here."),
    ("number_warm", "warm_items", Gauge, "Always 0 here."),
    ("number_cold", "cold_items", Gauge, "All items."),
    ("number_temp", "temporary_items", Gauge, "Always 0 here."),
    ("age_hot", "hot_age_seconds", Gauge, "Always 0 here."),
    ("age_warm", "warm_age_seconds", Gauge, "Always 0 here."),
    ("chunk_size", "chunk_size_bytes", Gauge, "Always 1 here: a chunk is one byte."),
    ("chunks_per_page", "chunks_per_page", Gauge, "Bytes allocated for items."),
    ("total_pages", "current_pages", Gauge, "Always 1 here."),
    ("total_chunks", "current_chunks", Gauge, "Bytes allocated for items."),
    ("used_chunks", "chunks_used", Gauge, "Bytes used by items."),
    ("free_chunks", "chunks_free", Gauge, "Allocated bytes that no item uses."),
    ("free_chunks_end", "chunks_free_end", Gauge, "Always 0 here."),
    ("mem_requested", "mem_requested_bytes", Gauge, "Bytes used by items."),
];

/// `memcached_slab_lru_hits_total`: name in `stats items`, and the LRU.
pub(super) const LRU_HITS: &[(&str, &str)] = &[
    ("hits_to_hot", "hot"),
    ("hits_to_warm", "warm"),
    ("hits_to_cold", "cold"),
    ("hits_to_temp", "temporary"),
];

/// `memcached_slab_commands_total`: name in `stats slabs`, command and status.
pub(super) const CLASS_COMMANDS: &[(&str, &str, &str)] = &[
    ("get_hits", "get", "hit"),
    ("delete_hits", "delete", "hit"),
    ("incr_hits", "incr", "hit"),
    ("decr_hits", "decr", "hit"),
    ("cas_hits", "cas", "hit"),
    ("cas_badval", "cas", "badval"),
    ("touch_hits", "touch", "hit"),
];

/// Metrics of latchd only: name in `stats`, name here, type, and help. A core's statistic needs no line here: it has its name in
/// `stats`, and its help from its declaration (`latchd_protocol::stats`).
#[rustfmt::skip]
pub(super) const OF_LATCHD: &[(&str, &str, Kind, &str)] = &[
    ("cmd_lock", "lock_requests_total", Counter, "Lock requests that were answered; those that wait now are not."),
    ("cluster_primary", "cluster_primary", Gauge, "1 while the server is the primary of its partition and serves."),
    ("cluster_term", "cluster_term", Gauge, "Term of the server; 0 before it is primary."),
    ("cluster_resumed", "cluster_resumed_total", Counter, "Suspensions after which the server went on in the same term."),
    ("cluster_unanswered", "cluster_unanswered_total", Counter, "Requests to etcd without an answer."),
    ("cluster_answered", "cluster_answered_total", Counter, "Requests to etcd with an answer."),
    ("sessions", "sessions", Gauge, "Open sessions."),
    ("sessions_attached", "sessions_attached", Gauge, "Sessions with a connection."),
    ("sessions_opened", "sessions_opened_total", Counter, "Sessions opened."),
    ("sessions_resumed", "sessions_resumed_total", Counter, "Sessions resumed by another connection."),
    ("sessions_expired", "sessions_expired_total", Counter, "Sessions ended because their client was silent for too long."),
    ("sessions_ended", "sessions_ended_total", Counter, "Sessions ended by their client."),
    ("session_misses", "session_misses_total", Counter, "Requests for a session that does not exist."),
    ("session_refusals", "session_refusals_total", Counter, "Refused requests for a session."),
    ("locks_withheld_s", "locks_withheld_seconds", Gauge, "Time until locks are granted after a restart; 0 if they are granted."),
    ("read_buf_oom", "requests_no_memory_total", Counter, "Connections closed because memory for incomplete requests ran out."),
    ("response_obj_oom", "answers_no_memory_total", Counter, "Connections closed because memory for unread replies ran out."),
    ("auth_cmds", "authentications_total", Counter, "Login attempts."),
    ("auth_errors", "authentication_failures_total", Counter, "Failed login attempts."),
    ("threads", "threads", Gauge, "Threads serving clients."),
    ("log_dropped", "log_dropped_total", Counter, "Log lines dropped."),
    ("server_cert_not_after", "certificate_not_after_timestamp_seconds", Gauge, "Unix time at which the server's certificate chain expires; only with -Z."),
];

/// The process metrics of Prometheus' client libraries: name, type, and help.
#[rustfmt::skip]
pub(super) const OF_PROCESS: [(&str, Kind, &str); 7] = [
    ("cpu_seconds_total", Counter, "User and system processor time in seconds."),
    ("start_time_seconds", Gauge, "Start time of the process as Unix time in seconds."),
    ("resident_memory_bytes", Gauge, "Resident memory in bytes."),
    ("virtual_memory_bytes", Gauge, "Virtual memory in bytes."),
    ("threads", Gauge, "Threads of the process."),
    ("open_fds", Gauge, "Open file descriptors."),
    ("max_fds", Gauge, "Maximum number of open file descriptors."),
];
