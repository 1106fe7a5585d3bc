//! Who has how much of the relay: allocations and bandwidth, per user and in total. Workers share one ledger.
//!
//! In: allocations that begin and end, and runs of datagrams before they are relayed. Out: whether there is a place, how many
//! datagrams of a run may go, and what each user has used.
//! Cost: one lock of a shard when an allocation begins or ends; per run of datagrams two additions to memory that is its
//! allocation's alone, and where a bandwidth is limited an atomic step for each limit, which all whom it is for share.
//!
//! A user is in the ledger while he has an allocation, and forgotten with his last one; what he has used is forgotten too.

mod bucket;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use slab::Slab;
use wire::Bitrate;

use crate::spec::Traffic;
use bucket::Bucket;

/// Parts of the map of users, each with a lock of its own.
const SHARD_COUNT: usize = 64;

/// How much there is. `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Allocations of one user.
    pub user_allocations_max: Option<usize>,
    /// Allocations of all users.
    pub allocations_max: Option<usize>,
    /// Of all allocations of one user together, each way, with IP and UDP headers. What is over it is dropped and counted.
    pub user_bandwidth: Option<Bitrate>,
    /// Of all users together, each way.
    pub bandwidth: Option<Bitrate>,
}

/// Why an allocation may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The user has as many as he may: 486 (RFC 8656 §7.2).
    #[error("the user has as many allocations as he may")]
    User,
    /// The server has: 508.
    #[error("the server has as many allocations as it may")]
    Total,
}

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to a peer.
    Sent,
    /// From a peer to the client.
    Received,
}

/// What a user has, and has used since he came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserTotals {
    /// Who.
    pub user: Arc<str>,
    /// His allocations.
    pub allocations: usize,
    /// From him to peers.
    pub sent: Traffic,
    /// From peers to him.
    pub received: Traffic,
    /// What was over a bandwidth, his or that of all, both ways.
    pub dropped: Traffic,
}

impl UserTotals {
    fn new(user: Arc<str>, allocations: usize, [sent, received, dropped]: [Traffic; 3]) -> Self {
        UserTotals { user, allocations, sent, received, dropped }
    }
}

/// All users.
#[derive(Debug)]
pub struct Ledger {
    settings: RwLock<LedgerSettings>,
    /// Times in buckets count from here.
    began: Instant,
    hashes: RandomState,
    shards: Box<[Shard]>,
    allocations: AtomicUsize,
    total: [Bucket; 2],
}

type Shard = Mutex<HashMap<Arc<str>, Entry>>;

/// A user who has an allocation.
#[derive(Debug)]
struct Entry {
    user: Arc<User>,
    /// What each of his allocations has used,
    open: Slab<Arc<Usage>>,
    /// and those together that have ended.
    ended: Usage,
}

/// What all allocations of a user have in common, wherever they are.
#[derive(Debug)]
struct User {
    name: Arc<str>,
    buckets: [Bucket; 2],
}

/// What an allocation has used. Its worker alone adds to it: what several cores write costs each of them more than all else
/// that a packet takes.
#[derive(Debug, Default)]
struct Usage {
    used: [Used; 2],
    dropped: Used,
}

#[derive(Debug, Default)]
struct Used {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// One allocation's place. It is free again when this is dropped. One thread at a time takes from it.
#[derive(Debug)]
pub struct Account {
    ledger: Arc<Ledger>,
    user: Arc<User>,
    usage: Arc<Usage>,
    /// Its place among those of its user.
    key: usize,
}

impl Ledger {
    /// An empty one.
    pub fn new(now: Instant, settings: LedgerSettings) -> Self {
        Ledger {
            settings: RwLock::new(settings),
            began: now,
            hashes: RandomState::new(),
            shards: (0..SHARD_COUNT).map(|_| Shard::default()).collect(),
            allocations: AtomicUsize::new(0),
            total: [(); 2].map(|()| Bucket::new(settings.bandwidth)),
        }
    }

    /// How much there is.
    pub fn settings(&self) -> LedgerSettings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is so much from now on, for users who are there as well; allocations that are there stay. Locks one shard after the other.
    pub fn change(&self, now: Instant, settings: LedgerSettings) {
        let now_ns = now.saturating_duration_since(self.began).as_nanos() as u64;
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        self.total.iter().for_each(|bucket| bucket.set(now_ns, settings.bandwidth));
        // Who comes meanwhile has the new settings, or is in a shard that is still to come.
        for shard in &self.shards {
            let shard = lock(shard);
            let buckets = shard.values().flat_map(|entry| &entry.user.buckets);
            buckets.for_each(|bucket| bucket.set(now_ns, settings.user_bandwidth));
        }
    }

    /// Takes a place for one more allocation of this user.
    ///
    /// # Errors
    /// When he, or all together, have as many as they may.
    pub fn open(self: &Arc<Self>, user: &Arc<str>) -> Result<Account, Full> {
        let mut shard = self.shard(user);
        let settings = self.settings();
        let count = shard.get(user).map_or(0, |known| known.open.len());
        if settings.user_allocations_max.is_some_and(|max| count >= max) {
            return Err(Full::User);
        }
        self.take_place(settings.allocations_max)?;
        let entry = shard.entry(user.clone()).or_insert_with(|| Entry::new(user, settings.user_bandwidth));
        let usage = Arc::new(Usage::default());
        let key = entry.open.insert(usage.clone());
        Ok(Account { ledger: self.clone(), user: entry.user.clone(), usage, key })
    }

