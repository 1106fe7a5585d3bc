//! Where else to ask, and when again.
//!
//! In: a title's URLs in their order, and a range. Out: the bytes, from the first origin that has them.
//! Each origin is asked a few times, with pauses that grow; then the next one is. An origin that did not answer is asked
//! last for a while, so that a dead one costs its time-outs once and not with every chunk.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use crate::error::{Error, HttpError};
use crate::flight::lock;
use crate::http::{Client, Part, Validator, Wish};
use crate::location::{shown, shown_url};
use crate::settings::Settings;
use crate::slots::Slots;
use crate::stats::Counts;

/// For how long an origin that did not answer is asked last.
const DOWN: Duration = Duration::from_secs(5);

/// Origins that are remembered as down.
const DOWN_MAX: usize = 256;

/// The longest pause before a retry.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Origins {
    client: Client,
    slots: Slots,
    settings: Arc<Settings>,
    /// Until when.
    down: Mutex<HashMap<url::Origin, Instant>>,
    counts: Arc<Counts>,
}

/// A title at its origins.
pub(crate) struct Remote {
    location: String,
    urls: Vec<Url>,
    /// What each origin said when it was first asked. They need not agree with each other: not all servers make the
    /// same ETag of the same file. The length has to.
    validators: Mutex<Vec<Validator>>,
}

impl Remote {
    pub fn new(location: &str, urls: Vec<Url>) -> Remote {
        let validators = Mutex::new(vec![Validator::default(); urls.len()]);
        Remote { location: shown(location), urls, validators }
    }
}

impl Origins {
    pub fn new(settings: Arc<Settings>, counts: Arc<Counts>) -> Result<Origins, Error> {
        Ok(Origins {
            client: Client::new(settings.clone(), counts.clone())?,
            slots: Slots::new(settings.fetches_per_origin),
            settings,
            down: Mutex::default(),
            counts,
        })
    }

    /// Fetches a range of a title that has `len` bytes, if that is known.
    ///
    /// # Errors
    /// `NotFound`, when all origins say so and nothing was known of it; `Changed`, when no origin has what was known;
    /// otherwise what the last one said.
    pub async fn fetch(&self, remote: &Remote, range: Range<u64>, len: Option<u64>) -> Result<Part, Error> {
        let mut worst: Option<(usize, HttpError)> = None;
        for (turn, index) in self.order(remote).into_iter().enumerate() {
            self.counts.count(|stats| stats.failovers += u64::from(turn > 0));
            let wish = Wish { range: range.clone(), len, validator: Validator::default() };
            match self.fetch_from(remote, index, wish).await {
                Ok(part) => return Ok(part),
                Err(error) => {
                    let is_worse = worst.as_ref().is_none_or(|(_, worst)| weight(&error) >= weight(worst));
                    worst = if is_worse { Some((index, error)) } else { worst };
                }
            }
        }
        let location = remote.location.clone();
        match worst {
            None => Err(Error::NotFound { location }),
            Some((_, HttpError::Status(404 | 410))) if len.is_none() => Err(Error::NotFound { location }),
            Some((_, HttpError::Changed | HttpError::OtherLength { .. })) if len.is_some() => {
                Err(Error::Changed { location })
            }
            Some((index, error)) => Err(Error::Http { url: shown_url(&remote.urls[index]), error }),
        }
    }

    /// One origin, asked up to `retries` times more.
    async fn fetch_from(&self, remote: &Remote, index: usize, mut wish: Wish) -> Result<Part, HttpError> {
        let url = &remote.urls[index];
        let mut retry = 0;
        loop {
            wish.validator = lock(&remote.validators)[index].clone();
            let error = match self.fetch_once(url, &wish).await {
                Ok(part) => {
                    lock(&self.down).remove(&url.origin());
                    lock(&remote.validators)[index] = part.validator.clone();
                    return Ok(part);
                }
                Err(error) => error,
            };
            self.counts.error(error.kind());
            tracing::debug!(%error, url = %shown_url(url), start = wish.range.start, retry, "not fetched");
            // Where somebody else has just found out that it is down, another one is asked at once.
            let is_given_up = remote.urls.len() > 1 && self.is_down(url);
            if retry == self.settings.retries || is_given_up || !is_worth_a_retry(&error) {
                self.note_down(url, &error);
                return Err(error);
            }
            tokio::time::sleep(backoff(self.settings.retry_backoff, BACKOFF_MAX, retry)).await;
            retry += 1;
            self.counts.count(|stats| stats.retries += 1);
        }
    }

