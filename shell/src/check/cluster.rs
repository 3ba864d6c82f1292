//! Checks the authority, the ring and the state directory of a member of a cluster.

use std::path::Path;

use latchd_cluster::election::{Authority, Found, ring_key};
use latchd_cluster::{ClusterSettings, Endpoint, Etcd};
use rustix::fs::{Access, access};

use super::Finding;

/// A revision that no record has: the largest number that etcd knows.
const NO_REVISION: u64 = i64::MAX as u64;

/// Checks each endpoint with a read and a compare-and-swap that changes nothing, then the ring.
pub(super) fn look(settings: &ClusterSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(settings.state.as_deref().map(state));
    let etcd = match Etcd::new(&settings.authority) {
        Ok(etcd) => etcd,
        Err(error) => {
            findings.push(Finding::failure(format!("--authority: {error}")));
            return findings;
        }
    };
    // A name that the flags have passed is legal.
    let Some(key) = ring_key(&settings.cluster) else {
        return findings;
    };
    let mut ring = None;
    let mut silent = Vec::new();
    for mut endpoint in etcd.endpoints() {
        match asked(&mut endpoint, &key) {
            Ok(found) => {
                let url = endpoint.url();
                findings.push(Finding::good(format!("--authority {url} answers")));
                ring.get_or_insert(found);
            }
            Err(why) => silent.push(format!("--authority {}: {why}", endpoint.url())),
        }
    }
    let Some(ring) = ring else {
        findings.extend(silent.into_iter().map(Finding::failure));
        return findings;
    };
    findings.extend(silent.into_iter().map(Finding::warning));
    let value = ring.as_ref().map(|found| &*found.value);
    let partition = &settings.partition;
    findings.push(match settings.ring(value) {
        Ok(_) => Finding::good(format!(
            "{partition} is a partition of {}",
            settings.cluster
        )),
        Err(why) => Finding::failure(why),
    });
    findings
}

/// Reads the ring, and compares it with a record that it cannot be, so nothing is swapped.
fn asked(endpoint: &mut Endpoint, key: &str) -> Result<Option<Found>, String> {
    let found = endpoint.read(key).map_err(|error| error.to_string())?;
    let never = Found {
        revision: NO_REVISION,
        value: String::new(),
    };
    let swapped = endpoint.swap(key, Some(&never), "");
    swapped.map_err(|error| format!("no compare-and-swap: {error}"))?;
    Ok(found)
}

/// Checks a state directory, with an authority or without.
pub(super) fn state(directory: &Path) -> Finding {
    let shown = directory.display();
    match access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if directory.is_dir() => Finding::good(format!("--state {shown} is writable")),
        Ok(()) => Finding::failure(format!("--state {shown} is no directory")),
        Err(errno) => Finding::failure(format!("--state {shown} is not writable: {errno}")),
    }
}
