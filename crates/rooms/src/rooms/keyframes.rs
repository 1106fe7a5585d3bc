//! Keyframes that a worker's viewers need: wishes are merged and throttled per layer, and go to the publisher, or to its worker.

use std::time::Instant;

use wire::Outbox;
use wire::codec::MediaKind;

use super::{Rooms, Timer};
use crate::batch::Post;
use crate::keyframe::{LayerKey, Urgency};
use crate::session::Session;

impl Rooms {
    /// Passes on what the session that was called last wished for.
    pub(super) fn take_wishes(&mut self, now: Instant) {
        while let Some((layer, urgency)) = self.wishes.pop() {
            self.want_keyframe(now, layer, urgency);
        }
    }

    /// Notes that a layer's viewers need a keyframe. Requests are merged and throttled, per layer.
    pub(super) fn want_keyframe(&mut self, now: Instant, wanted: LayerKey, urgency: Urgency) {
        let stream = &mut self.streams[wanted.stream];
        let kind = stream.tracks.get(usize::from(wanted.track)).map(|track| track.spec.codec.kind());
        if kind != Some(MediaKind::Video) {
            return;
        }
        let Some(layer) = stream.layer_mut(wanted.track, wanted.layer) else { return };
        if layer.keyframes.request(now, urgency) {
            self.requests.push((wanted, urgency));
        } else if let Some(at) = layer.keyframes.take_timer() {
            self.wheel.insert(at, Timer::Keyframe(wanted));
        }
    }

    pub(super) fn handle_keyframe_timeout(&mut self, now: Instant, wanted: LayerKey) {
        let layer = self.streams.get_mut(wanted.stream);
        let Some(layer) = layer.and_then(|stream| stream.layer_mut(wanted.track, wanted.layer)) else { return };
        if layer.keyframes.handle_timeout(now) {
            self.requests.push((wanted, Urgency::Now));
        }
        if let Some(at) = layer.keyframes.take_timer() {
            self.wheel.insert(at, Timer::Keyframe(wanted));
        }
    }

    /// Sends keyframe requests on their way: to the publisher, or to the worker that has it.
    pub(super) fn send_keyframe_requests(&mut self, now: Instant, out: &mut Outbox) {
        while out.has_room()
            && let Some((wanted, urgency)) = self.requests.pop()
        {
            let Some(stream) = self.streams.get(wanted.stream) else { continue };
            if let Some(publisher) = stream.publisher {
                let (sessions, mut io) = self.split(now, out);
                let Session { transport, ups, .. } = &mut sessions[publisher];
                if ups.request_keyframe(wanted, transport, &mut io) {
                    self.counters.keyframe_requests += 1;
                }
            } else if let Some(origin) = stream.origin {
                let LayerKey { track, layer, .. } = wanted;
                self.posts.push(origin, Post::KeyframeWanted { stream: stream.id, track, layer, urgency });
            }
        }
    }
}