    async fn fetch_once(&self, url: &Url, wish: &Wish) -> Result<Part, HttpError> {
        let request = async {
            self.counts.count(|stats| stats.fetches += 1);
            let _under_way = self.counts.enter();
            self.client.fetch(url, wish).await
        };
        // Whoever may name titles makes such requests, as many as he likes; parts of what is played do not wait behind them.
        let is_opening = wish.len.is_none();
        let row = if is_opening { "open " } else { "" };
        self.slots.run(row.to_owned() + &url.origin().ascii_serialization(), request).await
    }

    /// All origins in their order, those that did not answer lately behind the others.
    fn order(&self, remote: &Remote) -> Vec<usize> {
        let mut order: Vec<usize> = (0..remote.urls.len()).collect();
        order.sort_by_cached_key(|index| self.is_down(&remote.urls[*index]));
        order
    }

    fn is_down(&self, url: &Url) -> bool {
        lock(&self.down).get(&url.origin()).is_some_and(|until| *until > Instant::now())
    }

    fn note_down(&self, url: &Url, error: &HttpError) {
        use HttpError::{Connect, Connection, Panicked, Slow, Stalled, Status};
        if !matches!(error, Connect(_) | Connection(_) | Panicked | Slow { .. } | Stalled { .. } | Status(500..)) {
            return;
        }
        let now = Instant::now();
        let mut down = lock(&self.down);
        if down.len() >= DOWN_MAX {
            down.retain(|_, until| *until > now);
        }
        if down.len() < DOWN_MAX {
            down.insert(url.origin(), now + DOWN);
        }
    }
}

/// Which of several origins' errors is told: that the title has changed, before that one failed, before that it has not
/// the title.
fn weight(error: &HttpError) -> u8 {
    match error {
        HttpError::Changed | HttpError::OtherLength { .. } => 2,
        HttpError::Status(404 | 410) => 0,
        _ => 1,
    }
}

fn is_worth_a_retry(error: &HttpError) -> bool {
    match error {
        HttpError::Connect(_)
        | HttpError::Connection(_)
        | HttpError::Panicked
        | HttpError::Stalled { .. }
        | HttpError::Slow { .. }
        | HttpError::WrongRange { .. }
        | HttpError::Truncated { .. }
        | HttpError::Status(408 | 429 | 500..) => true,
        HttpError::Status(_)
        | HttpError::RangeIgnored
        | HttpError::OtherLength { .. }
        | HttpError::Changed
        | HttpError::Redirects(_)
        | HttpError::BadRedirect(_) => false,
    }
}

/// The pause before a retry: twice as long each time up to `max`, and half of it random, so that those who failed together
/// do not come back together.
pub(crate) fn backoff(first: Duration, max: Duration, retry: u32) -> Duration {
    let longest = first.saturating_mul(1 << retry.min(16)).min(max);
    let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    longest.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins() -> (Origins, Remote) {
        let urls = ["http://a/x.ts", "http://b/x.ts", "http://c/x.ts"].map(|url| url.parse().unwrap()).to_vec();
        (Origins::new(Arc::default(), Arc::default()).unwrap(), Remote::new("x.ts", urls))
    }

    #[tokio::test(start_paused = true)]
    async fn an_origin_that_did_not_answer_is_asked_last_for_a_while() {
        let (origins, remote) = origins();

        origins.note_down(&remote.urls[0], &HttpError::Stalled { ms: 1 });
        origins.note_down(&remote.urls[1], &HttpError::Status(404));
        assert_eq!(origins.order(&remote), [1, 2, 0]);

        tokio::time::advance(DOWN).await;
        assert_eq!(origins.order(&remote), [0, 1, 2]);
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_are_never_less_than_half() {
        let first = Duration::from_millis(100);
        for (retry, longest) in [(0, 100), (1, 200), (3, 800), (10, 2_000), (u32::MAX, 2_000)] {
            let longest = Duration::from_millis(longest);
            let pause = backoff(first, BACKOFF_MAX, retry);
            assert!(pause >= longest / 2 && pause <= longest, "{retry}: {pause:?}");
        }
    }
}
