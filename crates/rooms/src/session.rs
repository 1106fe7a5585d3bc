//! One connected peer: its keys, its address, and what it does here.

use std::time::Instant;

use wheel::TimerId;
use wire::{Outbox, Path};

use crate::publisher::Publisher;
use crate::settings::Settings;
use crate::spec::{Counters, PeerSpec, SessionId, SessionStats};
use crate::stream::Stream;
use crate::viewer::Viewer;
use srtp::{KeyError, Opener, Sealer};

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

/// What a call on a publisher or a viewer works with.
pub struct Link<'a> {
    pub now: Instant,
    pub path: &'a Path,
    pub sealer: &'a mut Sealer,
    pub settings: &'a Settings,
    pub counters: &'a mut Counters,
    pub out: &'a mut Outbox,
}

/// Room for one RTCP packet of ours before it is sealed, in bytes.
const RTCP_MAX: usize = 1_200;

impl Link<'_> {
    /// Writes, seals and queues one RTCP packet. False when there is no room or nothing to write.
    pub fn send_rtcp(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let Some(slot) = self.out.slot() else { return false };
        let Some(len) = write(&mut slot[..RTCP_MAX]) else { return false };
        let len = self.sealer.seal_rtcp(slot, len);
        self.out.commit(self.path, len);
        len > 0
    }
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
