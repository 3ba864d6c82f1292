//! Whether a connection's server shows for how long it surely is primary.

use latchd_protocol::wire::meta::reply::Code;

use super::AnyResponse;

/// Whether the server of a connection shows its hold, by its answers to [`AnyRequest::Hold`](super::AnyRequest::Hold). As
/// one process is behind a connection, this stays true as long as the connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum HoldSupport {
    /// Nobody has asked, or the answer did not say.
    #[default]
    Unknown,
    /// The first question is unanswered.
    Asked,
    /// It shows its hold.
    Shows,
    /// It does not: it is no member of a cluster, or another program.
    Lacks,
}

impl HoldSupport {
    /// After a question was sent.
    pub(super) const fn asked(self) -> Self {
        match self {
            Self::Unknown | Self::Asked => Self::Asked,
            Self::Shows | Self::Lacks => self,
        }
    }

    /// After this answer to a question.
    pub(super) fn answered(self, answer: &AnyResponse<'_>) -> Self {
        if answer.number(b'H').is_some() {
            Self::Shows
        } else if self == Self::Asked && lacks_hold(answer) {
            Self::Lacks
        } else if self == Self::Asked {
            Self::Unknown
        } else {
            self
        }
    }
}

/// Whether the server has no hold to show, or does not know the question.
fn lacks_hold(answer: &AnyResponse<'_>) -> bool {
    answer.code() == Some(Code::Noop) || answer.is_not_understood()
}
