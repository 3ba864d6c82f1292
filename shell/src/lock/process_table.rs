//! The processes of this machine, as proc(5) shows them.

use std::fs;

use nix::unistd::{self, Pid};

/// All processes. None without `/proc`.
pub(super) fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw)
}

/// The group of a process. `None` if the process is reaped, or if the group is outside this namespace (its number is
/// 0), as that of a container's first process may be.
///
/// Source: `pid_namespaces(7)`.
pub(super) fn group_of(pid: Pid) -> Option<Pid> {
    let group = unistd::getpgid(Some(pid)).ok()?;
    (group.as_raw() > 0).then_some(group)
}

/// The parent of a process. `None` if the parent is outside this namespace.
pub(super) fn parent_of(pid: Pid) -> Option<Pid> {
    let parent: i32 = field(pid, 4)?.parse().ok()?;
    (parent > 0).then(|| Pid::from_raw(parent))
}

/// Whether a process has ended, although its parent may not have reaped it.
pub(super) fn has_ended(pid: Pid) -> bool {
    field(pid, 3).is_none_or(|state| state == "Z" || state == "X")
}

/// A field of proc(5) `stat`, from 3 on: counted from behind the name, which may contain blanks.
fn field(pid: Pid, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let field = stat.rsplit(") ").next()?.split(' ').nth(number - 3)?;
    Some(field.to_owned())
}
