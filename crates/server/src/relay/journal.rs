//! What the log says of the relay's clients: a line when an allocation begins and one when it ends, and one for proofs that
//! failed.
//!
//! In: what workers tell. Out: lines at `info`, so many a second of a user (`USER_RATE`) and of all (`RATE`) at most: whoever
//! makes and frees allocations as fast as he can must neither fill a disk, nor hold up who hears the workers, nor keep others
//! out of the log. Lines beyond are at `debug`, and their number is told. Of proofs that fail a worker tells no more than one
//! a second anyway.
//! Cost: one lock, two buckets looked at; a table of 64 KiB that never grows.
//!
//! Names are what clients say: as fields of text they are quoted by the log, and control characters in them are escaped.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use relay::spec::{AllocationInfo, EndReason, FailedProof};
use wire::{Budget, Rate, WorkerId};

/// Lines of some 300 bytes each: 2.6 GB a day at most.
const RATE: Rate = Rate { burst: 2_000, interval: Duration::from_millis(10) };

/// The same of one user, who may get twice as much.
const USER_RATE: Rate = Rate { burst: 200, interval: Duration::from_millis(100) };

/// Buckets of users; a power of two.
const BUCKET_COUNT: usize = 1 << 12;

/// What the log has room for.
pub struct Journal(Mutex<Room>);

struct Room {
    budget: Budget,
    /// Each user has two of them, chosen by a hash, so that there is no list of users to fill.
    users: Box<[Budget]>,
    hashes: RandomState,
    /// Lines that found none since the last time that it was told.
    left_out: u64,
}

/// A line at `info` or, when that has no room, at `debug`.
macro_rules! line {
    ($has_room:expr, $($fields:tt)*) => {
        if $has_room { tracing::info!($($fields)*) } else { tracing::debug!($($fields)*) }
    };
}

impl Journal {
    /// One with all of its room.
    pub fn new(now: Instant) -> Self {
        let (budget, users) = (Budget::new(now), vec![Budget::new(now); BUCKET_COUNT].into_boxed_slice());
        Journal(Mutex::new(Room { budget, users, hashes: RandomState::new(), left_out: 0 }))
    }

    /// An allocation began.
    pub fn began(&self, now: Instant, info: &AllocationInfo) {
        line!(
            self.has_room(now, &info.user),
            id = info.id.0,
            user = &*info.user,
            client = %info.client,
            transport = <&str>::from(info.transport),
            relayed = listed(&info.relayed),
            "allocation began"
        );
    }

    /// It ended.
    pub fn ended(&self, now: Instant, info: &AllocationInfo, reason: EndReason) {
        line!(
            self.has_room(now, &info.user),
            id = info.id.0,
            user = &*info.user,
            client = %info.client,
            transport = <&str>::from(info.transport),
            relayed = listed(&info.relayed),
            reason = <&str>::from(reason),
            seconds = info.age.as_secs(),
            sent_packets = info.sent.packets,
            sent_bytes = info.sent.bytes,
            received_packets = info.received.packets,
            received_bytes = info.received.bytes,
            dropped = info.dropped,
            "allocation ended"
        );
    }

    /// Somebody did not prove who he is.
    pub fn not_proved(&self, worker: WorkerId, failure: &FailedProof) {
        tracing::info!(
            user = failure.user.as_deref(),
            client = %failure.client,
            error = <&str>::from(failure.error),
            left_out = failure.left_out,
            worker = worker.0,
            "credentials refused"
        );
    }

    /// Tells of lines that found no room. To be called a few times a second.
    pub fn handle_timeout(&self, now: Instant) {
        let mut room = self.0.lock().expect("nobody panics under this lock");
        if room.left_out > 0 && room.budget.take(now, RATE) {
            let left_out = std::mem::take(&mut room.left_out);
            tracing::info!(left_out, "allocations began or ended faster than the log takes lines");
        }
    }

    fn has_room(&self, now: Instant, user: &str) -> bool {
        let mut room = self.0.lock().expect("nobody panics under this lock");
        let hash = room.hashes.hash_one(user) as usize;
        let places = [hash % BUCKET_COUNT, (hash >> 32) % BUCKET_COUNT];
        let is_fair = places.into_iter().any(|place| room.users[place].take(now, USER_RATE));
        let has_room = is_fair && room.budget.take(now, RATE);
        room.left_out += u64::from(!has_room);
        has_room
    }
}

/// One behind the other.
fn listed(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
