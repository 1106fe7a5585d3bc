//! What comes by HTTP and has no end: the body of one response, piece by piece.
//!
//! Redirects are followed as for titles, never from https to http.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use url::Url;

use crate::error::{Error, HttpError};
use crate::http::Client;
use crate::location::check_url;
use crate::settings::Settings;

/// Asks for streams.
#[derive(Clone)]
pub struct Streams {
    client: Arc<Client>,
}

/// A stream that has begun.
pub struct Stream {
    client: Arc<Client>,
    headers: HeaderMap,
    body: Incoming,
}

impl Streams {
    /// Trusts the system's certificates, and those of a file. A connection is waited for so long, with TLS; a response as long as
    /// `silence` beyond that, and each piece of it as long.
    ///
    /// # Errors
    /// When the certificates cannot be read.
    pub fn new(ca_file: Option<&Path>, connect_timeout: Duration, silence: Duration) -> Result<Self, Error> {
        let ca_file = ca_file.map(Path::to_owned);
        let settings = Settings { ca_file, connect_timeout, stall_timeout: silence, ..Settings::default() };
        Ok(Streams { client: Arc::new(Client::new(Arc::new(settings), Arc::default())?) })
    }

    /// Asks for one, with these headers beside those that every request has.
    ///
    /// # Errors
    /// When it is not answered by one, or the URL has a password in it or is none of http.
    pub async fn get(&self, url: &Url, headers: HeaderMap) -> Result<Stream, HttpError> {
        check_url(url).map_err(|refusal| HttpError::Connect(refusal.to_string()))?;
        let (head, body) = self.client.open(url, headers).await?.into_parts();
        Ok(Stream { client: self.client.clone(), headers: head.headers, body })
    }
}

impl Stream {
    /// What the response says of it.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// What comes next; `None`: it has ended.
    ///
    /// # Errors
    /// When nothing comes for too long, or the connection breaks.
    pub async fn read(&mut self) -> Result<Option<Bytes>, HttpError> {
        self.client.piece(&mut self.body).await
    }
}
