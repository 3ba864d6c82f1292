//! TLS and passwords, from the client's side: every connection it opens is under TLS and
//! authenticated. A client that is refused gets an error.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use latchd_client::{
    Client, ClientOptions, ComputeError, ComputeOptions, Credentials, Error, ErrorKind, Exptime,
    LockOptions, Outcome, TlsOptions, blocking,
};
use latchd_server::{ClientCertificate, Config};

use crate::certificates::{Authority, Certified};
use crate::support::{Proxy, Started, eventually, free_port};
use rcgen::{BasicConstraints, CertificateParams, IsCa};
use smol::block_on;

const TTL: Duration = Duration::from_secs(2);

/// A file of passwords, with one line.
struct Passwords(PathBuf);

impl Passwords {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("latchd-access-{}-{name}", std::process::id()));
        fs::write(&path, "fred:pass word\nann:password\n").unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Passwords {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn fred() -> ClientOptions {
    ClientOptions::new().credentials(Credentials::new("fred", "pass word").unwrap())
}

fn believing(authority: &Authority) -> TlsOptions {
    TlsOptions::new().ca_file(authority.certificate())
}

fn latchd(change: impl Fn(&mut Config)) -> Started {
    Started::latchd_with(0, change)
}

/// Uses each way to the server that a client has; the connection-bound ones if it knows such locks.
async fn use_all(address: &str, options: &ClientOptions, is_latchd: bool) -> Result<(), Error> {
    let client = Client::new(address, options.clone())?;
    assert_eq!(client.set("k", "v", Exptime::Never).await?, Outcome::Done);
    assert_eq!(&client.get("k").await?.unwrap().value[..], b"v");
    let lock = client.lock("leased", &LockOptions::new()).await?;
    lock.check().await?;
    lock.release().await?;
    if is_latchd {
        let options = LockOptions::new().survive(Duration::ZERO);
        client.lock("bound", &options).await?.release().await?;
    }
    let computed = client
        .compute("c", &ComputeOptions::new(TTL).early(TTL / 2), async |_| {
            Ok::<_, std::fmt::Error>(b"computed".to_vec())
        })
        .await;
    assert_eq!(computed.unwrap().bytes, b"computed");
    let cluster = Client::ring([(address, 1)], options)?;
    let items = cluster.get_many(["k", "none"]).await?;
    assert!(items[0].is_some() && items[1].is_none());
    Ok(())
}

/// A connection of the caller's own, and the server's first answer on it.
fn open(address: &str, options: &ClientOptions) -> Result<String, Error> {
    let client = blocking::Client::new(address, options.clone())?;
    let mut connection = client.open()?;
    connection.write_all(b"mn\r\n").unwrap();
    connection.flush().unwrap();
    let mut answer = String::new();
    BufReader::new(connection).read_line(&mut answer).unwrap();
    Ok(answer)
}

#[test]
fn every_connection_is_under_tls_and_behind_the_login() {
    let (authority, passwords) = (Authority::new(), Passwords::new("both"));
    let tls = || believing(&authority);
    for (has_tls, has_passwords) in [(true, false), (false, true), (true, true)] {
        let server = latchd(|config| {
            if has_tls {
                authority.secure(config);
            }
            if has_passwords {
                config.auth_file = Some(passwords.path().to_owned());
            }
        });
        let options = match (has_tls, has_passwords) {
            (true, false) => ClientOptions::new().tls(tls()),
            (true, true) => fred().tls(tls()),
            (false, _) => fred(),
        };
        block_on(use_all(&server.address(), &options, true)).unwrap();
        assert_eq!(open(&server.address(), &options).unwrap(), "MN\r\n");
        // With less than that nothing happens.
        let bare = ClientOptions::new().reply_timeout(Duration::from_secs(1));
        block_on(use_all(&server.address(), &bare, true)).unwrap_err();
    }
}

#[test]
fn a_memcached_with_passwords_is_shown_one() {
    let passwords = Passwords::new("memcached");
    let path = passwords.path().to_str().unwrap();
    let Some(server) = Started::memcached_with(free_port(), &["-Y", path]) else {
        return;
    };
    // It knows no passwords with blanks.
    let ann = Credentials::new("ann", "password").unwrap();
    let ann = ClientOptions::new().credentials(ann);
    block_on(use_all(&server.address(), &ann, false)).unwrap();
    let bare = block_on(use_all(&server.address(), &ClientOptions::new(), false));
    let error = bare.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unauthenticated(_)),
        "{error:?}"
    );
}

async fn not_computed(client: &Client) -> Error {
    let options = ComputeOptions::new(TTL);
    let computed = client.compute("k", &options, async |_| Ok::<_, std::fmt::Error>(vec![]));
    match computed.await.unwrap_err() {
        ComputeError::Client(error) => error,
        error @ (ComputeError::Compute(_) | ComputeError::Elsewhere | _) => panic!("{error}"),
    }
}

