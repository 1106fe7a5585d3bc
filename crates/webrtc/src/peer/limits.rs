//! How much of anything one peer connection may have, do or cause.

use std::time::Duration;

use wire::Rate;

/// DTLS datagrams that wait for the proof of their address: a ClientHello in pieces. Further ones are refused; the client
/// repeats them.
pub(super) const HELD_MAX: usize = 4;

/// ICE restarts of one session.
pub(super) const RESTARTS: Rate = Rate { burst: 8, interval: Duration::from_secs(15) };

/// How often media moves to another address; what is nominated meanwhile counts when it may.
pub(super) const MOVES: Rate = Rate { burst: 4, interval: Duration::from_secs(1) };

/// What one datagram or one passing of time may have a session send at most. A handshake flight is some ten datagrams, and all that
/// may wait in data channels some 2,000, which go at once when a peer that was slow reads again; a session that never comes to rest
/// is ended.
pub(super) const OUTPUTS_MAX: u32 = 4_000;

/// Messages from data channels between two that come to rest: who has many waits for the others of its thread.
pub(super) const MESSAGES_MAX: u32 = 256;

/// When a session that has ended so may be asked again.
pub(super) const AT_REST: Duration = Duration::from_secs(3_600);
