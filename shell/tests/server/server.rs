//! A server in this process, over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use latchd_server::{Config, ListenAddress, Server, UnixSocket};

use crate::client::{TestClient, address, start};

#[test]
fn a_server_answers_and_ends() {
    let server = start(|_| {});
    let address = address(&server);
    let mut client = TestClient::connect(address);
    client.send("set k 5 0 5\r\nhello\r\nget k\r\n");
    assert_eq!(client.line(), "STORED");
    assert_eq!(client.line(), "VALUE k 5 5");
    assert_eq!(client.line(), "hello");
    assert_eq!(client.line(), "END");
    server.shutdown();
    assert_eq!(client.line(), "", "the connection is closed");
    assert_eq!(
        std::net::TcpStream::connect(address).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

#[test]
fn pending_output_stops_reading() {
    const VALUE_BYTES: usize = 100_000;
    const ROUNDS: usize = 640;
    let server = start(|_| {});
    let mut client = TestClient::connect(address(&server));
    let value = "v".repeat(VALUE_BYTES);
    let round = format!("set k 0 0 {VALUE_BYTES} noreply\r\n{value}\r\nmg k v\r\n").into_bytes();
    let requests = round.repeat(ROUNDS);

    client.socket().set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut stuck_since = Instant::now();
    while sent < requests.len() && stuck_since.elapsed() < Duration::from_millis(300) {
        match client.socket().write(&requests[sent..]) {
            Ok(bytes) => (sent, stuck_since) = (sent + bytes, Instant::now()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(sent < requests.len(), "the server reads on");
    let mut other = TestClient::connect(address(&server));
    let (read, written) = (other.stat("bytes_read"), other.stat("bytes_written"));
    println!("stuck after {sent} bytes; {read} read, {written} written");
    assert!(
        written.parse::<usize>().unwrap() < 16 << 20,
        "what the two sockets can hold"
    );

    // Once the client reads, everything is answered.
    client.socket().set_nonblocking(false).unwrap();
    let begun = sent.div_ceil(round.len());
    let mut socket = client.socket().try_clone().unwrap();
    let rest = requests[sent..begun * round.len()].to_vec();
    let sender = std::thread::spawn(move || socket.write_all(&rest).unwrap());
    let answer = format!("VA {VALUE_BYTES}\r\n{value}\r\n").into_bytes();
    for _ in 0..begun {
        assert!(client.bytes(answer.len()) == answer);
    }
    sender.join().unwrap();
    assert_eq!(client.ask("mn"), "MN");
}

#[test]
fn small_answers_wait_for_the_reader() {
    const VALUE_BYTES: usize = 7_000;
    const REQUESTS: usize = 2_000;
    let server = start(|config| config.threads = NonZeroUsize::MIN);
    let mut client = TestClient::connect(address(&server));
    let mut other = TestClient::connect(address(&server));
    let value = "v".repeat(VALUE_BYTES);
    client.send(format!("set k 0 0 {VALUE_BYTES}\r\n{value}\r\n"));
    assert_eq!(client.line(), "STORED");
    for number in 0..REQUESTS {
        client.send(format!("mg k v O{number}\r\n"));
        // It has had its turn when the other is answered: there is one answer a turn.
        assert_eq!(other.ask("mn"), "MN");
    }
    let written: usize = other.stat("bytes_written").parse().unwrap();
    assert!(
        written < REQUESTS * VALUE_BYTES,
        "the sockets hold all of it"
    );
    for number in 0..REQUESTS {
        assert_eq!(client.line(), format!("VA {VALUE_BYTES} O{number}"));
        assert!(client.bytes(VALUE_BYTES) == value.as_bytes());
        assert_eq!(client.line(), "");
    }
    assert_eq!(client.ask("mn"), "MN");
}

#[test]
fn connections_come_and_go_and_leave_nothing() {
    let server = start(|config| config.threads = NonZeroUsize::new(2).unwrap());
    let mut watcher = TestClient::connect(address(&server));
    for round in 0..1_000 {
        let mut client = TestClient::connect(address(&server));
        if round % 2 == 0 {
            assert_eq!(client.ask("mn"), "MN");
        }
    }
    // The last one may still wait to be accepted when all others are closed.
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let total = watcher.stat("total_connections");
        let current = watcher.stat("curr_connections");
        if (current.as_str(), total.as_str()) == ("1", "1001") {
            break;
        }
        assert!(Instant::now() < deadline, "{current} of {total}");
    }
}

#[test]
fn a_client_past_the_address_limit_is_closed() {
    let path = std::env::temp_dir().join(format!("latchd-per-peer-{}", std::process::id()));
    let server = start(|config| {
        config.connections_per_peer_max = NonZeroUsize::new(1);
        config.reject_past_limit = false;
        config.unix_socket = Some(UnixSocket {
            path: path.clone(),
            mode: 0o600,
        });
    });
    let mut first = TestClient::connect(address(&server));
    assert_eq!(first.ask("mn"), "MN");
    let mut second = TestClient::connect(address(&server));
    assert_eq!(second.rest(), b"ERROR Too many open connections\r\n");
    assert_eq!(first.stat("rejected_connections"), "1");
    let mut others = [(); 2].map(|()| TestClient::connect_unix(&path));
    assert_eq!(others.each_mut().map(|other| other.ask("mn")), ["MN", "MN"]);
    assert_eq!(first.ask("quit"), "");
    let deadline = Instant::now() + Duration::from_secs(5);
    while others[0].stat("curr_connections") != "2" {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(TestClient::connect(address(&server)).ask("mn"), "MN");
}

#[test]
fn a_client_past_the_limit_is_closed() {
    let server = start(|config| config.connections_max = 2);
    let mut first = TestClient::connect(address(&server));
    let mut second = TestClient::connect(address(&server));
    assert_eq!(
        (first.ask("mn"), second.ask("mn")),
        ("MN".into(), "MN".into())
    );
    let mut third = TestClient::connect(address(&server));
    assert_eq!(third.rest(), b"ERROR Too many open connections\r\n");
    assert_eq!(first.stat("rejected_connections"), "1");
    assert_eq!(second.ask("quit"), "");
    let deadline = Instant::now() + Duration::from_secs(5);
    while first.stat("curr_connections") != "1" {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(TestClient::connect(address(&server)).ask("mn"), "MN");
}

#[test]
fn a_client_past_the_limit_can_wait() {
    let server = start(|config| {
        config.connections_max = 1;
        config.reject_past_limit = false;
    });
    let mut first = TestClient::connect(address(&server));
    assert_eq!(first.ask("mn"), "MN");
    let mut second = TestClient::connect(address(&server));
    second.send("mn\r\n");
    second
        .socket()
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert_eq!(
        second.socket().read(&mut [0]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    assert_eq!(first.stat("accepting_conns"), "0");
    drop(first);
    second
        .socket()
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(second.line(), "MN");
    // It is served by one thread, and accepting pauses on another.
    let deadline = Instant::now() + Duration::from_secs(5);
    while second.stat("listen_disabled_num") != "2" {
        assert!(Instant::now() < deadline, "full, and full again");
    }
}

#[test]
fn a_unix_socket_and_tcp_reach_the_same_items() {
    let path = PathBuf::from(format!(
        "{}/latchd-both-{}",
        std::env::temp_dir().display(),
        std::process::id()
    ));
    let server = start(|config| {
        config.unix_socket = Some(UnixSocket {
            path: path.clone(),
            mode: 0o700,
        });
    });
    let mut unix = TestClient::connect_unix(&path);
    unix.send("set k 0 0 1\r\nx\r\n");
    assert_eq!(unix.line(), "STORED");
    assert_eq!(TestClient::connect(address(&server)).ask("mg k s"), "HD s1");
    server.shutdown();
    assert!(!path.exists());
}

#[test]
fn a_server_that_cannot_start_leaves_nothing_behind() {
    let server = start(|_| {});
    let port = address(&server).port();
    let mut config = Config::default();
    config.listen = vec![ListenAddress::loopback(0), ListenAddress::loopback(port)];
    assert_eq!(
        Server::start(config).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    let mut config = Config::default();
    config.threads = NonZeroUsize::new(1_000).unwrap();
    assert_eq!(
        Server::start(config).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn stats_can_be_set_back() {
    let server = start(|_| {});
    let mut client = TestClient::connect(address(&server));
    assert_eq!(client.ask("mn"), "MN");
    assert_ne!(client.stat("bytes_read"), "0");
    assert_eq!(client.ask("stats reset"), "RESET");
    assert_eq!(client.stat("total_connections"), "0");
    assert_eq!(client.stat("curr_connections"), "1");
}

#[test]
fn the_lock_limit_spans_all_shards() {
    let server = start(|config| {
        config.threads = NonZeroUsize::new(4).unwrap();
        config.locks_per_connection_max = 20;
    });
    let mut client = TestClient::connect(address(&server));
    let mut answers = Vec::new();
    for key in 0..30 {
        client.send(format!("set k{key} 0 0 1\r\nx\r\n"));
        assert_eq!(client.line(), "STORED");
        answers.push(client.ask(&format!("lock k{key}")));
    }
    assert!(answers[..20].iter().all(|answer| answer == "OK"));
    assert!(
        answers[20..]
            .iter()
            .all(|answer| answer == "SERVER_ERROR too many locks")
    );
    assert_eq!(client.ask("unlock k0"), "OK");
    assert_eq!(client.ask("lock k29"), "OK");
}

/// The lines of `stats conns`, without `STAT` and the number.
fn conns(client: &mut TestClient) -> Vec<(u64, String)> {
    client.send("stats conns\r\n");
    let mut lines = Vec::new();
    loop {
        let line = client.line();
        if line == "END" {
            return lines;
        }
        let (number, rest) = line.strip_prefix("STAT ").unwrap().split_once(':').unwrap();
        lines.push((number.parse().unwrap(), rest.to_owned()));
    }
}

#[test]
fn stats_conns_shows_each_connection() {
    let server = start(|config| config.threads = NonZeroUsize::new(2).unwrap());
    let address = address(&server);
    let mut asking = TestClient::connect(address);
    assert_eq!(asking.ask("mn"), "MN");
    let mut sending = TestClient::connect(address);
    assert_eq!(sending.ask("mn"), "MN");
    sending.send("set foo 0 0 6\r\nfo");
    let peer = |client: &mut TestClient| client.socket().local_addr().unwrap();
    let (ours, theirs) = (peer(&mut asking), peer(&mut sending));
    let expected = [
        (1, format!("addr tcp:{address}")),
        (1, "state conn_listening".to_owned()),
        (1, "secs_since_last_cmd 0".to_owned()),
        (2, format!("addr tcp:{ours}")),
        (2, format!("listen_addr tcp:{address}")),
        (2, "state conn_parse_cmd".to_owned()),
        (2, "secs_since_last_cmd 0".to_owned()),
        (3, format!("addr tcp:{theirs}")),
        (3, format!("listen_addr tcp:{address}")),
        (3, "state conn_nread".to_owned()),
        (3, "secs_since_last_cmd 0".to_owned()),
    ];
    let begun = Instant::now();
    // Bytes arrive in their own time, and so does the end.
    while conns(&mut asking) != expected {
        assert!(
            begun.elapsed() < Duration::from_millis(900),
            "{:?}",
            conns(&mut asking)
        );
    }
    drop(sending);
    while conns(&mut asking).len() > 7 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it is still shown"
        );
    }
}

#[test]
fn the_limit_of_memory_changes_while_it_runs() {
    let server = start(|config| config.threads = NonZeroUsize::new(4).unwrap());
    let mut client = TestClient::connect(address(&server));
    let limit = |client: &mut TestClient, topic: &str, name: &str| {
        client.send(format!("stats{topic}\r\n"));
        let mut found = String::new();
        loop {
            let line = client.line();
            if line == "END" {
                break found;
            }
            if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
                found = value.to_owned();
            }
        }
    };
    for (mib, said) in [
        (100, "OK"),
        (
            8,
            "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
        ),
        (32, "OK"),
    ] {
        client.send(format!("cache_memlimit {mib}\r\n"));
        assert_eq!(client.line(), said);
        let bytes = if mib == 8 { 100 << 20 } else { mib << 20 };
        assert_eq!(limit(&mut client, "", "limit_maxbytes"), bytes.to_string());
        assert_eq!(
            limit(&mut client, " settings", "maxbytes"),
            bytes.to_string()
        );
    }
}

/// Locked items of every size, beside large values and sizes that change: no set is refused, and after the last
/// unlock nothing of the locks is left.
#[test]
fn a_few_locks_refuse_no_value() {
    for (threads, count, locked_bytes, value_bytes) in [
        (1, 1, 30_000, 900 << 10),
        (4, 200, 22, 900 << 10),
        (4, 16, 10_000, 300 << 10),
    ] {
        let server = start(|config| {
            config.threads = NonZeroUsize::new(threads).unwrap();
            config.memory_bytes_max = 64 << 20;
        });
        let mut client = TestClient::connect(address(&server));
        let set = |client: &mut TestClient, key: &str, bytes: usize| {
            client.send(format!(
                "set {key} 0 0 {bytes}\r\n{}\r\n",
                "v".repeat(bytes)
            ));
            assert_eq!(
                client.line(),
                "STORED",
                "{key} of {bytes} bytes, {threads} threads"
            );
        };
        let mut holder = TestClient::connect(address(&server));
        for number in 0..count {
            set(&mut client, &format!("locked{number}"), locked_bytes);
            holder.send(format!("lock locked{number}\r\n"));
            assert_eq!(holder.line(), "OK");
        }
        for round in 0..2 {
            for number in 0..(128 << 20) / value_bytes {
                set(&mut client, &format!("large{number}"), value_bytes);
            }
            for number in 0..200 {
                set(&mut client, &format!("small{number}"), 1);
            }
            if round == 0 {
                holder.send("unlock_all\r\n");
                assert_eq!(holder.line(), "OK");
            }
        }
    }
}

#[test]
fn what_monitoring_reads_is_there() {
    let server = start(|_| {});
    let mut client = TestClient::connect(address(&server));
    client.send("set a 0 0 1\r\nx\r\n");
    assert_eq!(client.line(), "STORED");
    for (topic, names) in [
        (
            "",
            "version latchd_version uptime time pid pointer_size threads libevent rusage_user rusage_system \
             curr_items total_items bytes limit_maxbytes curr_connections total_connections \
             max_connections connection_structures rejected_connections accepting_conns \
             listen_disabled_num conn_yields bytes_read bytes_written cmd_get cmd_set cmd_touch \
             cmd_flush get_hits get_misses get_expired delete_hits delete_misses incr_hits \
             incr_misses decr_hits decr_misses cas_hits cas_misses cas_badval touch_hits \
             touch_misses evictions reclaimed evicted_unfetched expired_unfetched \
             store_too_large store_no_memory lru_crawler_starts direct_reclaims \
             crawler_items_checked crawler_reclaimed moves_to_cold moves_to_warm \
             moves_within_lru unexpected_napi_ids round_robin_fallback \
             read_buf_oom response_obj_oom idle_kicks malloc_fails auth_cmds auth_errors locks_held cmd_meta get_flushed \
             evicted_active hash_bytes hash_is_expanding hash_power_level lru_bumps_dropped \
             lru_crawler_running lru_maintainer_juggles lrutail_reflocked read_buf_bytes \
             read_buf_bytes_free read_buf_count reserved_fds response_obj_bytes \
             response_obj_count slab_global_page_pool slab_reassign_busy_deletes \
             slab_reassign_busy_items slab_reassign_busy_nomem slab_reassign_chunk_rescues \
             slab_reassign_inline_reclaim slab_reassign_last_busy_status \
             slab_reassign_rescues slab_reassign_running slabs_moved \
             time_in_listen_disabled_us",
        ),
        (
            "settings",
            "maxbytes maxconns tcpport udpport inter verbosity oldest evictions domain_socket \
             umask shutdown_command num_threads detail_enabled cas_enabled tcp_backlog \
             binding_protocol auth_enabled_sasl auth_enabled_ascii item_size_max maxconns_fast \
             slab_reassign slab_automove lru_crawler flush_enabled dump_enabled \
             lru_maintainer_thread lru_segmented temp_lru idle_timeout read_buf_mem_limit \
             track_sizes client_flags_size hash_algorithm memory_file num_napi_ids \
             stat_key_prefix inline_ascii_response watcher_logbuf_size growth_factor chunk_size \
             num_threads_per_udp reqs_per_event hashpower_init slab_automove_ratio \
             slab_automove_window slab_automove_freeratio slab_chunk_max lru_crawler_sleep \
             lru_crawler_tocrawl tail_repair_time hot_lru_pct warm_lru_pct hot_max_factor \
             warm_max_factor temporary_ttl worker_logbuf_size ext_item_size ext_item_age \
             ext_low_ttl ext_recache_rate ext_wbuf_size ext_compact_under ext_drop_under \
             ext_max_sleep ext_max_frag ext_drop_unread",
        ),
        (
            "items",
            "items:1:number items:1:mem_requested items:1:evicted items:1:evicted_unfetched \
             items:1:expired_unfetched items:1:outofmemory items:1:tailrepairs \
             items:1:reclaimed items:1:crawler_reclaimed items:1:crawler_items_checked \
             items:1:lrutail_reflocked items:1:moves_to_cold items:1:moves_to_warm \
             items:1:moves_within_lru items:1:direct_reclaims items:1:number_hot \
             items:1:number_warm items:1:number_cold items:1:age_hot \
             items:1:age_warm items:1:age items:1:hits_to_hot items:1:hits_to_warm \
             items:1:hits_to_cold items:1:hits_to_temp items:1:evicted_nonzero \
             items:1:evicted_time items:1:evicted_active",
        ),
        (
            "slabs",
            "1:chunk_size 1:chunks_per_page 1:total_pages 1:total_chunks 1:used_chunks \
             1:free_chunks 1:free_chunks_end 1:get_hits 1:cmd_set \
             1:delete_hits 1:incr_hits 1:decr_hits 1:cas_hits 1:cas_badval 1:touch_hits \
             active_slabs total_malloced",
        ),
        ("sizes", "sizes_status"),
    ] {
        client.send(format!("stats {topic}\r\n"));
        let mut shown = Vec::new();
        loop {
            let line = client.line();
            if line == "END" {
                break;
            }
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!(words.len(), 3, "{line}");
            shown.push(words[1].to_owned());
        }
        // Names that memcached has elsewhere: an exporter that finds one here has one metric twice.
        let elsewhere = ["1:mem_requested", "evicted_nonzero"];
        assert!(
            !shown.iter().any(|name| elsewhere.contains(&&name[..])),
            "stats {topic}"
        );
        for name in names.split_whitespace() {
            let times = shown.iter().filter(|shown| *shown == name).count();
            assert_eq!(times, 1, "stats {topic}: {name}");
        }
    }
}

/// Keys of one prefix are in all shards, and are counted together.
#[test]
fn prefixes_are_counted_over_all_threads() {
    let server = start(|config| {
        config.threads = 2.try_into().unwrap();
        config.prefix_delimiter = Some(b'/');
    });
    let mut client = TestClient::connect(address(&server));
    for number in 0..50 {
        assert_eq!(client.ask(&format!("set a/{number} 0 0 1\r\nx")), "STORED");
        assert_eq!(client.ask(&format!("mg a/{number} s")), "HD s1");
    }
    client.send("stats detail dump\r\n");
    assert_eq!(client.line(), "PREFIX a get 50 hit 50 set 50 del 0");
    assert_eq!(client.line(), "END");
    assert_eq!(client.stat("cmd_meta"), "50");
    assert_eq!(client.ask("stats detail off"), "OK");
    assert_eq!(client.ask("stats reset"), "RESET");
    assert_eq!(client.ask("mn"), "MN");
    assert_eq!(client.ask("stats detail dump"), "END");
    assert_eq!(client.stat("cmd_meta"), "0");
}
