//! Which parts of the server, of its part in a cluster, and of the program may import which others.
//!
//! A part is a folder or a file beside `lib.rs` or `main.rs`. The tables name them from the bottom
//! up: a part may import only the parts that its row names, and each of these stands in a row
//! above. So there is no cycle of parts. A `use` names one part.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A part, and the parts that it may import.
type Row = (&'static str, &'static [&'static str]);

const SERVER: &[Row] = &[
    ("os", &[]),
    ("cluster", &[]),
    ("config", &[]),
    ("saved", &[]),
    ("sync", &[]),
    ("beliefs", &["config", "os", "sync"]),
    ("stats", &["config", "os", "sync"]),
    ("net", &["config", "os", "stats", "sync"]),
    ("clients", &["net", "stats", "sync"]),
    ("shards", &["clients", "os", "stats", "sync"]),
    ("memory_file", &["os", "saved", "shards", "sync"]),
    (
        "server_state",
        &[
            "beliefs", "clients", "cluster", "config", "net", "os", "shards", "stats", "sync",
        ],
    ),
    (
        "election",
        &[
            "clients",
            "cluster",
            "config",
            "memory_file",
            "net",
            "os",
            "server_state",
            "sync",
        ],
    ),
    (
        "worker",
        &[
            "clients",
            "net",
            "os",
            "shards",
            "server_state",
            "stats",
            "sync",
        ],
    ),
    (
        "acceptor",
        &["clients", "net", "os", "server_state", "sync"],
    ),
    ("time_keeper", &["clients", "server_state", "sync"]),
    (
        "status",
        &[
            "clients",
            "cluster",
            "config",
            "server_state",
            "stats",
            "sync",
        ],
    ),
    (
        "server",
        &[
            "acceptor",
            "beliefs",
            "clients",
            "config",
            "election",
            "memory_file",
            "net",
            "os",
            "server_state",
            "status",
            "sync",
            "time_keeper",
            "worker",
        ],
    ),
];

const CLUSTER: &[Row] = &[
    ("election", &[]),
    ("answer_times", &[]),
    ("etcd", &["election"]),
    ("host", &["election"]),
    ("serving_lease", &["host"]),
    ("partitions", &["election"]),
    ("random_id", &["election"]),
    ("settings", &["election", "etcd", "partitions"]),
    (
        "member",
        &[
            "answer_times",
            "election",
            "etcd",
            "serving_lease",
            "partitions",
            "settings",
        ],
    ),
    (
        "endpoints",
        &["election", "etcd", "host", "member", "settings"],
    ),
    (
        "candidate",
        &[
            "election",
            "endpoints",
            "etcd",
            "serving_lease",
            "host",
            "member",
            "partitions",
            "settings",
        ],
    ),
    (
        "candidacy",
        &[
            "candidate",
            "election",
            "etcd",
            "host",
            "member",
            "random_id",
            "settings",
        ],
    ),
    ("verify", &["election"]),
];

const PROGRAM: &[Row] = &[
    ("exit", &[]),
    ("log", &[]),
    ("os", &[]),
    ("output", &["exit"]),
    ("flags", &["log"]),
    ("check", &["exit", "flags", "log", "os", "output"]),
    ("bench", &["exit", "flags", "os", "output"]),
    ("cli", &["exit", "flags", "os", "output"]),
    ("cluster", &["flags", "output"]),
    ("locks", &["cli", "output"]),
    ("lock", &["cli", "exit", "flags", "locks", "os", "output"]),
    (
        "args",
        &["bench", "check", "cli", "cluster", "flags", "lock", "locks"],
    ),
];

#[test]
fn server_parts_import_only_allowed_parts() {
    assert_eq!(faults("shell/server/src", SERVER), [""; 0]);
}

#[test]
fn cluster_parts_import_only_allowed_parts() {
    assert_eq!(faults("shell/cluster/src", CLUSTER), [""; 0]);
}

/// It has no clock, socket or thread: these are in the standard library.
#[test]
fn election_names_no_standard_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shell/cluster/src/election");
    let files = sources(&root);
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).expect("a file of ours can be read");
        let mut code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or(line));
        assert!(
            !code.any(|code| code.contains("std::")),
            "{}",
            file.display()
        );
    }
}

#[test]
fn program_parts_import_only_allowed_parts() {
    assert_eq!(faults("shell/src", PROGRAM), [""; 0]);
}

#[test]
fn imports_are_found_wherever_they_stand() {
    let text = "//! [`crate::seen`]\nuse crate::os;\nfn f() { crate::sync::touch(crate::Config) } // crate::no\n\
                use crate::{net, worker};\n#[cfg(test)]\nmod tests { use crate::status; }";
    let found: Vec<_> = imports(text).into_iter().collect();
    assert_eq!(found, ["os", "sync", "{"]);
}

/// The mistakes of the parts in a folder, or of their table.
fn faults(folder: &str, table: &[Row]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let mut faults = Vec::new();
    let mut parts = BTreeSet::new();
    for entry in fs::read_dir(&root).expect("the parts can be listed") {
        let path = entry.expect("a folder can be read").path();
        let part = path
            .file_stem()
            .and_then(OsStr::to_str)
            .expect("a part has a name")
            .to_owned();
        if !["lib", "main"].contains(&part.as_str()) {
            parts.insert(part);
        }
    }
    for (at, (part, allowed)) in table.iter().enumerate() {
        if !parts.remove(*part) {
            faults.push(format!("{folder} has no {part}: remove its row"));
        }
        let above = |name: &&&str| table[..at].iter().all(|(row, _)| *row != **name);
        faults.extend(
            allowed.iter().filter(above).map(|name| {
                format!("{part} may import {name}, which has no row above it: a circle")
            }),
        );
        let (beside, inside) = (root.join(format!("{part}.rs")), root.join(part));
        let mut imported = BTreeSet::new();
        for file in [beside]
            .into_iter()
            .filter(|file| file.exists())
            .chain(sources(&inside))
        {
            let text = fs::read_to_string(&file).expect("a file of ours can be read");
            for name in imports(&text).into_iter().filter(|name| name != part) {
                if !allowed.contains(&name.as_str()) {
                    faults.push(format!(
                        "{} imports {name}, which {part} may not",
                        file.display()
                    ));
                }
                imported.insert(name);
            }
        }
        let is_unused = |name: &&&str| !imported.contains(**name);
        faults.extend(
            allowed
                .iter()
                .filter(is_unused)
                .map(|name| format!("{part} does not import {name}: remove it from the row")),
        );
    }
    faults.extend(
        parts
            .iter()
            .map(|part| format!("{folder}/{part} has no row")),
    );
    faults
}

/// The files of a folder and of those in it that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a folder can be read").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            files.push(path);
        }
    }
    files
}

/// The modules below `crate` that a file names, outside comments and its tests at the end; `{` for a group of them.
fn imports(text: &str) -> BTreeSet<String> {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut found = BTreeSet::new();
    for line in shipped.lines() {
        let code = line.split("//").next().unwrap_or(line);
        for rest in code.split("crate::").skip(1) {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let name = rest.split(|letter| !is_name(letter)).next().unwrap_or(rest);
            if name.is_empty() {
                found.insert("{".to_owned());
            } else if name.starts_with(|letter: char| letter.is_ascii_lowercase()) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}
