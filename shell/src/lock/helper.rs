//! Helper processes of `latchd lock`. Work between a fork and the command needs a new program, because this program
//! has no `unsafe`.
//!
//! - `__command` takes the terminal if its parent has it, asks the kernel to kill it with its parent, and then
//!   becomes the command. So the command never reads the terminal too early.
//! - `__guard` has its own process group, and watches the command for its parent (`guard.rs`).
//! - `__leader` leads the command's process group, and ends once the command runs. Its parent does not reap it, so the
//!   number of the group stays reserved (`signalled.rs`).
//! - `__die` ends by a signal, as the parent of an interrupted command expects.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process, waitpid};

use super::guard::{Guard, be_guard};
use super::held::Held;
use super::inherited;
use super::keys::Job;
use super::signalled::Place;
use super::terminal::Terminal;
use super::{EXIT_FAILED, LockArgs, failed, signalled};
use crate::exit;
use crate::output::{Failure, complain};

/// This program, on Linux.
pub(super) const PROGRAM: &str = "/proc/self/exe";

const COMMAND: &str = "__command";
const GUARD: &str = "__guard";
const LEADER: &str = "__leader";
const DIE: &str = "__die";

/// In place of the parent's process id: the command may outlive the parent.
const NOBODY: i32 = 0;

/// The first key, and the fencing token of its lock.
const KEY: &str = "LATCHD_LOCK_KEY";
const NUMBER: &str = "LATCHD_LOCK_NUMBER";
/// All keys, and the fencing tokens of their locks, one per line.
const KEYS: &str = "LATCHD_LOCK_KEYS";
const NUMBERS: &str = "LATCHD_LOCK_NUMBERS";

/// The longest list in a variable, in bytes. Source: execve(2), 128 KiB with the name and a zero byte.
const LIST_BYTES_MAX: usize = 127 << 10;

/// The command stays stopped until the parent can observe its end.
const HOLD: &str = "hold";
/// The command starts at once.
const GO: &str = "go";

/// A running command.
pub(super) struct Started {
    /// The command and its group.
    pub(super) place: Place,
    /// Its guard, unless it may outlive this process.
    pub(super) guard: Option<Guard>,
    is_on_hold: bool,
    /// The leader of the group ends when this is closed.
    leader: Option<ChildStdin>,
}

impl Started {
    /// Continues a command that was started on hold, and ends the leader of its group. This process must receive CHLD
    /// by now: if it ignored CHLD, the kernel would reap the leader.
    ///
    /// # Errors
    /// The system's, for instance if the child has been killed.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.leader = None;
        if self.is_on_hold {
            kill_process(self.place.command, Signal::CONT)?;
        }
        Ok(())
    }
}

/// Starts the command in a process group beside this one. With `on_hold` it is stopped until
/// [`release`](Started::release), because this process would miss its end until then.
///
/// # Errors
/// The system's, if no process can be started. If the command is missing or cannot be started, its process prints a
/// message and the exit code tells it.
pub(super) fn start(args: &LockArgs, job: &Job, held: &Held, on_hold: bool) -> io::Result<Started> {
    let pipe_to = |role| -> io::Result<_> {
        let mut helper = helper_at_a_pipe(role)?;
        let no_pipe = || io::Error::other("no pipe");
        Ok((
            pid_of(helper.id())?,
            helper.stdin.take().ok_or_else(no_pipe)?,
        ))
    };
    let guard = if args.inherit {
        None
    } else {
        Some(pipe_to(GUARD)?.1)
    };
    let (group, leader) = pipe_to(LEADER)?;
    let parent = if args.inherit {
        NOBODY
    } else {
        getpid().as_raw_nonzero().get()
    };
    let mut command = this_program(COMMAND);
    command
        .arg(parent.to_string())
        .arg(if on_hold { HOLD } else { GO })
        .args(&job.command)
        .process_group(group.as_raw_pid());
    set_variables(&mut command, held);
    let child = command.spawn()?;
    let pid = pid_of(child.id())?;
    if on_hold {
        waitpid(Some(pid), WaitOptions::UNTRACED)?;
    }
    let place = Place {
        group,
        command: pid,
    };
    Ok(Started {
        place,
        guard: guard.map(|pipe| Guard::of(pipe, place)),
        is_on_hold: on_hold,
        leader: Some(leader),
    })
}

