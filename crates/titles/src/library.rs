//! All titles behind one handle.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use pump::chunk::Chunk;
use pump::title::Title;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use url::Url;
use wire::Bitrate;
use wire::ts::PACKET_LEN;

use crate::cache::{Cache, Key};
use crate::disk::Disk;
use crate::error::Error;
use crate::file::{self, OpenFile};
use crate::flight::{Flight, lock};
use crate::folder::{Folder, Listed};
use crate::http::Part;
use crate::location::{Location, check_url, join, shown};
use crate::origins::{Origins, Remote};
use crate::probe;
use crate::recovery::{Recovery, Trouble};
use crate::registry::{Entry, Registry, RemoteSource, Source};
use crate::settings::Settings;
use crate::slots::Slots;
use crate::stats::{Counts, Stats};

/// Reads of one disk at a time; others wait. Enough for one that wants a long queue, and a network's that hangs takes no
/// more threads than that.
const READS_MAX: usize = 64;

/// Chunks on their way to the disk cache. More are not kept there: a slow disk delays nobody.
const WRITES_MAX: usize = 16;

/// What the disk cache has not given by then is fetched.
const DISK_PATIENCE: Duration = Duration::from_secs(1);

/// One who wants a chunk for as long as it takes says so again after this; else it is not asked for any more.
const AWAIT: Duration = Duration::from_secs(10);

/// A request that is not answered by then lets others of its title leave.
const TURN_MAX: Duration = Duration::from_secs(1);

/// All titles, and the chunks of them that are kept. Clones are the same library.
#[derive(Clone)]
pub struct Library {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Arc<Settings>,
    folder: Option<Arc<Folder>>,
    origins: Origins,
    registry: Mutex<Registry>,
    cache: Cache,
    disk: Option<Arc<Disk>>,
    opening: Flight<Location, Arc<Title>>,
    loading: Flight<Key, Arc<Chunk>>,
    /// Chunks that are wanted for as long as it takes.
    awaiting: Flight<Key, Arc<Chunk>>,
    /// First parts of chunks.
    looking: Flight<Key, Arc<Chunk>>,
    reads: Slots,
    writes: Arc<Semaphore>,
    /// Makes states differ that nothing else tells apart.
    nonce: AtomicU64,
    counts: Arc<Counts>,
}

impl Library {
    /// Looks through the folder and the disk cache, and reads the certificates that are trusted. Blocks for that long.
    ///
    /// # Errors
    /// When a folder or file of the settings cannot be read, or an origin is no http or https URL.
    pub fn new(settings: Settings) -> Result<Library, Error> {
        for origin in &settings.origins {
            let host = origin.host_str().unwrap_or_default();
            let what = || format!("the origin at {host:?} has no http or https URL, or one with a password");
            check_url(origin).map_err(|_| Error::Settings { what: what() })?;
        }
        let (settings, counts) = (Arc::new(settings), Arc::<Counts>::default());
        let watch = |path| Folder::watch(path, settings.rescan);
        let disk = |path| Disk::open(path, settings.disk_cache_bytes, counts.clone()).map(Arc::new);
        let shared = Shared {
            folder: settings.media.as_deref().map(watch).transpose()?,
            origins: Origins::new(settings.clone(), counts.clone())?,
            registry: Mutex::new(Registry::new(settings.titles_max)),
            cache: Cache::new(settings.cache_bytes, settings.chunk_packets() as usize * 188)?,
            disk: settings.disk_cache.as_deref().map(disk).transpose()?,
            opening: Flight::default(),
            loading: Flight::default(),
            awaiting: Flight::default(),
            looking: Flight::default(),
            reads: Slots::new(READS_MAX),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            nonce: AtomicU64::default(),
            counts,
            settings,
        };
        Ok(Library { shared: Arc::new(shared) })
    }

