//! Whether a file can be put at a path by a rename, as a server does at its end: asked at its start.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

/// The bit of a folder, such as `/tmp`, in which files are replaced by their owners alone.
const STICKY: u32 = 0o1000;

/// Whether a file could be put at `path` by a rename now, by the user that the process is.
///
/// # Errors
/// What is in the way: a directory, or anything else that is no regular file; or a folder that is not there,
/// or that the user may not change.
pub fn may_replace(path: &Path) -> io::Result<()> {
    let other = |what: &str| Err(io::Error::other(what.to_owned()));
    if path.file_name().is_none() {
        return other("it has no file name");
    }
    match fs::metadata(path) {
        Ok(file) if file.is_dir() => return other("it is a directory; name a file"),
        Ok(file) if !file.is_file() => return other("it is no regular file"),
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
        return other("it is another user's, in a folder where its owner alone can replace it");
    }
    Ok(())
}
