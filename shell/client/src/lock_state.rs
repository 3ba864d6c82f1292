//! The holder of a lock, as its server shows it.

use std::time::Duration;

use latchd_client_core::{AnyRequest, AnyResponse, LockState, wire_key};
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::uri;
use latchd_protocol::wire::meta::reply::{Code, MetaResponse};
use latchd_protocol::wire::meta::{Flag, Verb};

use super::cache::ask;
use super::cache::words::refusal;
use super::error::Error;
use super::pool::{Pool, ServerKind};

pub(super) async fn of(pool: &Pool, key: &[u8]) -> Result<Option<LockState>, Error> {
    let kind = pool.kind().await?;
    let key = wire_key(key)?;
    let item = [
        Flag::Value,
        Flag::ShowTtl,
        Flag::ShowClientFlags,
        Flag::NoBump,
    ];
    let debug = AnyRequest::meta(Verb::Debug, key, [], &[]);
    let item = AnyRequest::meta(Verb::Get, key, item, &[]);
    let requests = match kind {
        ServerKind::Latchd => &[item, debug][..],
        ServerKind::Memcached | ServerKind::Other => &[item],
    };
    let mut state = None::<LockState>;
    let mut is_shown = false;
    let each = |_: usize, answer: &AnyResponse<'_>| {
        match answer {
            AnyResponse::Meta(shown) if shown.code == Code::Value => {
                let item = LockState::of_item(answer);
                state = item.token.is_some().then_some(item);
            }
            AnyResponse::Meta(shown) if shown.code == Code::Debug => {
                is_shown = true;
                state = of_lock(shown, state.take());
            }
            AnyResponse::Meta(_) => {}
            AnyResponse::Classic(_) | AnyResponse::Session(_) => return Err(refusal(answer)),
        }
        Ok(())
    };
    ask(pool, requests, each).await?;
    if kind == ServerKind::Latchd && !is_shown {
        return without_item(pool, key).await;
    }
    Ok(state)
}

/// The holder of a key without an item, which only a refusal shows. A free key without an item is not locked (`x`).
async fn without_item(pool: &Pool, key: Key<'_>) -> Result<Option<LockState>, Error> {
    let flags = [Flag::ShowFence, Flag::ShowMetadata, Flag::Clear];
    let (mut state, mut grant) = (None, None);
    let each = |_: usize, answer: &AnyResponse<'_>| {
        match answer.code() {
            Some(Code::Locked) => state = Some(LockState::of_refusal(answer)),
            // An item has come meanwhile: the lock is released at once.
            Some(Code::Done) => grant = answer.number(b'F').and_then(Fence::new),
            Some(_) => {}
            None => return Err(refusal(answer)),
        }
        Ok(())
    };
    ask(pool, &[AnyRequest::meta(Verb::Lock, key, flags, &[])], each).await?;
    if let Some(fence) = grant {
        let release = AnyRequest::meta(Verb::Unlock, key, [Flag::OfGrant(fence)], &[]);
        ask(pool, &[release], |_, _| Ok(())).await?;
    }
    Ok(state)
}

/// The holder that `me` shows, with what its item shows.
fn of_lock(shown: &MetaResponse<'_>, item: Option<LockState>) -> Option<LockState> {
    // The key comes first, even if it looks like a field.
    let fields = || shown.flags.split(|byte| *byte == b' ').skip(1);
    let word = |name: &[u8]| fields().find_map(|field| field.strip_prefix(name));
    let number = |name: &[u8]| str::from_utf8(word(name)?).ok()?.parse::<u64>().ok();
    let holder = number(b"lock=")?;
    let mut state = item.unwrap_or_default();
    state.holder = Some(holder);
    state.fence = number(b"fence=").and_then(Fence::new);
    state.held_for = number(b"held=").map(Duration::from_secs);
    state.waiting = number(b"waiting=");
    state.is_shared = word(b"mode=") == Some(b"s");
    let metadata = word(b"metadata=").map(|text| uri::decode(text).into());
    state.metadata = metadata.or(state.metadata);
    Some(state)
}
