//! Users in Redis, as coturn keeps them.
//!
//! ```text
//! turn/realm/REALM/user/NAME/key   a string: MD5 of NAME:REALM:PASSWORD, in hexadecimal
//! turn/realm/REALM/secret          a set: secrets for time-limited credentials
//! ```
//! There is one connection, which all questions share and which is made again when it is lost. While it is away every
//! question fails at once, or within a second: then it could not be found out. The library has a thread of its own, where a
//! panic of its tasks ends what they were at (`guard::Apart`); then the connection is made anew, too.
//! Source: coturn's turndb/schema.userdb.redis.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult};
use relay::auth::{Found, UserKeys};

use super::lookup::UserStore;
use crate::guard::Apart;
use crate::random::unhex;

/// Nobody waits longer for a connection,
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);
/// nor for an answer.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// When a connection could not be made, the next question tries again.
const RETRIES: usize = 1;

/// One Redis, and one realm in it.
pub struct Redis {
    apart: Apart,
    client: Client,
    connection: Mutex<ConnectionManager>,
    realm: String,
    /// So that its loss is told once.
    is_away: AtomicBool,
}

impl Redis {
    /// The Redis at a URL, `redis://[user:password@]host[:port][/database]`, `rediss://…` for TLS, or
    /// `unix:///path[?db=number]`. The connection is made by the first question.
    ///
    /// # Errors
    /// When that is no such URL, or there is no thread to be had.
    pub fn new(url: &str, realm: &str) -> anyhow::Result<Self> {
        let apart = Apart::new("redis").context("starting the thread that asks Redis")?;
        let client = Client::open(url)?;
        let connection = Mutex::new(connect(&apart, &client)?);
        Ok(Redis { apart, client, connection, realm: realm.to_owned(), is_away: AtomicBool::new(false) })
    }

    async fn ask<T: FromRedisValue + Send + 'static>(&self, command: Cmd) -> RedisResult<T> {
        let mut connection = self.with_connection(|connection| connection.clone());
        let answer = self.apart.run(async move { command.query_async(&mut connection).await }).await;
        let answer = answer.unwrap_or_else(|| Err(self.begin_anew()));
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

    /// The library has panicked, so the connection may be half of one.
    fn begin_anew(&self) -> RedisError {
        match connect(&self.apart, &self.client) {
            Ok(anew) => self.with_connection(|connection| *connection = anew),
            Err(error) => return error,
        }
        (ErrorKind::Client, "the library panicked").into()
    }

    fn with_connection<T>(&self, work: impl FnOnce(&mut ConnectionManager) -> T) -> T {
        work(&mut self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection that is made when it is needed.
fn connect(apart: &Apart, client: &Client) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(CONNECTED_WITHIN))
        .set_response_timeout(Some(ANSWERED_WITHIN))
        .set_number_of_retries(RETRIES);
    let _inside = apart.enter();
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

impl UserStore for Redis {
    async fn find(&self, name: &str) -> Found {
        let key = format!("turn/realm/{}/user/{name}/key", self.realm);
        match self.ask::<Option<Vec<u8>>>(command("GET", key)).await {
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
        let mut secrets: Vec<Vec<u8>> = self.ask(command("SMEMBERS", key)).await.ok()?;
        // A set comes in any order.
        secrets.sort_unstable();
        Some(secrets)
    }
}

fn command(name: &str, key: String) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use axum::body::Bytes;
    use redis::{ParsingError, Value};

    use super::*;

    /// An answer over which a library panics.
    #[derive(Debug)]
    struct Panics;

    impl FromRedisValue for Panics {
        fn from_redis_value(_: Value) -> Result<Self, ParsingError> {
            drop(Bytes::new().slice(1..));
            Ok(Panics)
        }
    }

    /// Says to each word of a command that it is fine. Returns its port.
    fn yes_man() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let agree = |mut stream: TcpStream| {
            for line in BufReader::new(stream.try_clone()?).lines() {
                // `*N` begins a command.
                if line?.starts_with('*') {
                    stream.write_all(b"+OK\r\n")?;
                }
            }
            std::io::Result::Ok(())
        };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || agree(stream));
            }
        });
        port
    }

    #[tokio::test]
    async fn a_panic_over_an_answer_ends_that_question_and_the_next_is_answered() {
        let redis = Redis::new(&format!("redis://127.0.0.1:{}", yes_man()), "realm").expect("a URL");
        let panicked = redis.ask::<Panics>(redis::cmd("PING")).await;
        assert!(panicked.is_err_and(|error| error.to_string().contains("panicked")));
        // A busy machine may need longer than a question waits.
        let asked = async { while redis.ask::<String>(redis::cmd("PING")).await.is_err() {} };
        tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it is answered");
    }
}
