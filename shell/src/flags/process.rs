//! Flags about the process and not about what it serves.

use std::path::PathBuf;

use crate::log::Form;

/// What the program does around its server.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub(crate) struct Process {
    /// Run as a daemon: return as soon as clients are served
    #[arg(short = 'd', long)]
    pub(crate) daemon: bool,
    /// Become this user; ignored with a warning if this is not root
    #[arg(short = 'u', long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Write the number of the process to a file, and remove it at the end
    #[arg(short = 'P', long, value_name = "PATH")]
    pub(crate) pidfile: Option<PathBuf>,
    /// Keep all memory from being swapped out
    #[arg(short = 'k', long)]
    pub(crate) lock_memory: bool,
    /// Allow core files of any size
    #[arg(short = 'r', long)]
    pub(crate) enable_coredumps: bool,
    /// Log there instead of to standard error; SIGHUP opens it anew
    #[arg(long, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
    /// What the log looks like: text, or json, an object with time, level and message on each line
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::Text, hide_possible_values = true)]
    pub(crate) log: Form,
    /// Print the licence and end
    #[arg(short = 'i', long)]
    pub(crate) license: bool,
}
