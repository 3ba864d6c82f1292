//! The reason why etcd gives no answer, in the words of an operator.

use std::fmt;

/// The reason why a transaction has no answer: it may have been executed or not (`etcd`, A1).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AuthorityError {
    /// No connection, or the connection broke.
    Unreachable(String),
    /// No answer within the time limit.
    Late,
    /// etcd does not serve its JSON gateway.
    NoGateway,
    /// etcd does not accept the user, the password, the token or the certificate, or the user has no permission.
    Authentication(String),
    /// etcd has reached its space quota, and refuses to write.
    NoSpace,
    /// The members of etcd have elected no leader.
    NoLeader,
    /// The endpoint belongs to another etcd cluster than the first answer.
    OtherCluster {
        /// The id of the cluster that answered first.
        first: u64,
        /// The id of this one.
        this: u64,
    },
    /// The reply is none of etcd, or is incomplete: the place of the fault.
    Malformed(&'static str),
    /// The reply is longer than the bound, in bytes.
    TooLong(usize),
    /// There are more records than the bound.
    TooMany(usize),
    /// etcd refused the request for another reason.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The message of etcd.
        message: String,
    },
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(formatter, "unreachable: {why}"),
            Self::Late => formatter.write_str("no answer in time"),
            Self::NoGateway => formatter.write_str(
                "etcd runs without its gRPC gateway; start it with --enable-grpc-gateway",
            ),
            Self::Authentication(why) => write!(formatter, "authentication: {why}"),
            Self::NoSpace => formatter.write_str(
                "etcd has no space left in its database (alarm NOSPACE); compact, defragment and disarm it",
            ),
            Self::NoLeader => formatter.write_str("etcd has no leader"),
            Self::OtherCluster { first, this } => write!(
                formatter,
                "the endpoint belongs to another etcd cluster ({this:x}) than the first one ({first:x}); name \
                 endpoints of one cluster, and restart latchd if etcd was created anew"
            ),
            Self::Malformed(place) => {
                write!(formatter, "the answer is malformed ({place}); check that etcd serves this URL")
            }
            Self::TooLong(bytes) => write!(formatter, "the answer is longer than {bytes} bytes"),
            Self::TooMany(records) => write!(formatter, "there are more than {records} records"),
            Self::Refused { status, message } => {
                write!(formatter, "etcd refused the request (HTTP {status}): {message}")
            }
        }
    }
}

impl std::error::Error for AuthorityError {}