    /// Opens `name.ts` in the watched folder or at the origins; `http(s)://…` and absolute paths where they are allowed.
    /// However many open a title at the same time, it is probed once, and all get the same. Its first chunk is there
    /// then, too.
    ///
    /// # Errors
    /// Why it cannot be played.
    pub async fn open(&self, location: &str) -> Result<Arc<Title>, Error> {
        let shared = &self.shared;
        let location = shared.counted(Location::parse(location, &shared.settings))?;
        let work = shared.clone().open(location.clone());
        shared.opening.run(location, || (), work).await
    }

    /// A chunk of a title that `open` gave: from memory, disk, or where the title is.
    ///
    /// # Errors
    /// Why it cannot be had, when all retries and origins are used up. `Chunk::hole` stands in for it.
    pub async fn chunk(&self, title: &Arc<Title>, index: u64) -> Result<Arc<Chunk>, Error> {
        let (entry, key) = self.find(title, index)?;
        match self.shared.cached(key) {
            Some(chunk) => Ok(chunk),
            None => self.shared.clone().load_together(entry, key).await,
        }
    }

    /// A chunk, asked for again and again while it cannot be had, with pauses that grow: by all who want it together, and
    /// while nothing comes of the title, one of its chunks at a time. A chunk that cannot be had while others can is a hole.
    ///
    /// # Errors
    /// `Error::is_gone`: the title is, for `Settings::gone_after`. `Error::is_passing`: it did not come for some seconds;
    /// **who still wants it calls again**.
    pub async fn await_chunk(&self, title: &Arc<Title>, index: u64) -> Result<Arc<Chunk>, Error> {
        let (entry, key) = self.find(title, index)?;
        let shared = &self.shared;
        match shared.cached(key) {
            Some(chunk) => Ok(chunk),
            None => shared.awaiting.run(key, || (), shared.clone().await_load(entry, key)).await,
        }
    }

    fn find(&self, title: &Arc<Title>, index: u64) -> Result<(Arc<Entry>, Key), Error> {
        let entry = lock(&self.shared.registry).entry_of(title).ok_or(Error::UnknownTitle)?;
        let count = title.chunk_count();
        let number = u32::try_from(index).ok().filter(|number| *number < count);
        let key = Key { title: entry.id, number: number.ok_or(Error::NoChunk { index, count })? };
        Ok((entry, key))
    }

    /// What keeps a title's parts from coming now.
    pub fn trouble(&self, title: &Arc<Title>) -> Option<Trouble> {
        let entry = lock(&self.shared.registry).entry_of(title)?;
        entry.recovery.trouble()
    }

    /// The first packets of a chunk, scanned like one, where that is less to read than all of it: at an origin, when the
    /// chunk is neither in memory nor on disk. They are not kept.
    ///
    /// # Errors
    /// As `chunk`.
    pub(crate) async fn first_part(
        &self,
        title: &Arc<Title>,
        number: u32,
        packets: u64,
    ) -> Result<Option<Arc<Chunk>>, Error> {
        let shared = &self.shared;
        let entry = lock(&shared.registry).entry_of(title).ok_or(Error::UnknownTitle)?;
        let key = Key { title: entry.id, number };
        let whole = title.chunk_range(number);
        let bytes = packets.saturating_mul(title.spacing.stride() as u64);
        let is_near = shared.cache.get(key).is_some() || shared.disk.as_ref().is_some_and(|disk| disk.has(key));
        let Source::Remote(source) = &entry.source else { return Ok(None) };
        if is_near || bytes > (whole.end - whole.start) / 2 {
            return Ok(None);
        }
        let remote = source.remote.clone();
        let (work, title) = (shared.clone(), title.clone());
        let read = async move {
            let range = whole.start..whole.start + bytes;
            let part = work.origins.fetch(&remote, range, Some(title.len_bytes)).await?;
            Ok(Arc::new(blocking(move || Chunk::scan(&title, number, part.bytes)).await?))
        };
        shared.looking.run(key, || (), read).await.map(Some)
    }

