//! What the calls on a session have in common.

use std::time::Instant;

use slab::Slab;
use wire::Outbox;

use crate::batch::Posts;
use crate::keyframe::KeyframeWishes;
use crate::settings::Settings;
use crate::spec::Counters;
use crate::stream::Stream;

/// What a call on a session works with: the time, and what all sessions of the worker have in common.
pub struct Io<'a> {
    /// The same for a whole batch.
    pub now: Instant,
    /// All of the worker.
    pub streams: &'a mut Slab<Stream>,
    /// What the operator chose.
    pub settings: &'a Settings,
    /// Of the worker.
    pub counters: &'a mut Counters,
    /// Keyframes that the call found wanting.
    pub wishes: &'a mut KeyframeWishes,
    /// The way to other workers.
    pub posts: &'a mut Posts,
    /// The way to the network.
    pub out: &'a mut Outbox,
}
