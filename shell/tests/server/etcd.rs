//! The authority over a real etcd.

use latchd_cluster::election::{Answer, Authority, Found};
use latchd_cluster::{AuthorityError, AuthorityLogin, AuthorityOptions, Endpoint, Etcd};
use rustix::process::Signal;

use crate::certificates;
use crate::etcd_process::EtcdProcess;

fn options(etcd: &EtcdProcess) -> AuthorityOptions {
    AuthorityOptions::new(vec![etcd.url().parse().unwrap()])
}

fn endpoint(options: &AuthorityOptions) -> Endpoint {
    Etcd::new(options).unwrap().endpoints().remove(0)
}

/// Calls until there is an answer: a slow machine may need longer than the limit.
fn answered<T>(mut ask: impl FnMut() -> Result<T, AuthorityError>) -> T {
    for _ in 0..100 {
        match ask() {
            Ok(answer) => return answer,
            Err(AuthorityError::Late) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("there is no answer")
}

/// The error other than a late answer.
fn refused<T: std::fmt::Debug>(
    mut ask: impl FnMut() -> Result<T, AuthorityError>,
) -> AuthorityError {
    for _ in 0..100 {
        match ask() {
            Err(AuthorityError::Late) => {}
            Err(error) => return error,
            Ok(answer) => panic!("{answer:?}"),
        }
    }
    panic!("there is no answer")
}

fn swapped(answer: Answer) -> u64 {
    match answer {
        Answer::Swapped { revision } => revision,
        Answer::Found(found) => panic!("{found:?}"),
    }
}

#[test]
fn etcd_compares_and_swaps() {
    let Some(etcd) = EtcdProcess::start(&[]) else {
        return;
    };
    let mut endpoint = endpoint(&options(&etcd));
    let key = "/latchd/shop/partition/cache-a:11211";
    assert_eq!(answered(|| endpoint.read(key)), None);
    let revision = swapped(endpoint.swap(key, None, "one").unwrap());
    let one = Found {
        revision,
        value: "one".into(),
    };
    assert_eq!(answered(|| endpoint.read(key)), Some(one.clone()));
    let taken = endpoint.swap(key, None, "two").unwrap();
    assert_eq!(taken, Answer::Found(Some(one.clone())));
    // The revision decides, and the value too.
    let mut other = one.clone();
    other.value = "two".into();
    let kept = endpoint.swap(key, Some(&other), "three").unwrap();
    assert_eq!(kept, Answer::Found(Some(one.clone())));
    other = one.clone();
    other.revision += 1;
    let kept = endpoint.swap(key, Some(&other), "three").unwrap();
    assert_eq!(kept, Answer::Found(Some(one.clone())));
    let second = swapped(endpoint.swap(key, Some(&one), "").unwrap());
    assert!(second > revision);
    let two = Found {
        revision: second,
        value: String::new(),
    };
    assert_eq!(answered(|| endpoint.read(key)), Some(two.clone()));
    let none = endpoint.swap("/latchd/shop/none", Some(&two), "x").unwrap();
    assert_eq!(none, Answer::Found(None));

    swapped(endpoint.swap("/latchd/shop/ring", None, "ring").unwrap());
    swapped(endpoint.swap("/latchd/shop0", None, "other").unwrap());
    let keys: Vec<_> = endpoint
        .list("/latchd/shop/")
        .unwrap()
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, [key, "/latchd/shop/ring"]);
    assert_eq!(endpoint.list("/latchd/none/"), Ok(Vec::new()));
}

#[test]
fn an_etcd_that_stops_is_late_and_comes_back() {
    let Some(mut etcd) = EtcdProcess::start(&[]) else {
        return;
    };
    let mut endpoint = endpoint(&options(&etcd));
    let revision = swapped(endpoint.swap("k", None, "v").unwrap());
    etcd.pause();
    assert_eq!(endpoint.read("k"), Err(AuthorityError::Late));
    assert_eq!(endpoint.swap("k", None, "w"), Err(AuthorityError::Late));
    etcd.signal(Signal::CONT);
    let found = Some(Found {
        revision,
        value: "v".into(),
    });
    assert_eq!(answered(|| endpoint.read("k")), found);
    etcd.restart();
    // The connection to the process before may still seem open.
    let _ = endpoint.read("k");
    assert_eq!(answered(|| endpoint.read("k")), found);
    etcd.stop();
    let _ = endpoint.read("k");
    let error = endpoint.read("k").unwrap_err().to_string();
    assert!(
        error.starts_with("unreachable: connection refused"),
        "{error}"
    );
}

#[test]
fn a_login_is_renewed_when_etcd_restarts() {
    let Some(mut etcd) = EtcdProcess::start(&[]) else {
        return;
    };
    let with = |user: &str, password: &str| {
        let mut options = options(&etcd);
        options.login = Some(AuthorityLogin::new(user, password).unwrap());
        endpoint(&options)
    };
    // A login without users in etcd has no effect.
    let (mut latchd, mut wrong) = (with("latchd", "secret"), with("latchd", "secreter"));
    let mut nobody = endpoint(&options(&etcd));
    assert_eq!(answered(|| latchd.read("/latchd/k")), None);
    etcd.add_users();
    assert_eq!(answered(|| latchd.read("/latchd/k")), None);
    swapped(answered(|| latchd.swap("/latchd/k", None, "v")));
    let said = |error: AuthorityError| error.to_string();
    let error = said(refused(|| latchd.read("/other")));
    assert_eq!(error, "authentication: etcdserver: permission denied");
    let error = said(refused(|| wrong.read("/latchd/k")));
    assert!(
        error.starts_with("authentication: etcdserver: authentication failed"),
        "{error}"
    );
    let error = said(refused(|| nobody.read("/latchd/k")));
    assert!(
        error.starts_with("authentication: etcdserver: user name is empty"),
        "{error}"
    );
    // A restarted etcd has forgotten its tokens.
    etcd.restart();
    let _ = latchd.read("/latchd/k");
    assert!(answered(|| latchd.read("/latchd/k")).is_some());
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let authority = certificates::Authority::new();
    let (server, client) = (authority.certify("etcd"), authority.certify("latchd"));
    let flag = |name: &str, path: &std::path::Path| format!("--{name}={}", path.display());
    let flags = [
        flag("cert-file", &server.chain),
        flag("key-file", &server.key),
        flag("trusted-ca-file", &authority.certificate()),
        "--client-cert-auth".into(),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let Some(etcd) = EtcdProcess::start(&flags) else {
        return;
    };
    let mut options = options(&etcd);
    options.ca_file = Some(authority.certificate());
    let said = |options: &AuthorityOptions| {
        let mut endpoint = endpoint(options);
        refused(|| endpoint.read("k")).to_string()
    };
    let nameless = said(&options);
    // The alert of etcd may be lost with the connection.
    let is_named = nameless.starts_with("authentication: TLS: received fatal alert");
    let is_empty = nameless.starts_with("authentication: empty reply; check --authority-cert");
    assert!(is_named || is_empty, "{nameless}");
    options.certificate = Some(client.chain.clone());
    options.key = Some(client.key);
    assert_eq!(answered(|| endpoint(&options).read("k")), None);
    let other = certificates::Authority::new();
    options.ca_file = Some(other.certificate());
    let untrusted = said(&options);
    assert!(
        untrusted.starts_with("unreachable: TLS: invalid peer certificate: UnknownIssuer"),
        "{untrusted}"
    );
    let plain = AuthorityOptions::new(vec![etcd.url().replace("https", "http").parse().unwrap()]);
    assert_eq!(
        said(&plain),
        "authentication: empty reply; if etcd requires TLS, write https:// in the URL"
    );

    // A key of another certificate, and a file without one, are found before anything is sent.
    options.key = Some(server.key);
    let error = Etcd::new(&options).unwrap_err().to_string();
    assert!(
        error.contains("latchd.pem") || error.contains("etcd.key"),
        "{error}"
    );
    options.key = Some(authority.certificate());
    let error = Etcd::new(&options).unwrap_err().to_string();
    assert!(error.contains("authority.pem: no private key"), "{error}");
    options.ca_file = Some(authority.folder().join("none.pem"));
    let error = Etcd::new(&options).unwrap_err().to_string();
    assert!(error.contains("none.pem: No such file"), "{error}");
}

#[test]
fn reloaded_certificates_apply_to_the_next_request() {
    let (old, new) = (
        certificates::Authority::new(),
        certificates::Authority::new(),
    );
    // Its gateway is a client of etcd too, with the certificate of the server.
    let server = new.certify("etcd");
    let flag = |name: &str, path: &std::path::Path| format!("--{name}={}", path.display());
    let flags = [
        flag("cert-file", &server.chain),
        flag("key-file", &server.key),
        flag("trusted-ca-file", &new.certificate()),
        "--client-cert-auth".into(),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let Some(etcd) = EtcdProcess::start(&flags) else {
        return;
    };
    // etcd does not trust this certificate.
    let client = old.certify("latchd");
    let mut options = options(&etcd);
    options.ca_file = Some(new.certificate());
    (options.certificate, options.key) = (Some(client.chain.clone()), Some(client.key.clone()));
    let authority = Etcd::new(&options).unwrap();
    let mut endpoint = authority.endpoints().remove(0);
    refused(|| endpoint.read("k"));

    let renewed = new.certify("latchd");
    std::fs::copy(&renewed.chain, &client.chain).unwrap();
    let error = authority.reload().unwrap_err().to_string();
    assert!(error.contains("latchd.key"), "{error}");
    std::fs::copy(&renewed.key, &client.key).unwrap();
    authority.reload().unwrap();
    assert_eq!(answered(|| endpoint.read("k")), None);
    std::fs::write(&client.key, "no key").unwrap();
    let error = authority.reload().unwrap_err().to_string();
    assert!(error.contains("latchd.key: no private key"), "{error}");
    assert_eq!(answered(|| endpoint.read("k")), None, "R1");
}

#[test]
fn tls_to_an_etcd_without_it_is_named() {
    let Some(etcd) = EtcdProcess::start(&[]) else {
        return;
    };
    let authority = certificates::Authority::new();
    let url = etcd.url().replace("http", "https");
    let mut options = AuthorityOptions::new(vec![url.parse().unwrap()]);
    options.ca_file = Some(authority.certificate());
    let mut endpoint = endpoint(&options);
    let said = refused(|| endpoint.read("k")).to_string();
    let expected =
        "authentication: empty reply; check --authority-cert; if etcd has no TLS, write http://";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn an_etcd_without_its_gateway_is_named() {
    let Some(etcd) = EtcdProcess::start(&["--enable-grpc-gateway=false"]) else {
        return;
    };
    let mut endpoint = endpoint(&options(&etcd));
    assert_eq!(refused(|| endpoint.read("k")), AuthorityError::NoGateway);
}

#[test]
fn an_etcd_without_space_is_named() {
    let Some(etcd) = EtcdProcess::start(&["--quota-backend-bytes", "100000"]) else {
        return;
    };
    let mut endpoint = endpoint(&options(&etcd));
    let value = "x".repeat(50_000);
    let written = (0..100).map(|number| endpoint.swap(&format!("k{number}"), None, &value));
    let error = written
        .filter_map(Result::err)
        .find(|error| *error != AuthorityError::Late);
    assert_eq!(error, Some(AuthorityError::NoSpace));
    assert!(answered(|| endpoint.read("k0")).is_some());
}

#[test]
fn two_etcd_clusters_are_no_authority() {
    let (Some(one), Some(other)) = (EtcdProcess::start(&[]), EtcdProcess::start(&[])) else {
        return;
    };
    let urls = [&one, &other].map(|etcd| etcd.url().parse().unwrap());
    let etcd = Etcd::new(&AuthorityOptions::new(urls.into())).unwrap();
    let mut endpoints = etcd.endpoints();
    assert_eq!(answered(|| endpoints[0].read("k")), None);
    let error = refused(|| endpoints[1].read("k"));
    assert!(
        matches!(error, AuthorityError::OtherCluster { .. }),
        "{error}"
    );
    assert_eq!(answered(|| endpoints[0].read("k")), None);
}