    /// How long a title plays: by its clock where that is known, otherwise by its length and the rate of its start.
    pub fn duration(&self, title: &Arc<Title>) -> Option<Duration> {
        let entry = lock(&self.shared.registry).entry_of(title)?;
        entry.measured.get().copied().or(entry.duration)
    }

    /// The same, from looks at all of the title where it is at an origin: for who is told it. Its start alone is enough for
    /// who only plays it.
    pub async fn measure(&self, title: &Arc<Title>) -> Option<Duration> {
        let entry = lock(&self.shared.registry).entry_of(title)?;
        if let Source::Remote(_) = entry.source {
            let measured = entry.measured.get_or_try_init(|| self.look_through(title)).await;
            measured.inspect_err(|error| tracing::debug!(%error, "a title is not measured")).ok();
        }
        self.duration(title)
    }

    async fn look_through(&self, title: &Arc<Title>) -> Result<Duration, Error> {
        let mut looks = JoinSet::new();
        for number in probe::look_at(title, probe::REMOTE_LOOKS) {
            let (library, title) = (self.clone(), title.clone());
            looks.spawn(async move {
                match library.first_part(&title, number, probe::LOOK_PACKETS).await? {
                    Some(part) => Ok(part),
                    None => library.chunk(&title, number.into()).await,
                }
            });
        }
        let mut parts = looks.join_all().await.into_iter().collect::<Result<Vec<_>, Error>>()?;
        parts.sort_by_key(|part| part.number);
        probe::duration(title, &parts, |_, _| Ok(None))?.ok_or(Error::Stopped)
    }

    /// The mean rate of a title's packets over that time, which its start alone does not tell where the rate varies.
    pub fn rate(&self, title: &Arc<Title>) -> Option<Bitrate> {
        let seconds = self.duration(title).filter(|duration| !duration.is_zero())?.as_secs_f64();
        Some(Bitrate::from_bps(8 * PACKET_LEN as u64 * title.packet_count()).scale(1.0 / seconds))
    }

    /// That rate, when it is more than a guess by the title's start.
    pub fn known_rate(&self, title: &Arc<Title>) -> Option<Bitrate> {
        let entry = lock(&self.shared.registry).entry_of(title)?;
        matches!(entry.source, Source::File(_)).then(|| self.rate(title))?
    }

    /// The titles of the watched folder, by name, as of the last look.
    pub fn list(&self) -> Vec<Listed> {
        self.shared.folder.as_ref().map(|folder| folder.list()).unwrap_or_default()
    }

    /// What it has counted.
    pub fn stats(&self) -> Stats {
        self.shared.cache.held(Stats {
            titles: lock(&self.shared.registry).len() as u64,
            disk_bytes: self.shared.disk.as_ref().map_or(0, |disk| disk.bytes()),
            ..self.shared.counts.read()
        })
    }
}

/// What a probe gives.
struct Probed {
    title: Title,
    first: Option<Arc<Chunk>>,
    duration: Option<Duration>,
}

impl Shared {
    async fn open(self: Arc<Self>, location: Location) -> Result<Arc<Title>, Error> {
        match &location {
            Location::Path(path) => {
                let path = path.clone();
                let file = self.counted(self.read("paths".to_owned(), move || file::open_path(&path)).await)?;
                self.open_file(location, file).await
            }
            Location::Url(url) => {
                let urls = vec![url.clone()];
                self.open_remote(location, urls).await
            }
            Location::Name(name) => {
                let urls: Vec<Url> = self.settings.origins.iter().map(|origin| join(origin, name)).collect();
                if let Some(folder) = self.folder.clone() {
                    let name = name.clone();
                    match self.read("folder".to_owned(), move || folder.root.open_file(&name)).await {
                        Err(Error::NotFound { .. }) if !urls.is_empty() => (),
                        file => {
                            let file = self.counted(file)?;
                            return self.open_file(location, file).await;
                        }
                    }
                }
                if urls.is_empty() {
                    return self.counted(Err(Error::NotFound { location: shown(name) }));
                }
                self.open_remote(location, urls).await
            }
        }
    }

