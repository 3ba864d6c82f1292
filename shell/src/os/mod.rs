//! Services of the system for this process: user, limits, files, the service manager.
//!
//! Uses only libraries, and no other module of this program.

pub(crate) mod daemon;
pub(crate) mod descriptors;
pub(crate) mod handed_over;
pub(crate) mod pid_file;
pub(crate) mod privileges;
pub(crate) mod processes;
pub(crate) mod reactor;
pub(crate) mod service_manager;