#[test]
fn unknown_users_fail_in_every_call() {
    let passwords = Passwords::new("unknown");
    let server = latchd(|config| config.auth_file = Some(passwords.path().to_owned()));
    let address = server.address();
    let wrong = ClientOptions::new().credentials(Credentials::new("fred", "word").unwrap());
    for (options, says) in [
        (ClientOptions::new(), "say a name and a password"),
        (wrong, "does not know this name and password"),
    ] {
        let client = Client::new(&address, options).unwrap();
        block_on(async {
            let errors = [
                client.get("k").await.unwrap_err(),
                client.set("k", "v", Exptime::Never).await.unwrap_err(),
                client.incr("k", 1).await.unwrap_err(),
                client.flush_all().await.unwrap_err(),
                client.stats().await.unwrap_err(),
                client.lock("k", &LockOptions::new()).await.unwrap_err(),
                client.lock_state("k").await.unwrap_err(),
                not_computed(&client).await,
            ];
            for error in errors {
                assert!(
                    matches!(error.kind(), ErrorKind::Unauthenticated(_)),
                    "{error:?}"
                );
                assert_eq!(error.server(), Some(&*address));
                assert!(error.to_string().contains(says), "{error}");
                assert!(!error.to_string().contains("pass word"), "{error}");
            }
        });
    }
}

#[test]
fn no_password_goes_to_a_server_without_login() {
    for server in Started::all() {
        let is_latchd = matches!(server, Started::Latchd(..));
        block_on(use_all(&server.address(), &fred(), is_latchd)).unwrap();
        assert_eq!(server.ask("get login\r\n", "END\r\n"), "END\r\n");
    }
}

#[test]
fn a_lease_survives_reconnect_and_login() {
    let (authority, passwords) = (Authority::new(), Passwords::new("again"));
    let server = latchd(|config| {
        authority.secure(config);
        config.auth_file = Some(passwords.path().to_owned());
    });
    let proxy = Proxy::start(server.address());
    let options = fred().tls(believing(&authority));
    let client = Client::new(&proxy.address(), options).unwrap();
    block_on(async {
        let lock = client
            .lock("k", &LockOptions::new().survive(Duration::from_secs(20)))
            .await
            .unwrap();
        proxy.cut();
        eventually(|| block_on(lock.check()).ok());
        assert!(lock.is_held());
        lock.release().await.unwrap();
    });
}

#[test]
fn large_values_go_both_ways_under_tls() {
    let authority = Authority::new();
    let server = latchd(|config| authority.secure(config));
    let options = ClientOptions::new().tls(believing(&authority));
    let client = Client::new(&server.address(), options).unwrap();
    let value: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    block_on(async {
        for _ in 0..4 {
            let stored = client.set("large", &value, Exptime::Never).await;
            assert_eq!(stored.unwrap(), Outcome::Done);
            let items = client.get_many(["large"; 4]).await.unwrap();
            for item in items {
                assert!(item.unwrap().value == value, "the bytes differ");
            }
        }
    });
}

#[test]
fn an_untrusted_server_gets_no_password() {
    let (authority, other) = (Authority::new(), Authority::new());
    let passwords = Passwords::new("impostor");
    let server = latchd(|config| {
        authority.secure(config);
        config.auth_file = Some(passwords.path().to_owned());
    });
    let plain = Started::latchd();
    let (secure, plain) = (server.address(), plain.address());
    for (address, tls, says) in [
        (&secure, believing(&other), "name the file of the authority"),
        (&secure, TlsOptions::new(), "name the file of the authority"),
        (
            &secure,
            believing(&authority).server_name("cache.example"),
            "say the name that is in its certificate",
        ),
        (&plain, believing(&authority), "does not speak TLS"),
    ] {
        let client = Client::new(address, fred().tls(tls)).unwrap();
        let error = block_on(client.get("k")).unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.server(), Some(&**address));
    }
    let client = Client::new(
        &secure,
        fred().tls(believing(&authority).server_name("localhost")),
    );
    assert!(block_on(client.unwrap().get("k")).unwrap().is_none());
    // Self-signed certificates.
    for (change, says) in [
        (
            (|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))
                as fn(&mut CertificateParams),
            "CA:FALSE",
        ),
        (
            |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1),
            "renew the certificate",
        ),
    ] {
        let shown = self_signed(&authority, change);
        let server = latchd(|config| config.tls = Some(authority.settings(&shown)));
        let tls = TlsOptions::new().ca_file(&shown.chain);
        let client = Client::new(&server.address(), ClientOptions::new().tls(tls)).unwrap();
        let error = block_on(client.get("k")).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    // A client without TLS, at a server with it.
    let client = Client::new(&secure, ClientOptions::new()).unwrap();
    let errors = block_on(async {
        [
            client.get("k").await.unwrap_err(),
            client
                .lock("k", &LockOptions::new().deadline(Duration::MAX))
                .await
                .unwrap_err(),
        ]
    });
    for error in errors {
        assert!(error.to_string().contains("turn TLS on"), "{error}");
    }
    let said = program(&["cli", "-s", &secure, "mn"], None).stderr;
    assert!(String::from_utf8(said).unwrap().contains("add --tls"));
}

