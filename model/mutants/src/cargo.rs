//! The messages of cargo about its builds.

use std::path::PathBuf;
use std::process::Output;

use serde::Deserialize;

/// A message of cargo, one a line.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    /// The message of the compiler.
    #[serde(rename = "message")]
    pub(crate) said: Option<Diagnostic>,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

/// A message of the compiler.
#[derive(Debug, Deserialize)]
pub(crate) struct Diagnostic {
    level: String,
    /// As it would be printed.
    pub(crate) rendered: Option<String>,
    /// The places that it names.
    pub(crate) spans: Vec<Span>,
}

/// A part of a file.
#[derive(Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) file_name: String,
    pub(crate) byte_start: usize,
    pub(crate) is_primary: bool,
    /// If the part comes from a macro, its call.
    expansion: Option<Expansion>,
}

#[derive(Debug, Deserialize)]
struct Expansion {
    span: Box<Span>,
}

impl Span {
    /// The part itself; if it comes from macros, their calls, from the inner to the outer one.
    pub(crate) fn with_calls(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |span| Some(&*span.expansion.as_ref()?.span))
    }
}

impl Message {
    /// The error, if it is one.
    pub(crate) fn error(self) -> Option<Diagnostic> {
        self.said.filter(|said| said.level == "error")
    }
}

/// The messages of cargo.
///
/// # Errors
/// It was not asked for messages in JSON.
pub(crate) fn messages(output: &Output) -> Result<impl Iterator<Item = Message>, String> {
    let said = String::from_utf8_lossy(&output.stdout);
    let messages: Result<Vec<_>, _> = said.lines().map(serde_json::from_str).collect();
    let messages: Vec<Message> = messages.map_err(|error| format!("cargo's messages: {error}"))?;
    Ok(messages.into_iter())
}

/// The first error of the compiler, as it would be printed; if there is none, the whole output of
/// cargo.
///
/// # Errors
/// Cargo was not asked for messages in JSON.
pub(crate) fn first_error(output: &Output) -> Result<String, String> {
    let error = messages(output)?.find_map(Message::error);
    let rendered = error.and_then(|error| error.rendered);
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(rendered.unwrap_or_else(said).trim_end().to_owned())
}

/// The program of this name that cargo has built.
///
/// # Errors
/// It has built none: the first error.
pub(crate) fn program(output: &Output, name: &str) -> Result<PathBuf, String> {
    if !output.status.success() {
        return Err(first_error(output)?);
    }
    let mut built = messages(output)?.filter_map(|message| {
        let is_it = message.target.is_some_and(|target| target.name == name);
        message.executable.filter(|_| is_it)
    });
    built
        .next()
        .ok_or_else(|| format!("cargo has built no program {name}"))
}
