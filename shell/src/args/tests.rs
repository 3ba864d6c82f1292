//! The configurations that flags produce.

use clap::CommandFactory;
use latchd_cluster::CheckKeys;
use latchd_protocol::wire::{Allowed, LockedReply};
use latchd_server::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};

use super::sources::read_from;
use super::*;

mod sources;

fn parse(line: &str) -> Result<(Config, Vec<String>), String> {
    parse_with(line, &[])
}

/// A command line and an environment.
fn parse_with(line: &str, environment: &[(&str, &str)]) -> Result<(Config, Vec<String>), String> {
    let words: Vec<_> = line.split_whitespace().collect();
    parse_words(&words, environment)
}

/// The words of a command line, which may have blanks in them, and an environment.
fn parse_words(
    words: &[&str],
    environment: &[(&str, &str)],
) -> Result<(Config, Vec<String>), String> {
    let words = std::iter::once("latchd").chain(words.iter().copied());
    let environment = environment
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    read_from(words.map(Into::into), environment)
        .map_err(|error| error.to_string())?
        .into_config(Vec::new())
}

fn config(line: &str) -> Config {
    parse(line).unwrap().0
}

fn listen(line: &str) -> Vec<String> {
    config(line)
        .listen
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_parser_is_sound() {
    Args::command().debug_assert();
}

#[test]
fn defaults_are_those_of_memcached_on_loopback() {
    let config = config("");
    assert_eq!(listen(""), ["127.0.0.1:11211"]);
    assert_eq!(config.memory_bytes_max, 64 << 20);
    assert_eq!(config.value_bytes_max, 1 << 20);
    assert_eq!(config.connections_max, 1024);
    assert!(config.evict && config.reject_past_limit);
    assert_eq!((config.idle_timeout, config.verbosity), (None, 0));
    assert!((1..=4).contains(&config.threads.get()));
}

#[test]
fn a_start_script_of_memcached_works() {
    let line = "-p 11222 -u nobody -m 128 -c 4096 -t 2 -I 2m -U 0 -v -o modern,idle_timeout=30";
    let (config, ignored) = parse(line).unwrap();
    assert_eq!(config.listen[0].port, 11222);
    assert_eq!(config.memory_bytes_max, 128 << 20);
    assert_eq!(config.value_bytes_max, 2 << 20);
    assert_eq!((config.connections_max, config.threads.get()), (4096, 2));
    assert_eq!(
        (config.idle_timeout, config.verbosity),
        (Some(Duration::from_secs(30)), 1)
    );
    assert_eq!(ignored, ["-o modern"]);
}

/// As in Kubernetes charts: `args: ["-m 64"]`.
#[test]
fn blanks_around_a_value_are_skipped() {
    let words = [
        "-m 128",
        "-c",
        " 99\n",
        "-vp 11222",
        "-l 127.0.0.1, ::1 ",
        "-o idle_timeout= 30, modern",
        "--max-item-size= 2m",
        "-e /tmp/a b",
    ];
    let (config, ignored) = parse_words(&words, &[("LATCHD_THREADS", " 2")]).unwrap();
    assert_eq!(config.memory_bytes_max, 128 << 20);
    assert_eq!(config.value_bytes_max, 2 << 20);
    assert_eq!((config.connections_max, config.threads.get()), (99, 2));
    assert_eq!(config.verbosity, 1);
    let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:11222", "[::1]:11222"]);
    assert_eq!(config.idle_timeout, Some(Duration::from_secs(30)));
    assert_eq!(ignored, ["-o modern"]);
    assert_eq!(config.memory_file, Some("/tmp/a b".into()));
    // A separate word may be a path that begins with a blank. A value of blanks alone is refused.
    let (config, _) = parse_words(&["-e", " a"], &[]).unwrap();
    assert_eq!(config.memory_file, Some(" a".into()));
    assert!(parse_words(&["-m ", "128"], &[]).is_err());
}

#[test]
fn lists_may_have_empty_entries() {
    for list in [
        "127.0.0.1,::1",
        "127.0.0.1,,::1,",
        ",127.0.0.1;::1;",
        " 127.0.0.1 ;, ::1",
    ] {
        let (config, _) = parse_words(&["-l", list], &[]).unwrap();
        let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["127.0.0.1:11211", "[::1]:11211"], "{list}");
    }
    for list in [
        "idle_timeout=9,",
        ",idle_timeout=9",
        "idle_timeout=9,,modern,",
    ] {
        let (config, _) = parse_with("", &[("LATCHD_EXTENDED", list)]).unwrap();
        assert_eq!(config.idle_timeout, Some(Duration::from_secs(9)), "{list}");
    }
    assert!(parse_words(&["-o", ""], &[]).is_ok());
    assert!(parse_words(&["-l", ","], &[]).is_err());
    let names = config("--status * --status-host a,,b,").status_hosts;
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn megabytes_may_have_their_unit_and_no_other() {
    for unit in ["", "m", "M", "MB", "mb", "MiB"] {
        assert_eq!(config(&format!("-m 65{unit}")).memory_bytes_max, 65 << 20);
    }
    let refused = parse("-m 1g").unwrap_err();
    assert!(refused.contains("1024 for 1g"), "{refused}");
    for line in ["-m 64kb", "-m m", "-m 0MB", "-m 4294967296"] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn addresses_come_in_lists_and_repeat() {
    assert_eq!(
        listen("-l 127.0.0.1,[::1]:5 -l * -p 7"),
        ["127.0.0.1:7", "[::1]:5", "*:7"]
    );
    assert_eq!(listen("-p -1"), ["127.0.0.1:0"]);
    assert_eq!(listen("-l 127.0.0.1:0"), ["127.0.0.1:0"]);
}

#[test]
fn a_unix_socket_disables_tcp() {
    let unix = config("-s /tmp/latchd.sock -a 770");
    assert!(unix.listen.is_empty());
    let socket = unix.unix_socket.unwrap();
    assert_eq!(
        (socket.path.to_str(), socket.mode),
        (Some("/tmp/latchd.sock"), 0o770)
    );
    assert_eq!(
        listen("-s /tmp/latchd.sock -l localhost"),
        ["localhost:11211"]
    );
    let refused = parse("-p 0").unwrap_err();
    assert!(
        refused.contains("no address to listen on; add -s PATH"),
        "{refused}"
    );
    let pair = std::os::unix::net::UnixStream::pair().unwrap().0;
    let sockets = vec![Arc::new(OwnedFd::from(pair))];
    let none = read_from(["latchd", "-p", "0"].map(Into::into), []).unwrap();
    assert!(
        none.into_config(sockets).is_ok(),
        "sockets that are handed over are somewhere"
    );
    assert_eq!(listen("-p 0 -l localhost:99"), ["localhost:99"]);
}

#[test]
fn limits_are_checked() {
    for line in [
        "-p 65536",
        "-p x",
        "-m 0",
        "-m 1",
        "-c 0",
        "-t 0",
        "-I 1",
        "-I 2000m",
        "-I 33m",
        "-a 9",
        "-B udp",
        "-o idle_timeout",
        "-o nonsense",
        "--nonsense",
        "-m -c 5",
        "-e -v",
        "-vq",
        "--disable-evictions=perhaps",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    assert_eq!(config("-m 1 -I 512k").value_bytes_max, 512 << 10);
}

#[test]
fn the_limit_of_connections_can_refuse_or_wait() {
    assert!(!config("-o no_maxconns_fast").reject_past_limit);
    assert!(config("-o maxconns_fast").reject_past_limit);
}

#[test]
fn flags_without_effect_are_named_once() {
    let line = "-L -C -W -f 1.2 -n 9 -R 5 -N 1 -t 65";
    let ignored = ["-L", "-C", "-f", "-n", "-R", "-N", "-t beyond 64"];
    let (taken, said) = parse(line).unwrap();
    assert_eq!(
        (taken.threads.get(), &said[..]),
        (64, &ignored.map(String::from)[..])
    );
    assert!(parse("-U 0 -B auto").unwrap().1.is_empty());
    assert_eq!(
        parse("-o no_lru_crawler,slab_chunk_max=1").unwrap().1,
        ["-o no_lru_crawler", "-o slab_chunk_max"]
    );
}

#[test]
fn flags_without_an_implementation_are_refused() {
    for line in [
        "-S",
        "-S -Y file -B ascii",
        "-Z",
        "-Z -o ssl_key=key.pem",
        "-Z -s /tmp/latchd.sock -o ssl_chain_cert=chain.pem",
        "-Z -o ssl_chain_cert=chain.pem,ssl_verify_mode=2",
        "-Z -o ssl_chain_cert=chain.pem,ssl_verify_mode=4,ssl_ca_cert=ca.pem",
        "-Z -o ssl_chain_cert=chain.pem -l mtls:127.0.0.1",
        "-Z -o ssl_chain_cert=chain.pem,ssl_min_version=4",
        "-Z -o ssl_chain_cert=chain.pem,ssl_keyformat=3",
        "-Z -o ssl_chain_cert=chain.pem,ssl_ciphers",
        "-Z -o ssl_chain_cert=chain.pem,ssl_nonsense",
        "-Z -o ssl_chain_cert",
        "-o ssl_chain_cert=chain.pem",
        "-l notls:127.0.0.1",
        "-U 11211",
        "-o ext_path=/tmp/a:5m",
        "-l proto[ascii]:127.0.0.1:11211",
        "-Y file -B binary",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn names_of_the_status_port_are_given_in_lists() {
    let config = config("--status * --status-host latchd,cache.example --status-host c");
    assert_eq!(config.status_hosts, ["latchd", "cache.example", "c"]);
    assert_eq!(config.status.unwrap().to_string(), "*:9150");
    for line in [
        "--status-host a",
        "--status * --status-host a:9150",
        "--status * --status-host *",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn the_watcher_buffer_is_in_kilobytes() {
    assert_eq!(config("").watcher_bytes_max, 256 << 10);
    let config = config("-o watcher_logbuf_size=8");
    assert_eq!(config.watcher_bytes_max, 8 << 10);
    for size in ["0", "65537", "x", ""] {
        let line = format!("-o watcher_logbuf_size={size}");
        assert!(parse(&line).is_err(), "{line}");
    }
}

#[test]
fn a_memory_file_is_optional() {
    assert_eq!(config("").memory_file, None);
    for line in ["-e /tmp/items", "--memory-file /tmp/items"] {
        assert_eq!(config(line).memory_file, Some(PathBuf::from("/tmp/items")));
    }
}

#[test]
fn the_locked_reply_can_be_chosen() {
    let chosen = |line| config(line).allowed.locked_reply;
    assert_eq!(chosen(""), LockedReply::Locked);
    assert_eq!(chosen("-o locked_reply=locked"), LockedReply::Locked);
    assert_eq!(chosen("-o locked_reply=not_stored"), LockedReply::NotStored);
    assert!(parse("-o locked_reply").is_err());
    assert!(parse("-o locked_reply=stored").is_err());
}

#[test]
fn connections_per_address_can_be_limited() {
    let most = |line| config(line).connections_per_peer_max.map(NonZeroUsize::get);
    assert_eq!((most(""), most("-o conns_per_peer=0")), (None, None));
    assert_eq!(most("-o conns_per_peer=7"), Some(7));
    assert!(parse("-o conns_per_peer=x").is_err());
}

#[test]
fn sessions_can_be_limited() {
    let most = |line| {
        let sessions = config(line).sessions;
        (sessions.sessions_max, sessions.per_address_max)
    };
    assert_eq!(most(""), (65_536, 16_384));
    assert_eq!(most("-o sessions=0"), (0, 16_384));
    assert_eq!(most("-o sessions=9,sessions_per_peer=0"), (9, usize::MAX));
    assert!(parse("-o sessions=x").is_err());
}

#[test]
fn sasl_is_for_those_of_the_file() {
    let both = config("-S -Y passwords");
    assert!(both.sasl && both.auth_file.is_some());
    assert_eq!(both.allowed.protocols, Protocols::Any);
    let binary = config("-S -Y passwords -B binary");
    assert!(binary.sasl && binary.allowed.protocols == Protocols::Binary);
    assert!(!config("-Y passwords").sasl);
}

#[test]
fn tls_is_as_memcached_has_it() {
    let options = "ssl_chain_cert=chain.pem,ssl_key=key.pem,ssl_ca_cert=ca.pem,ssl_verify_mode=1,\
                   ssl_min_version=3,ssl_keyformat=2,ssl_ciphers=A:B,ssl_session_cache";
    let tls = config(&format!("-Z -o {options}")).tls.unwrap();
    assert_eq!(tls.chain_cert.to_str(), Some("chain.pem"));
    assert_eq!(tls.key, Some("key.pem".into()));
    assert_eq!(tls.ca_cert, Some("ca.pem".into()));
    assert_eq!(tls.client_certificate, ClientCertificate::Asked);
    assert_eq!(tls.min_version, TlsVersion::V1_3);
    assert_eq!(tls.key_format, KeyFormat::Der);
    assert_eq!(tls.ciphers, Some(vec!["A".into(), "B".into()]));
    assert!(tls.session_cache);
    let (plain, ignored) = parse(
        "-Z -o ssl_chain_cert=chain.pem -o ssl_wbuf_size=16,ssl_kernel_tls,ssl_min_version=0",
    )
    .unwrap();
    let tls = plain.tls.unwrap();
    assert_eq!(tls, TlsSettings::new("chain.pem".into()));
    assert_eq!(ignored.len(), 3, "{ignored:?}");
    assert_eq!(config("").tls, None);
    let kinds: Vec<_> = config(
        "-Z -o ssl_chain_cert=a,ssl_ca_cert=b -l notls:127.0.0.1:1,btls:[::1]:2,mtls:*:3,localhost",
    )
    .listen
    .iter()
    .map(|address| (address.tls, address.port))
    .collect();
    assert_eq!(
        kinds,
        [
            (ListenTls::Never, 1),
            (ListenTls::Basic, 2),
            (ListenTls::Mutual, 3),
            (ListenTls::Usual, 11211)
        ]
    );
}

#[test]
fn the_operator_chooses_the_allowed_commands() {
    assert_eq!(config("").allowed, Allowed::default());
    let Allowed {
        flush_all,
        listing,
        watching,
        shutdown,
        protocols,
        admission: _,
        locked_reply: _,
    } = config("-F -X -W -A -B ascii").allowed;
    assert_eq!((flush_all, listing, shutdown), (false, false, true));
    assert!(!watching);
    assert_eq!(protocols, Protocols::Text);
    assert_eq!(config("-B binary").allowed.protocols, Protocols::Binary);
    assert_eq!(config("-Y file").auth_file, Some("file".into()));
}

#[test]
fn flags_about_the_process_are_taken() {
    let words = "latchd -d -u nobody -P /run/pid -k -r --log-file /tmp/log --log json";
    let Process {
        daemon,
        user,
        pidfile,
        lock_memory,
        enable_coredumps,
        log_file,
        log,
        license,
    } = Args::try_parse_from(words.split(' ')).unwrap().process;
    assert!(daemon && lock_memory && enable_coredumps && !license);
    assert_eq!(user.as_deref(), Some("nobody"));
    assert_eq!(pidfile, Some("/run/pid".into()));
    assert_eq!(log_file, Some("/tmp/log".into()));
    assert_eq!(log, crate::log::Form::Json);
}

#[test]
fn verbosity_adds_up() {
    assert_eq!(
        (config("-vv").verbosity, config("-v -v -v").verbosity),
        (2, 3)
    );
    assert_eq!(config("--verbose=2").verbosity, 2);
}

#[test]
fn client_memory_limits_are_read() {
    let (config, ignored) = parse("-o read_buf_mem_limit=3,resp_obj_mem_limit=0").unwrap();
    assert_eq!(config.unfinished_bytes_max, Some(3 << 20));
    assert_eq!(config.unsent_bytes_max, Some(usize::MAX));
    assert!(ignored.is_empty());
    assert!(parse("-o read_buf_mem_limit=much").is_err());
    assert!(parse("-o resp_obj_mem_limit").is_err());
}

#[test]
fn locks_per_connection_are_limited() {
    assert_eq!(config("").locks_per_connection_max, 65_536);
    let config = config("-o locks_per_conn=9");
    assert_eq!(config.locks_per_connection_max, 9);
}

#[test]
fn a_dead_peer_has_at_least_two_seconds() {
    assert_eq!(config("--dead-peer 2").dead_peer, Duration::from_secs(2));
    assert!(parse("--dead-peer 1").is_err());
}

#[test]
fn the_last_of_two_flags_counts() {
    assert_eq!(config("-m 64 -m 128 -M -M").memory_bytes_max, 128 << 20);
}

#[test]
fn secure_erase_is_off_by_default() {
    assert!(config("--secure-erase").secure_erase);
    assert!(!config("").secure_erase);
}
