//! Flags of memcached that have no effect here. They are accepted with one warning.

/// Flags that tune parts which latchd does not have: slab classes, LRU threads, an optional CAS.
#[derive(Debug, clap::Args)]
pub(super) struct Ignored {
    #[arg(short = 'L', long, hide = true)]
    enable_largepages: bool,
    #[arg(short = 'C', long, hide = true)]
    disable_cas: bool,
    #[arg(short = 'f', long, hide = true)]
    slab_growth_factor: Option<String>,
    #[arg(short = 'n', long, hide = true)]
    slab_min_size: Option<String>,
    /// latchd bounds a turn by time instead.
    #[arg(short = 'R', long, hide = true)]
    max_reqs_per_event: Option<String>,
    #[arg(short = 'N', long, hide = true)]
    napi_ids: Option<String>,
}

/// memcached's options of `-o` that have no effect here, with and without the prefix `no_`.
const OPTIONS: &[&str] = &[
    "chunked_items",
    "drop_privileges",
    "hash_algorithm",
    "hashexpand",
    "hashpower",
    "hot_lru_pct",
    "hot_max_factor",
    "inline_ascii_resp",
    "lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "modern",
    "relaxed_privileges",
    "slab_automove",
    "slab_automove_freeratio",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_chunk_max",
    "slab_reassign",
    "slab_sizes",
    "sock_cookie_id",
    "tail_repair_time",
    "temporary_ttl",
    "track_sizes",
    "warm_lru_pct",
    "warm_max_factor",
    "worker_logbuf_size",
];

/// Whether an option of `-o` is one of memcached's that has no effect here.
pub(super) fn is_ignored(option: &str) -> bool {
    OPTIONS.contains(&option.strip_prefix("no_").unwrap_or(option))
}

impl Ignored {
    /// The flags on the command line.
    pub(super) fn given(&self) -> Vec<String> {
        let Self {
            enable_largepages,
            disable_cas,
            slab_growth_factor,
            slab_min_size,
            max_reqs_per_event,
            napi_ids,
        } = self;
        [
            ("-L", *enable_largepages),
            ("-C", *disable_cas),
            ("-f", slab_growth_factor.is_some()),
            ("-n", slab_min_size.is_some()),
            ("-R", max_reqs_per_event.is_some()),
            ("-N", napi_ids.is_some()),
        ]
        .into_iter()
        .filter(|(_, is_given)| *is_given)
        .map(|(flag, _)| flag.to_owned())
        .collect()
    }
}
