//! Checks whether a rename can put a file at a path, as a server does when it ends. The server checks this
//! when it starts.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

/// The permission bit of a folder, such as `/tmp`, in which only the owner of a file can replace it.
const STICKY: u32 = 0o1000;

/// Checks whether the user of this process can rename a file to `path` now.
///
/// # Errors
/// The obstacle: a directory or another file that is not regular, or a folder that is missing or not
/// writable.
pub fn may_replace(path: &Path) -> io::Result<()> {
    let other = |what: &str| Err(io::Error::other(what.to_owned()));
    if path.file_name().is_none() {
        return other("the path has no file name");
    }
    match fs::metadata(path) {
        Ok(file) if file.is_dir() => return other("is a directory; name a file"),
        Ok(file) if !file.is_file() => return other("not a regular file"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    let me = geteuid();
    let is_mine = |file: &fs::Metadata| file.uid() == me.as_raw();
    let folder = fs::metadata(folder)?;
    let is_protected = folder.mode() & STICKY != 0 && !is_mine(&folder) && !me.is_root();
    if is_protected && fs::symlink_metadata(path).is_ok_and(|file| !is_mine(&file)) {
        return other(
            "the file belongs to another user, and only its owner can replace it in this directory",
        );
    }
    Ok(())
}
