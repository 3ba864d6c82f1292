//! The words of the command line, the environment and the file.

use super::*;

/// Units without a shell pass redirections as words, and containers run `memcached -m 64`.
#[test]
fn words_without_a_flag_are_one_warning() {
    let read = |line: &str| {
        let words = std::iter::once("latchd").chain(line.split(' '));
        read_from(words.map(Into::into), []).map_err(|error| error.to_string())
    };
    for (line, warning) in [
        (
            "-v >> /var/log/m.log 2>&1 -m 65",
            "ignoring '>>', '/var/log/m.log', '2>&1': no shell reads this line; log to a file with --log-file PATH",
        ),
        ("-v 2> lock -m 65", "ignoring '2>', 'lock': no shell"),
        ("-v -m 65 -- -c 7", "ignoring '-c', '7': no such task"),
        (
            "-v start -m 65",
            "ignoring 'start': no such task; the tasks are lock, ",
        ),
    ] {
        let args = read(line).unwrap();
        assert!(matches!(&args.warnings[..], [one] if one.starts_with(warning)));
        let config = args.into_config(Vec::new()).unwrap().0;
        assert_eq!((config.memory_bytes_max, config.verbosity), (65 << 20, 1));
        assert_eq!(config.connections_max, 1024);
    }
    for (line, near) in [
        ("chekc", "'chekc' at this place; write `latchd check` first"),
        ("cil", "write `latchd cli` first"),
        ("-m 64 2>&1 check", "write `latchd check` first"),
        ("-- bench", "write `latchd bench` first"),
        ("memcached lokc", "write `latchd lock` first"),
    ] {
        let refused = read(line).unwrap_err();
        assert!(refused.contains(near), "{line}: {refused}");
    }
    for own in ["memcached", "/usr/bin/memcached", "latchd"] {
        let args = read(&format!("{own} -m 256")).unwrap();
        assert!(
            args.warnings.is_empty() && args.memory_limit == 256,
            "{own}"
        );
        assert!(read(&format!("{own} cli get a")).unwrap().task.is_some());
    }
    assert!(!read("-m 64 memcached").unwrap().warnings.is_empty());
    // The words of a task are its own.
    let Some(Task::Lock(_)) = read("lock k -- sh -c >x").unwrap().task else {
        panic!("it is a task");
    };
}