    async fn open_file(&self, location: Location, file: OpenFile) -> Result<Arc<Title>, Error> {
        let known = lock(&self.registry).known(&location);
        if let Some((entry, _)) = known
            && let Source::File(known) = &entry.source
            && known.identity == file.identity
        {
            return Ok(entry.title.clone());
        }
        self.counts.count(|stats| stats.probes += 1);
        let identity = file.identity;
        let packets = self.settings.chunk_packets();
        let file = Arc::new(file);
        let (probed_file, shown_name) = (file.clone(), location_shown(&location));
        let probed = self.read(identity.disk(), move || probe_file(&probed_file, packets, shown_name)).await;
        let probed = self.counted(probed)?;
        if let (Some(folder), Location::Name(name), Some(duration)) = (&self.folder, &location, probed.duration) {
            folder.note_duration(name, identity, duration);
        }
        let id = id_of(&format!("file {identity:?} {packets}"));
        Ok(self.register(probed, location, id, Source::File(file)))
    }

    async fn open_remote(&self, location: Location, urls: Vec<Url>) -> Result<Arc<Title>, Error> {
        let known = lock(&self.registry).known(&location);
        if let Some((entry, checked)) = known {
            let is_fresh = checked.elapsed() < self.settings.revalidate;
            if is_fresh || self.is_still_there(&entry).await {
                return Ok(entry.title.clone());
            }
        }
        self.counts.count(|stats| stats.probes += 1);
        let name = location_shown(&location);
        let packets = self.settings.chunk_packets();
        let remote = Arc::new(Remote::new(&name, urls));
        // Each byte costs time.
        let head_len = probe::head_len(probe::first_chunk_packets(packets));
        let Part { mut bytes, len, validator } = self.origins.fetch(&remote, 0..head_len, None).await?;
        let probed = loop {
            let head = bytes;
            let (result, head) = blocking(move || (probe::probe(&head, len, packets), head)).await?;
            bytes = head;
            let got = bytes.len() as u64;
            match probe::next_head_len(&result, got, len) {
                Some(next) => bytes.extend(self.origins.fetch(&remote, got..next, Some(len)).await?.bytes),
                None => break self.counted(result.map_err(|error| Error::Title { location: name.clone(), error }))?,
            }
        };
        let has_validator = validator.is_some();
        let id = if has_validator {
            id_of(&format!("http {location:?} {validator:?} {len} cut {packets}"))
        } else {
            let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
            id_of(&format!("http {location:?} {nonce} {packets}"))
        };
        let duration = probe::estimate(&probed);
        let range = probed.chunk_range(0);
        if has_validator && let Some(bytes) = bytes.get(range.start as usize..range.end as usize) {
            self.keep_on_disk(Key { title: id, number: 0 }, bytes);
        }
        let probed = blocking(move || Probed { first: probe::first_chunk(&probed, &bytes), title: probed, duration });
        let probed = probed.await?;
        Ok(self.register(probed, location, id, Source::Remote(RemoteSource { remote, has_validator })))
    }

    /// Whether a title that was there some time ago is what it was. When nobody answers, it is taken to be, and they are
    /// left alone for as long as if they had.
    async fn is_still_there(&self, entry: &Entry) -> bool {
        let Source::Remote(source) = &entry.source else { return false };
        let answer = self.origins.fetch(&source.remote, 0..1, Some(entry.title.len_bytes)).await;
        let is_there = !answer.is_err_and(|error| error.is_gone());
        if is_there {
            lock(&self.registry).set_checked(&entry.location);
        }
        is_there
    }

