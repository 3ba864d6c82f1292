//! The three protocols: how requests become commands, and replies become bytes.
//!
//! Each protocol has a `request` and a `reply` module, each of them with `decode` and `encode`:
//! the server decodes requests and encodes replies, a client does the opposite with the same code.

pub mod binary;