/// A file that is removed when the value is dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("latchd-args-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn flag(&self) -> String {
        format!("--config {}", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn nearer_sources_override_farther_ones() {
    let file = File::new(
        "order",
        "-m 100\n-c 200\n-t 3\n-l 10.0.0.1\n-vvv\n-M\n-o idle_timeout=9\n",
    );
    let environment = [
        ("LATCHD_CONN_LIMIT", "300"),
        ("LATCHD_THREADS", "2"),
        ("LATCHD_LISTEN", "10.0.0.2,10.0.0.3"),
        ("LATCHD_VERBOSE", "2"),
        ("LATCHD_EXTENDED", "idle_timeout=8,locks_per_conn=7"),
        ("LATCHD_MAX_ITEM_SIZE", ""),
    ];
    let line = format!("{} -t 1 -o no_maxconns_fast", file.flag());
    let (merged, _) = parse_with(&line, &environment).unwrap();
    assert_eq!(merged.memory_bytes_max, 100 << 20, "the file's");
    assert_eq!(merged.connections_max, 300, "the environment's");
    assert_eq!(merged.threads.get(), 1, "the command line's");
    let hosts: Vec<_> = merged
        .listen
        .iter()
        .map(|address| address.host.as_str())
        .collect();
    assert_eq!(hosts, ["10.0.0.2", "10.0.0.3"], "none of the file's");
    assert_eq!(merged.verbosity, 2);
    assert!(!merged.evict && !merged.reject_past_limit);
    assert_eq!(merged.idle_timeout, Some(Duration::from_secs(8)));
    assert_eq!(merged.locks_per_connection_max, 7);
    let line = format!("{line} -v -l localhost --disable-evictions=no");
    let (merged, _) = parse_with(&line, &environment).unwrap();
    assert_eq!((merged.verbosity, merged.listen.len()), (1, 1));
    assert!(merged.evict);
}

#[test]
fn the_environment_can_override_the_file() {
    let file = File::new("named", "-M\n-F yes\n");
    let path = file.0.to_str().unwrap();
    let environment = [("LATCHD_CONFIG", path), ("LATCHD_DISABLE_EVICTIONS", "no")];
    let (config, _) = parse_with("", &environment).unwrap();
    assert!(config.evict && !config.allowed.flush_all);
}

#[test]
fn member_options_come_from_several_sources() {
    let file = File::new(
        "member",
        "--authority http://10.0.0.1:2379\n--state /var/lib/latchd\n--check-keys all\n",
    );
    let environment = [
        ("LATCHD_CLUSTER", "shop"),
        ("LATCHD_ADVERTISE", "10.0.0.2:11211"),
    ];
    let line = format!("{} --partition cache-a:11211", file.flag());
    let (merged, _) = parse_with(&line, &environment).unwrap();
    let member = merged.cluster.unwrap();
    assert_eq!(
        (&*member.cluster, &*member.partition),
        ("shop", "cache-a:11211")
    );
    assert_eq!(member.advertise.as_deref(), Some("10.0.0.2:11211"));
    assert_eq!(member.check_keys, CheckKeys::All);
    assert_eq!(
        member.state.as_deref(),
        Some(std::path::Path::new("/var/lib/latchd"))
    );
    let alone = parse("--state /tmp").unwrap().0;
    assert_eq!(alone.state, Some("/tmp".into()));
    assert_eq!((merged.state, alone.cluster), (None, None));
    for flag in ["--advertise a:1", "--check-keys none"] {
        let error = parse(flag).unwrap_err();
        assert!(
            error.contains("there is no partition; add --partition"),
            "{error}"
        );
    }
}

#[test]
fn a_flag_without_a_value_is_yes_or_no_in_the_environment() {
    for (words, keeps_all) in [
        (["yes", "1", "true", "on"], true),
        (["no", "0", "false", "off"], false),
    ] {
        for word in words {
            let (config, _) = parse_with("", &[("LATCHD_DISABLE_EVICTIONS", word)]).unwrap();
            assert_eq!(config.evict, !keeps_all, "{word}");
        }
    }
    assert_eq!(
        parse_with("", &[("LATCHD_DISABLE_EVICTIONS", "")])
            .unwrap()
            .0
            .evict,
        config("").evict
    );
}

#[test]
fn a_line_of_a_file_has_flags() {
    let text = "# a comment\n\n  -m 100   # and one behind\n-m128\n--threads=2\n--unix-socket /tmp/a#1 #b c\n\
                -p -1\n-vv\n-L\nlogfile /var/log/a b.log\n--listen *:5,[::1]:6\n-F yes -X 0 -M\n-P '/run/a b'";
    let file = File::new("lines", text);
    let words = format!("latchd {}", file.flag());
    let args = read_from(words.split(' ').map(Into::into), []).unwrap();
    assert_eq!(args.process.log_file, Some("/var/log/a b.log".into()));
    assert_eq!(args.process.pidfile, Some("/run/a b".into()));
    assert!(args.warnings.is_empty());
    let (config, ignored) = args.into_config(Vec::new()).unwrap();
    assert_eq!(
        (config.memory_bytes_max, config.threads.get()),
        (128 << 20, 2)
    );
    assert_eq!(config.unix_socket.unwrap().path, PathBuf::from("/tmp/a#1"));
    assert_eq!((config.listen.len(), config.verbosity), (2, 2));
    assert!(!config.allowed.flush_all && config.allowed.listing && !config.evict);
    assert_eq!(ignored, ["-L"]);
}

/// Each of these lines starts memcached by Debian's scripts.
#[test]
fn a_file_has_what_debians_scripts_take() {
    let text = b"\xef\xbb\xbf-m \"100\" -c 99\r\n-D \\#\n# f\xfcr alle\n-v -v\n2>/dev/null\nloglevel 3\n; old\n-h\n\
                 logfile\nlogfile \"/var/log/a b.log\"\n-t 2 >> /tmp/log 2>&1\ndon't\n";
    let file = File::new("debian", "");
    std::fs::write(&file.0, text).unwrap();
    let words = format!("latchd {}", file.flag());
    let args = read_from(words.split(' ').map(Into::into), []).unwrap();
    let warning = "ignoring '2>/dev/null', 'loglevel', ';', '-h', 'logfile', '>>', '/tmp/log', '2>&1', 'don't' in ";
    let [said] = &args.warnings[..] else {
        panic!("{:?}", args.warnings);
    };
    assert!(
        said.starts_with(warning) && said.contains(": not options; see"),
        "{said}"
    );
    assert_eq!(args.process.log_file, Some("/var/log/a b.log".into()));
    let (config, _) = args.into_config(Vec::new()).unwrap();
    assert_eq!(config.memory_bytes_max, 100 << 20);
    assert_eq!((config.connections_max, config.threads.get()), (99, 2));
    assert_eq!((config.prefix_delimiter, config.verbosity), (Some(b'#'), 2));
}

#[test]
fn an_error_names_its_place_and_advice() {
    for (text, said) in [
        (
            "-m 64\n-q 7\n",
            ":2: unknown option '-q'; see `latchd --help`",
        ),
        ("--memory 7", ":1: unknown option '--memory'"),
        (
            "memory-limit 7",
            ":1: unknown option 'memory-limit'; write --memory-limit",
        ),
        (
            "auth_fiel = /etc/p",
            ":1: unknown option 'auth_fiel'; write --auth-file",
        ),
        (
            "PORT=\"11211\"",
            ":1: unknown option 'PORT=\"11211\"'; write --port",
        ),
        ("--help", ":1: unknown option '--help'"),
        ("-m \"64", ":1: a quote is not closed"),
        ("--config /etc/other", ":1: unknown option '--config'"),
        ("-p 65536", ":1: invalid value '65536' for '--port <PORT>'"),
        (
            "-c 1 -p x -m 2",
            ":1: invalid value 'x' for '--port <PORT>'",
        ),
        ("-m", ":1: --memory-limit needs a value"),
        ("-MFq", ":1: unknown option '-q'"),
        ("\n-U 7", ":2: -U: UDP is not supported"),
        ("-o modern,nonsense", ":1: -o nonsense: unknown option"),
        ("-l proto[ascii]:127.0.0.1", ":1: -l proto[ascii]"),
    ] {
        let file = File::new("mistakes", text);
        let refused = parse(&file.flag()).unwrap_err();
        let place = format!("{}{said}", file.0.display());
        assert!(refused.contains(&place), "{text}: {refused}");
    }
    for (name, value, said) in [
        (
            "LATCHD_MEMORY",
            "9",
            "LATCHD_MEMORY in the environment: no option has this name",
        ),
        ("LATCHD_HELP", "1", "no option has this name"),
        ("LATCHD_LICENSE", "1", "no option has this name"),
        (
            "LATCHD_PORT",
            "x",
            "LATCHD_PORT in the environment: invalid value 'x'",
        ),
        (
            "LATCHD_LOCK_MEMORY",
            "perhaps",
            "LATCHD_LOCK_MEMORY in the environment: --lock-memory does not take the value",
        ),
        (
            "LATCHD_CONFIG",
            "/nowhere/to/be",
            "cannot read /nowhere/to/be",
        ),
    ] {
        let refused = parse_with("", &[(name, value)]).unwrap_err();
        assert!(refused.contains(said), "{name}: {refused}");
    }
}

#[test]
fn foreign_environment_variables_are_ignored() {
    let mut environment = vec![
        ("LATCHD_LOCK_KEY".to_owned(), "job"),
        ("MEMCACHED_PORT".to_owned(), "1"),
    ];
    // Kubernetes: services of these names in the same namespace.
    for service in ["LATCHD", "LATCHD_METRICS", "LATCHD_UDP", "LATCHD_PORT_2"] {
        for (end, value) in [
            ("SERVICE_HOST", "fd00::1"),
            ("SERVICE_PORT", "9150"),
            ("SERVICE_PORT_HTTP_METRICS", "9150"),
            ("PORT", "tcp://10.0.0.5:9150"),
            ("PORT_9150_TCP", "tcp://10.0.0.5:9150"),
            ("PORT_9150_TCP_PROTO", "tcp"),
            ("PORT_9150_TCP_PORT", "9150"),
            ("PORT_9150_TCP_ADDR", "10.0.0.5"),
            ("PORT_53_UDP", "udp://10.0.0.5:53"),
            ("PORT_53_UDP_ADDR", "10.0.0.5"),
            ("PORT_9_SCTP_PORT", "9"),
        ] {
            environment.push((format!("{service}_{end}"), value));
        }
    }
    let environment: Vec<_> = environment
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    let (config, _) = parse_with("", &environment).unwrap();
    assert_eq!(config.listen[0].port, 11211);
    for (misspelt, value) in [
        ("LATCHD_PORTS", "11211"),
        ("LATCHD_TCP_PORT", "11211"),
        ("LATCHD_PORT_11211", "1"),
        ("LATCHD_PORT_11211_TCPX", "1"),
        ("LATCHD_PORT_X_TCP", "1"),
        ("LATCHD_SERVICE_PORTS", "1"),
        ("LATCHD_SERVICE_PORT", "/etc/passwords"),
        ("LATCHD_SERVICE_HOSTS", "10.0.0.1"),
    ] {
        assert!(parse_with("", &[(misspelt, value)]).is_err(), "{misspelt}");
    }
}

#[test]
fn every_long_flag_is_found_in_a_file_and_in_the_environment() {
    for arg in command().get_arguments() {
        let Some(long) = arg.get_long().filter(|_| setting::is_setting(arg)) else {
            continue;
        };
        let variable = format!("LATCHD_{}", long.replace('-', "_").to_uppercase());
        let refused = parse_with("", &[(&variable, "\u{1}")]).err();
        // A path or a list takes any value, so only the name is checked.
        let is_known = refused.is_none_or(|said| !said.contains("no option has this name"));
        assert!(is_known, "{variable}");
    }
}
