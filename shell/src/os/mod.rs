//! What the program asks of the system for its own process: user, limits, files, the service manager.
//!
//! Uses the libraries and nothing of the program.

pub(crate) mod daemon;
pub(crate) mod descriptors;
pub(crate) mod handed_over;
pub(crate) mod pid_file;
pub(crate) mod privileges;
pub(crate) mod service_manager;