    fn register(&self, probed: Probed, location: Location, id: u128, source: Source) -> Arc<Title> {
        if let Some(chunk) = probed.first {
            self.cache.insert(Key { title: id, number: 0 }, &chunk);
        }
        let recovery = Recovery::new(self.settings.retry_backoff);
        lock(&self.registry).insert(Entry::new(probed.title, location, id, source, probed.duration, recovery))
    }

    fn cached(&self, key: Key) -> Option<Arc<Chunk>> {
        let chunk = self.cache.get(key);
        self.counts.count(|stats| match chunk {
            Some(_) => stats.hits += 1,
            None => stats.misses += 1,
        });
        chunk
    }

    async fn load_together(self: Arc<Self>, entry: Arc<Entry>, key: Key) -> Result<Arc<Chunk>, Error> {
        let joined = || self.counts.count(|stats| stats.joined += 1);
        self.loading.run(key, joined, self.clone().load(entry, key)).await
    }

    /// `load`, until it can be had, is given up, or was tried for `AWAIT`.
    async fn await_load(self: Arc<Self>, entry: Arc<Entry>, key: Key) -> Result<Arc<Chunk>, Error> {
        let begun = Instant::now();
        let mut gone_since = None;
        let mut retry = 0;
        loop {
            // What is on disk waits for nobody.
            if entry.recovery.is_failing()
                && let Some(chunk) = self.on_disk(&entry, key).await
            {
                return Ok(chunk);
            }
            let turn = entry.recovery.turn().await;
            let mut load = Box::pin(self.clone().load_together(entry.clone(), key));
            let loaded = match turn {
                None => load.await,
                Some(turn) => match timeout(TURN_MAX, load.as_mut()).await {
                    Ok(loaded) => loaded,
                    Err(_) => {
                        drop(turn);
                        load.await
                    }
                },
            };
            let error = match loaded {
                Ok(chunk) => return Ok(chunk),
                Err(error) => error,
            };
            if error.is_gone() {
                let since: Instant = *gone_since.get_or_insert(Instant::now());
                if since.elapsed() >= self.settings.gone_after {
                    return Err(error);
                }
            } else if error.is_passing() {
                gone_since = None;
                if entry.recovery.gives_up(key.number) {
                    self.counts.count(|stats| stats.holes += 1);
                    return Ok(Arc::new(Chunk::hole(&entry.title, key.number)));
                }
            } else {
                return Err(error);
            }
            if begun.elapsed() >= AWAIT && gone_since.is_none() {
                return Err(error);
            }
            tokio::time::sleep(entry.recovery.pause(retry)).await;
            retry += 1;
        }
    }

    async fn load(self: Arc<Self>, entry: Arc<Entry>, key: Key) -> Result<Arc<Chunk>, Error> {
        // It may have come between the look into the cache and here.
        if let Some(chunk) = self.cache.get(key) {
            return Ok(chunk);
        }
        if let Some(chunk) = self.on_disk(&entry, key).await {
            return Ok(chunk);
        }
        let asked = Instant::now();
        let range = entry.title.chunk_range(key.number);
        let title = entry.title.clone();
        let loaded = match &entry.source {
            Source::File(file) => {
                let (file, entry_disk) = (file.clone(), file.identity.disk());
                let scan = move || Ok(Chunk::scan(&title, key.number, file.read(range)?));
                self.counted(self.read(entry_disk, scan).await)
            }
            Source::Remote(source) => self.load_remote(source, title, key, range).await,
        };
        let chunk = Arc::new(loaded.inspect_err(|error| {
            if error.is_gone() {
                entry.set_stale();
            }
            let is_first = entry.recovery.handle_failure(error);
            self.counts.count(|stats| stats.troubles += u64::from(is_first));
        })?);
        entry.recovery.handle_part(key.number, asked);
        self.cache.insert(key, &chunk);
        Ok(chunk)
    }

