//! Who comes to watch a reflected stream: a worker sends it to him, and nobody else has anything to do with his connection.
//!
//! In: connections of HTTP. Out: the same, with what was read of them, but for those whose first request is a viewer's.
//! Cost: while there are streams, a look at each connection's first request, which is waited for here for `WAIT`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use hyper::Version;
use tokio::time::{Instant, timeout_at};

use super::greeting::Arrival;
use super::push::{LENGTH, Length, length};
use crate::http::{Granted, Site};
use crate::reflect::control::Arrived;
use crate::reflect::request::{Decision, Viewer, decide};

/// Whoever takes longer with his request is answered by HTTP, which has a time limit of its own.
const WAIT: Duration = Duration::from_secs(2);

/// Gives a viewer to a worker; all others come back.
pub(super) async fn show_in(mut arrival: Arrival, version: Version, site: &Site) -> Option<Arrival> {
    if version != Version::HTTP_11 {
        return Some(arrival);
    }
    let Some(viewer) = meet(&mut arrival, site).await else { return Some(arrival) };
    let client = arrival.client;
    let Viewer { parts, query, head_len } = *viewer;
    let Some(granted) = site.grant(client.ip().to_canonical(), parts, &query) else { return Some(arrival) };
    let Granted { admission, head, join } = granted;
    let Arrival { stream, mut begun, .. } = arrival;
    begun.received = begun.received[head_len..].into();
    begun.remote = Some(client);
    // One that is broken already has left.
    let descriptor = OwnedFd::from(stream.into_std().ok()?);
    admission.serve(Arrived { descriptor, begun, head, join });
    None
}

/// Reads the first request of a connection as far as it has to be read to tell whether it is a viewer's.
async fn meet(arrival: &mut Arrival, site: &Site) -> Option<Box<Viewer>> {
    let (until, reflect) = (Instant::now() + WAIT, site.reflect()?);
    let is_proxy = site.believes(arrival.client.ip().to_canonical());
    loop {
        let received = &mut arrival.begun.received;
        match decide(received, |path| reflect.is_stream(path)) {
            Decision::Viewer(viewer) => return Some(viewer),
            Decision::Other => match length(received, is_proxy, |path| reflect.is_stream(path)) {
                Length::Fine => return None,
                Length::Lacks(at) => {
                    *received = [&received[..at], LENGTH, &received[at..]].concat().into();
                    return None;
                }
                Length::NotYet => {}
            },
            Decision::Incomplete => {}
        }
        let has_ended = timeout_at(until, arrival.read()).await.ok()?.ok()?;
        if has_ended {
            return None;
        }
    }
}