    /// Allocations that are there.
    pub fn allocations(&self) -> usize {
        self.allocations.load(Relaxed)
    }

    /// What users have and have used, of the first `count` behind `after`, by name. Locks one shard after the other.
    pub fn users(&self, after: Option<&str>, count: usize) -> Vec<UserTotals> {
        let mut found: Vec<Arc<str>> = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            found.extend(shard.keys().filter(|name| after.is_none_or(|after| ***name > *after)).cloned());
            drop(shard);
            found.sort_unstable();
            found.truncate(count);
        }
        // Who has left meanwhile has nothing.
        let nothing = [Traffic::default(); 3];
        found.into_iter().map(|user| self.user(&user).unwrap_or_else(|| UserTotals::new(user, 0, nothing))).collect()
    }

    /// What one user has and has used.
    pub fn user(&self, name: &str) -> Option<UserTotals> {
        self.shard(name).get(name).map(Entry::totals)
    }

    fn take_place(&self, max: Option<usize>) -> Result<(), Full> {
        let max = max.unwrap_or(usize::MAX);
        let one_more = |count| (count < max).then(|| count + 1);
        self.allocations.fetch_update(Relaxed, Relaxed, one_more).map(drop).map_err(|_| Full::Total)
    }

    fn shard(&self, user: &str) -> MutexGuard<'_, HashMap<Arc<str>, Entry>> {
        lock(&self.shards[self.hashes.hash_one(user) as usize % SHARD_COUNT])
    }
}

/// Nobody panics while he holds the lock, and if he did the map would still be whole.
fn lock(shard: &Shard) -> MutexGuard<'_, HashMap<Arc<str>, Entry>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Account {
    /// Takes the bandwidth for `count` datagrams of `size` bytes each, which go one way, and for the headers that networks put
    /// before them: small ones are mostly that. Returns how many of them may go: the first so many. The others are counted
    /// as dropped.
    pub fn take(&self, now: Instant, direction: Direction, count: usize, size: usize, headers_len: usize) -> usize {
        let (way, len) = (direction as usize, size + headers_len);
        let now_ns = now.saturating_duration_since(self.ledger.began).as_nanos() as u64;
        let own = self.user.buckets[way].take(now_ns, count, len);
        let taken = self.ledger.total[way].take(now_ns, own, len);
        self.user.buckets[way].give_back(own - taken, len);
        self.usage.used[way].add(taken, size);
        if taken < count {
            self.usage.dropped.add(count - taken, size);
        }
        taken
    }

    /// Takes the bandwidth for bytes of a stream, which cannot be left out. Returns for how long nothing is to follow them.
    pub fn charge(&self, now: Instant, direction: Direction, bytes: usize) -> Duration {
        let way = direction as usize;
        let now_ns = now.saturating_duration_since(self.ledger.began).as_nanos() as u64;
        let [own, total] =
            [&self.user.buckets[way], &self.ledger.total[way]].map(|bucket| bucket.charge(now_ns, bytes));
        self.usage.used[way].add(1, bytes);
        Duration::from_nanos(own.max(total))
    }

    /// Whose it is.
    pub fn user(&self) -> &Arc<str> {
        &self.user.name
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut shard = self.ledger.shard(&self.user.name);
        if let Some(entry) = shard.get_mut(&self.user.name) {
            entry.close(self.key);
            if entry.open.is_empty() {
                shard.remove(&self.user.name);
            }
        }
        self.ledger.allocations.fetch_sub(1, Relaxed);
    }
}

impl Entry {
    fn new(name: &Arc<str>, bandwidth: Option<Bitrate>) -> Self {
        let buckets = [(); 2].map(|()| Bucket::new(bandwidth));
        Entry { user: Arc::new(User { name: name.clone(), buckets }), open: Slab::new(), ended: Usage::default() }
    }

    fn close(&mut self, key: usize) {
        let Some(usage) = self.open.try_remove(key) else { return };
        self.ended.all().zip(usage.all()).for_each(|(sum, used)| sum.add_traffic(used.traffic()));
    }

    fn totals(&self) -> UserTotals {
        let all = self.open.iter().map(|(_, usage)| &**usage).chain([&self.ended]);
        let sum = all.fold([Traffic::default(); 3], |mut sum, usage| {
            sum.iter_mut().zip(usage.all()).for_each(|(sum, used)| {
                let Traffic { packets, bytes } = used.traffic();
                *sum = Traffic { packets: sum.packets + packets, bytes: sum.bytes + bytes };
            });
            sum
        });
        UserTotals::new(self.user.name.clone(), self.open.len(), sum)
    }
}

impl Usage {
    /// Sent, received, dropped.
    fn all(&self) -> impl Iterator<Item = &Used> {
        self.used.iter().chain([&self.dropped])
    }
}

impl Used {
    fn add(&self, count: usize, size: usize) {
        self.add_traffic(Traffic { packets: count as u64, bytes: (count * size) as u64 });
    }

    /// Nobody else adds meanwhile, so it need not be one step.
    fn add_traffic(&self, Traffic { packets, bytes }: Traffic) {
        self.packets.store(self.packets.load(Relaxed) + packets, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes, Relaxed);
    }

    fn traffic(&self) -> Traffic {
        Traffic { packets: self.packets.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}
