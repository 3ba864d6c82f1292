//! Flags about the process itself.

use std::path::PathBuf;

use super::{LOGGING, PROCESS};
use crate::log::Form;

/// Settings of the process around the server.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub(crate) struct Process {
    /// Run as a daemon; return once the server accepts clients
    #[arg(short = 'd', long, help_heading = PROCESS)]
    pub(crate) daemon: bool,
    /// Run as this user; ignored with a warning unless started by root
    #[arg(short = 'u', long, value_name = "NAME", help_heading = PROCESS)]
    pub(crate) user: Option<String>,
    /// Write the process id to this file; remove it on exit
    #[arg(short = 'P', long, value_name = "PATH", help_heading = PROCESS)]
    pub(crate) pidfile: Option<PathBuf>,
    /// Lock all memory, so it is never swapped out
    #[arg(short = 'k', long, help_heading = PROCESS)]
    pub(crate) lock_memory: bool,
    /// Allow core files of any size
    #[arg(short = 'r', long, help_heading = PROCESS)]
    pub(crate) enable_coredumps: bool,
    /// Log to this file instead of standard error; SIGHUP reopens it
    #[arg(long, value_name = "PATH", help_heading = LOGGING)]
    pub(crate) log_file: Option<PathBuf>,
    /// Write log lines as text, or as json: one object per line
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::Text, hide_possible_values = true,
        help_heading = LOGGING)]
    pub(crate) log: Form,
    /// Print the licence and exit
    #[arg(short = 'i', long, help_heading = PROCESS)]
    pub(crate) license: bool,
}