    /// A chunk that the disk cache has. That says nothing of where its title is.
    async fn on_disk(&self, entry: &Entry, key: Key) -> Option<Arc<Chunk>> {
        let Source::Remote(RemoteSource { has_validator: true, .. }) = &entry.source else { return None };
        let (disk, title) = (self.disk.clone()?, entry.title.clone());
        let read = move || disk.read(key).map(|bytes| Chunk::scan(&title, key.number, bytes));
        // A disk that hangs costs a moment, and no more threads than another one.
        let read = self.reads.run("disk cache".to_owned(), blocking(read));
        let chunk = Arc::new(timeout(DISK_PATIENCE, read).await.ok()?.ok()??);
        self.cache.insert(key, &chunk);
        Some(chunk)
    }

    async fn load_remote(
        &self,
        source: &RemoteSource,
        title: Arc<Title>,
        key: Key,
        range: Range<u64>,
    ) -> Result<Chunk, Error> {
        let part = self.origins.fetch(&source.remote, range, Some(title.len_bytes)).await?;
        if source.has_validator {
            self.keep_on_disk(key, &part.bytes);
        }
        blocking(move || Chunk::scan(&title, key.number, part.bytes)).await
    }

    /// Writes a chunk to disk while others go on; not when that is behind.
    fn keep_on_disk(&self, key: Key, bytes: &[u8]) {
        let Some(disk) = self.disk.clone() else { return };
        let Ok(permit) = self.writes.clone().try_acquire_owned() else { return };
        let bytes = bytes.to_vec();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = disk.write(key, &bytes) {
                tracing::debug!(%error, "a chunk is not kept on disk");
            }
            drop(permit);
        });
    }

    /// Does something with a file where that may block.
    async fn read<T: Send + 'static>(
        &self,
        disk: String,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let read = async {
            self.counts.count(|stats| stats.reads += 1);
            blocking(work).await?
        };
        self.reads.run(disk, read).await
    }

    fn counted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| self.counts.error(error.kind()))
    }
}

/// Reads a file's head, first and last chunk.
fn probe_file(file: &OpenFile, packets: u32, location: String) -> Result<Probed, Error> {
    let len = file.identity.len;
    // All of a chunk tells the mean rate better, and costs nothing.
    let mut head = file.read(0..probe::head_len(packets).min(len))?;
    let mut probed = probe::probe(&head, len, packets);
    while let Some(next) = probe::next_head_len(&probed, head.len() as u64, len) {
        head = file.read(0..next)?;
        probed = probe::probe(&head, len, packets);
    }
    let title = probed.map_err(|error| Error::Title { location, error })?;
    let first = probe::first_chunk(&title, &head);
    let look = |number, is_whole| {
        let range = title.chunk_range(number);
        let len = probe::LOOK_PACKETS * title.spacing.stride() as u64;
        let end = if is_whole { range.end } else { range.end.min(range.start + len) };
        Ok::<_, Error>(Chunk::scan(&title, number, file.read(range.start..end)?))
    };
    let looks: Result<Vec<_>, Error> =
        probe::look_at(&title, probe::LOOKS).map(|number| Ok(Arc::new(look(number, false)?))).collect();
    let mut closer = 0..probe::CLOSER_LOOKS;
    let duration =
        probe::duration(&title, &looks?, |number, is_whole| closer.next().map(|_| look(number, is_whole)).transpose())?;
    Ok(Probed { title, first, duration })
}

/// Clients choose some of this, so it has to be a hash that nobody finds two texts for.
fn id_of(text: &str) -> u128 {
    let hash = digest(&SHA256, text.as_bytes());
    hash.as_ref().iter().take(16).fold(0, |id, byte| id << 8 | u128::from(*byte))
}

fn location_shown(location: &Location) -> String {
    match location {
        Location::Name(name) => shown(name),
        Location::Path(path) => shown(&path.to_string_lossy()),
        Location::Url(url) => shown(url.as_str()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Stopped)
}
