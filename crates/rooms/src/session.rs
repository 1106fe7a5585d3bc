//! One connected peer: its keys, its address, and what it does here.

use std::time::Instant;

use wheel::TimerId;
use wire::Path;

use crate::publisher::Publisher;
use crate::spec::{PeerSpec, SessionId, SessionStats};
use crate::srtp::{KeyError, Opener, Sealer};
use crate::stream::Stream;
use crate::viewer::Viewer;

pub struct Session {
    pub id: SessionId,
    pub path: Path,
    pub opener: Opener,
    pub sealer: Sealer,
    pub role: Role,
    /// When something authentic last came from the peer.
    pub last_heard: Instant,
    /// The wheel's entry for the session's next deadline.
    pub timer: Option<(Instant, TimerId)>,
}

pub enum Role {
    Publisher(Publisher),
    Viewer(Viewer),
}

impl Session {
    /// # Errors
    /// When the key material does not fit its profile.
    pub fn new(now: Instant, peer: PeerSpec, role: Role) -> Result<Self, KeyError> {
        Ok(Session {
            id: peer.session,
            path: peer.path,
            opener: Opener::new(&peer.keys)?,
            sealer: Sealer::new(&peer.keys)?,
            role,
            last_heard: now,
            timer: None,
        })
    }

    /// Key of the stream that the session publishes or watches.
    pub fn stream(&self) -> usize {
        match &self.role {
            Role::Publisher(publisher) => publisher.stream,
            Role::Viewer(viewer) => viewer.stream,
        }
    }

    /// Reads a value from each of the cache lines that sending to a viewer needs first.
    pub fn touch(&self) -> u64 {
        let Role::Viewer(viewer) = &self.role else { return 0 };
        u64::from(self.path.remote.port()) ^ self.sealer.rtp_overhead() as u64 ^ viewer.touch()
    }

    /// Reads a value from each of the cache lines that sending to a viewer needs then.
    pub fn touch_tracks(&self) -> u64 {
        let Role::Viewer(viewer) = &self.role else { return 0 };
        viewer.touch_tracks()
    }

    pub fn poll_timeout(&self) -> Instant {
        match &self.role {
            Role::Publisher(publisher) => publisher.poll_timeout(),
            Role::Viewer(viewer) => viewer.poll_timeout(),
        }
    }

    pub fn stats(&self, stream: &Stream) -> SessionStats {
        match &self.role {
            Role::Publisher(publisher) => publisher.stats(),
            Role::Viewer(viewer) => viewer.stats(stream),
        }
    }
}
