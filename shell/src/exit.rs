//! The exit codes of all tasks: the same event has the same code in each, except in `latchd lock`.
//!
//! `latchd lock` passes on the code of its command, so its own failures are above those of most commands: as timeout(1).
//!
//! Source: sysexits(3) for 67 to 75, as memcached; timeout(1) for 125 to 127; POSIX shells for 128 and above.

/// The answer is no: not found, not stored, locked, no primary.
pub(crate) const NO: u8 = 1;
/// An option or a command is wrong, or the server refuses the request.
pub(crate) const USAGE: u8 = 2;
/// `EX_NOUSER`: the user of `-u` does not exist.
pub(crate) const NO_USER: u8 = 67;
/// `EX_UNAVAILABLE`: a server or etcd is unreachable, refuses the login, stops replying or replies wrongly.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `EX_SOFTWARE`: an assertion failed.
pub(crate) const SOFTWARE: u8 = 70;
/// `EX_OSERR`: the system refuses a resource, such as an address, a file, a descriptor or a thread.
pub(crate) const OS_ERROR: u8 = 71;
/// `EX_IOERR`: the output cannot be written, or the items of `-e` at the end of the server.
pub(crate) const IO_ERROR: u8 = 74;
/// `latchd lock` fails or loses the lock.
pub(crate) const LOCK_FAILED: u8 = 125;
/// The command of `latchd lock` cannot be started.
pub(crate) const NOT_STARTED: u8 = 126;
/// The command of `latchd lock` is not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the command of `latchd lock`, or the task.
pub(crate) const SIGNALLED: u8 = 128;

/// All codes with their causes: the manual page of the program, and the table in docs/OPERATIONS.md.
pub const TABLE: [(&str, &str); 12] = [
    ("0", "Success. Server: a signal or a client stopped it."),
    (
        "1",
        "The answer is no: not found, not stored, locked, no primary. `latchd lock`: another client holds the lock \
         (-E sets another code).",
    ),
    (
        "2",
        "An option or a command is wrong; the message says which. Or the server refused the request.",
    ),
    ("67", "The user of -u does not exist."),
    (
        "69",
        "The server or etcd is unreachable, refuses the login, stops replying or replies wrongly.",
    ),
    (
        "70",
        "An internal error; the last line of the log has its reason.",
    ),
    (
        "71",
        "The system refuses a resource: an address, a file, a descriptor, a process.",
    ),
    (
        "74",
        "The output cannot be written, as on a full disk. Server: the items of -e cannot be saved at its end.",
    ),
    (
        "75",
        "The term in a cluster is over: start the process again, as a standby.",
    ),
    (
        "125",
        "`latchd lock` fails in any of these ways, or loses the lock.",
    ),
    (
        "126, 127",
        "The command of `latchd lock` cannot be started, or is not found.",
    ),
    (
        "128 and above",
        "A signal ended the command of `latchd lock`, or the task: 128 plus its number.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_read_the_same_table() {
        let operations = include_str!("../../docs/OPERATIONS.md");
        for (code, _) in TABLE {
            let row = format!("\n| {code} | ");
            assert!(operations.contains(&row), "no row of {code}");
        }
    }
}