/// Sets the command's variables. Those that are left out are removed, since an outer `latchd lock` may have set them.
fn set_variables(command: &mut Command, held: &Held) {
    let keys: Vec<_> = held.lock.keys().collect();
    let first = keys.first().copied().unwrap_or_default();
    command.env(KEY, OsStr::from_bytes(first));
    let fences = held.lock.fences();
    let numbers: Vec<_> = fences.map(|fence| fence.number().to_string()).collect();
    let (keys_list, numbers_list) = (keys.join(&b'\n'), numbers.join("\n"));
    let is_plain = !keys.iter().any(|key| key.contains(&b'\n'));
    let is_short = keys_list.len().max(numbers_list.len()) <= LIST_BYTES_MAX;
    if is_plain && is_short {
        command.env(KEYS, OsStr::from_bytes(&keys_list));
    } else {
        complain(&format!(
            "{KEYS} and {NUMBERS} are not set: a key contains a line end, or a list exceeds 127 KiB"
        ));
        command.env_remove(KEYS);
    }
    match numbers.first() {
        Some(first) => command.env(NUMBER, first),
        None => command.env_remove(NUMBER),
    };
    if is_plain && is_short && !numbers.is_empty() {
        command.env(NUMBERS, numbers_list);
    } else {
        command.env_remove(NUMBERS);
    }
}

/// Ends this process by a signal.
pub(super) fn die_of(signal: i32) -> ExitCode {
    // A new program has the default signal handlers again.
    let error = this_program(DIE).arg(signal.to_string()).exec();
    complain(&format!("cannot end by signal {signal}: {error}"));
    signalled(signal)
}

/// Runs a helper process. `None` if this process is not a helper.
pub(crate) fn run() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    match args.next()?.to_str()? {
        COMMAND => Some(become_command(args).unwrap_or_else(|failure| failure.report().into())),
        GUARD => Some(be_guard()),
        LEADER => Some(be_leader()),
        DIE => Some(die(args)),
        _ => None,
    }
}

/// A helper in a process group of its own, with a pipe from this process as its standard input.
fn helper_at_a_pipe(role: &str) -> io::Result<Child> {
    this_program(role)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
}

/// Leads a process group until the pipe is closed.
fn be_leader() -> ExitCode {
    // An error ends it too.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    ExitCode::SUCCESS
}

/// This program, even if its file has been replaced since.
fn this_program(role: &str) -> Command {
    let path = if cfg!(target_os = "linux") {
        Ok(PROGRAM.into())
    } else {
        env::current_exe()
    };
    let mut command = Command::new(path.unwrap_or_else(|_| "latchd".into()));
    command.arg0("latchd").arg(role);
    command
}

fn pid_of(id: u32) -> io::Result<Pid> {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::Error::other("a process has a number"))
}

fn become_command(mut args: impl Iterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let parent = number(args.next()).and_then(Pid::from_raw);
    if args.next().is_some_and(|word| word == HOLD) {
        // The parent notices the stop and continues this process.
        let _ = kill_process(getpid(), Signal::STOP);
    }
    take_terminal().map_err(failed)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    die_with(parent).map_err(failed)?;
    if parent.is_some() && getppid() != parent {
        // The parent died before this process asked the kernel to kill it with the parent.
        return Ok(signalled(Signal::KILL.as_raw()));
    }
    let Some(program) = args.next() else {
        return Ok(ExitCode::from(EXIT_FAILED));
    };
    let error = Command::new(&program).args(args).exec();
    let code = if error.kind() == io::ErrorKind::NotFound {
        exit::NOT_FOUND
    } else {
        exit::NOT_STARTED
    };
    let why = format!("cannot start {}: {error}", program.to_string_lossy());
    Err(Failure::new(code, why))
}

/// Takes the terminal if the parent has it. Restores the signal mask for the command.
fn take_terminal() -> io::Result<()> {
    if let Some(terminal) = Terminal::open() {
        let mask = SigSet::thread_get_mask()?;
        inherited::block_ttou()?;
        terminal.take_over();
        mask.thread_set_mask()?;
    }
    Ok(())
}

/// Source: prctl(2), `PR_SET_PDEATHSIG`. The setting survives exec.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with(parent: Option<Pid>) -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(parent.map(|_| Signal::KILL))
}

fn die(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let signal = number(args.next()).unwrap_or_default();
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(getpid(), signal);
    }
    // The signal was ignored.
    signalled(signal)
}

fn number(arg: Option<OsString>) -> Option<i32> {
    arg?.to_str()?.parse().ok()
}