/// A self-signed certificate, for 127.0.0.1.
fn self_signed(folder: &Authority, change: fn(&mut CertificateParams)) -> Certified {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    change(&mut params);
    let key = rcgen::KeyPair::generate().unwrap();
    let certified = Certified {
        chain: folder.folder().join("self.pem"),
        key: folder.folder().join("self.key"),
    };
    let certificate = params.self_signed(&key).unwrap();
    fs::write(&certified.chain, certificate.pem()).unwrap();
    fs::write(&certified.key, key.serialize_pem()).unwrap();
    certified
}

#[test]
fn a_certificate_is_shown_to_a_server_that_insists() {
    let authority = Authority::new();
    let server = latchd(|config| {
        authority.secure(config);
        let tls = config.tls.as_mut().unwrap();
        tls.client_certificate = ClientCertificate::Required;
    });
    let get = |tls| {
        let client = Client::new(&server.address(), ClientOptions::new().tls(tls)).unwrap();
        block_on(client.get("k"))
    };
    let ours = authority.certify("client");
    let shown = believing(&authority).certificate(&ours.chain, &ours.key);
    assert!(get(shown).unwrap().is_none());
    let error = get(believing(&authority)).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    let strange = Authority::new();
    let theirs = strange.certify("stranger");
    let shown = believing(&authority).certificate(&theirs.chain, &theirs.key);
    assert!(get(shown).unwrap_err().is_unreachable());
}

#[test]
fn file_errors_come_before_connecting() {
    let authority = Authority::new();
    let (ours, missing) = (
        authority.certify("files"),
        authority.folder().join("none.pem"),
    );
    for (address, tls, says) in [
        ("127.0.0.1", TlsOptions::new().ca_file(&missing), "none.pem"),
        (
            "127.0.0.1",
            TlsOptions::new().ca_file(&ours.key),
            "no certificate",
        ),
        (
            "127.0.0.1",
            believing(&authority).certificate(&ours.chain, &ours.chain),
            "no private key",
        ),
        (
            "127.0.0.1",
            believing(&authority).server_name("a b"),
            "`a b`",
        ),
        ("/tmp/latchd.sock", believing(&authority), "Unix socket"),
    ] {
        let error = Client::new(address, ClientOptions::new().tls(tls)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Tls(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// `latchd` with these arguments.
fn program(arguments: &[&str], password: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("LATCHD_PASSWORD");
    if let Some(password) = password {
        command.env("LATCHD_PASSWORD", password);
    }
    command.output().unwrap()
}

#[test]
fn the_programs_speak_tls_and_show_a_password() {
    let (authority, passwords) = (Authority::new(), Passwords::new("programs"));
    let server = latchd(|config| {
        authority.secure(config);
        let tls = config.tls.as_mut().unwrap();
        tls.client_certificate = ClientCertificate::Required;
        config.auth_file = Some(passwords.path().to_owned());
    });
    let (address, ours) = (server.address(), authority.certify("program"));
    let password = authority.folder().join("password");
    fs::write(&password, "pass word\nmore\n").unwrap();
    let (ca, password) = (authority.certificate(), password.to_str().unwrap());
    let (chain, key) = (ours.chain.to_str().unwrap(), ours.key.to_str().unwrap());
    let tls = [
        "--tls",
        "--tls-ca",
        ca.to_str().unwrap(),
        "--tls-cert",
        chain,
        "--tls-key",
        key,
    ];
    let user = ["--user", "fred"];
    let from_file = ["--password-file", password];
    let lock = ["lock", "--server", &address];
    let job = ["k", "--", "echo", "held"];
    let cli = ["cli", "-s", &address];
    let get = ["mn"];
    for (program_is_given, is_in) in [
        (vec![&tls[..], &user, &from_file], true),
        (vec![&tls[..], &user], false),
        (vec![&tls[..]], false),
        (vec![&user[..], &from_file], false),
    ] {
        let access = program_is_given.concat();
        for way in [&[][..], &["--ttl", "2"]] {
            let output = program(&[&lock, &access[..], way, &job].concat(), None);
            let code = if is_in { 0 } else { 125 };
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            assert_eq!(output.stdout == b"held\n", is_in, "{output:?}");
        }
        let output = program(&[&cli, &access[..], &get].concat(), None);
        assert_eq!(output.status.success(), is_in, "{output:?}");
        assert_eq!(output.stdout == b"MN\r\n", is_in, "{output:?}");
    }
    // The password from the environment, right and wrong.
    let arguments = [&cli[..], &tls, &user, &get].concat();
    assert!(program(&arguments, Some("pass word")).status.success());
    let refused = program(&arguments, Some("password"));
    assert_eq!(refused.status.code(), Some(69));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("does not know this name and password"),
        "{said}"
    );
    assert!(said.contains(&address) && !said.contains("fred"), "{said}");
    let none = program(&arguments, None);
    assert_eq!(none.status.code(), Some(2));
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(said.contains("LATCHD_PASSWORD"), "{said}");
}
