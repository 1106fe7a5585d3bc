//! What `millrace doctor` says of the host, for who looks at the dashboard.
//!
//! In: the settings. Out: findings as JSON, at most `AGE_MAX` old. Cost: some hundred reads of /proc and /sys on a thread of their
//! own, for one who asks at a time; the others wait for him.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use tokio::sync::Mutex;

use crate::config::Config;
use crate::examine::examine;
use crate::http::Problem;

/// Findings that are younger are good enough.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The host, as it was looked at last.
#[derive(Debug)]
pub(super) struct Checks {
    config: Arc<Config>,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Checks {
    pub(super) fn new(config: Config) -> Self {
        Checks { config: Arc::new(config), last: Mutex::default() }
    }

    /// The list of `millrace doctor --json`, without a look at ports: the server has its own.
    pub(super) async fn findings(&self) -> Result<Bytes, Problem> {
        let mut last = self.last.lock().await;
        if let Some((_, findings)) = last.as_ref().filter(|(at, _)| at.elapsed() < AGE_MAX) {
            return Ok(findings.clone());
        }
        let config = self.config.clone();
        let looked = tokio::task::spawn_blocking(move || {
            anyhow::Ok(Bytes::from(serde_json::to_vec(&examine(&config, None, true)?)?))
        });
        let failed = |error: anyhow::Error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"));
        let findings = looked.await.map_err(anyhow::Error::from).and_then(|looked| looked).map_err(failed)?;
        *last = Some((Instant::now(), findings.clone()));
        Ok(findings)
    }
}
