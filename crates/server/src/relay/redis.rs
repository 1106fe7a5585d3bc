//! Users in Redis, as coturn keeps them.
//!
//! ```text
//! turn/realm/REALM/user/NAME/key   a string: MD5 of NAME:REALM:PASSWORD, in hexadecimal
//! turn/realm/REALM/secret          a set: secrets for time-limited credentials
//! ```
//! There is one connection, which all questions share and which is made again when it is lost. While it is away every
//! question fails at once, or within a second: then it could not be found out.
//! Source: coturn's turndb/schema.userdb.redis.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, FromRedisValue, RedisError, RedisResult};
use relay::auth::{Found, UserKeys};

use super::lookup::UserStore;
use crate::random::unhex;

/// Nobody waits longer for a connection,
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);
/// nor for an answer.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// When a connection could not be made, the next question tries again.
const RETRIES: usize = 1;

/// One Redis, and one realm in it.
pub struct Redis {
    connection: ConnectionManager,
    realm: String,
    /// So that its loss is told once.
    is_away: AtomicBool,
}

impl Redis {
    /// The Redis at a URL, `redis://[user:password@]host[:port][/database]`, `rediss://…` for TLS, or
    /// `unix:///path[?db=number]`. The connection is made by the first question.
    ///
    /// # Errors
    /// When that is no such URL.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(url: &str, realm: &str) -> RedisResult<Self> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECTED_WITHIN))
            .set_response_timeout(Some(ANSWERED_WITHIN))
            .set_number_of_retries(RETRIES);
        let connection = ConnectionManager::new_lazy_with_config(Client::open(url)?, config)?;
        Ok(Redis { connection, realm: realm.to_owned(), is_away: AtomicBool::new(false) })
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        let answer = command.query_async(&mut self.connection.clone()).await;
        match &answer {
            Ok(_) if self.is_away.swap(false, Relaxed) => tracing::info!("Redis is there again"),
            Err(error) if !self.is_away.swap(true, Relaxed) => {
                // What an error says may have what was asked in it.
                tracing::warn!(kind = ?error.kind(), "Redis does not answer: users whom it has and who are not known yet get 500");
                tracing::debug!(%error, "Redis");
            }
            _ => {}
        }
        answer
    }
}

impl UserStore for Redis {
    async fn find(&self, name: &str) -> Found {
        let key = format!("turn/realm/{}/user/{name}/key", self.realm);
        match self.ask::<Option<Vec<u8>>>(redis::cmd("GET").arg(key)).await {
            Ok(None) => Found::Nobody,
            Ok(Some(digits)) => match str::from_utf8(&digits).ok().and_then(|digits| unhex(digits.trim())) {
                Some(md5) => Found::Keys(UserKeys { md5: Some(md5), sha256: None }),
                None => {
                    tracing::debug!(name, "the key in Redis is not 32 hexadecimal digits");
                    Found::Nobody
                }
            },
            Err(_) => Found::Unavailable,
        }
    }

    async fn secrets(&self) -> Option<Vec<Vec<u8>>> {
        let key = format!("turn/realm/{}/secret", self.realm);
        let mut secrets: Vec<Vec<u8>> = self.ask(redis::cmd("SMEMBERS").arg(key)).await.ok()?;
        // A set comes in any order.
        secrets.sort_unstable();
        Some(secrets)
    }
}
