//! A stream that is asked for by HTTP.
//!
//! In: the body of a response, as it is or in blocks of Metacube 2 (`Content-Encoding: metacube`). Out: the stream.
//! The header of a framed stream is no part of what its blocks hold, so it goes before them; where another one comes, the stream
//! begins anew. What the blocks say of start points is not looked at: the stream itself says it.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use live::HEADER_LEN_MAX;
use live::metacube::{CONTENT_ENCODING, Kind, Part, Reader};
use titles::Streams;

use super::{Input, Sink, Stop};
use crate::config::PullSource;

/// No Content-Type that means anything is longer.
const CONTENT_TYPE_MAX: usize = 200;

/// Until it ends.
///
/// # Errors
/// Why it is not heard any more.
pub(super) async fn run<S: Sink>(input: &mut Input<'_, S>, from: &PullSource, http: &Streams) -> Result<(), Stop> {
    let mut stream = http.get(&from.url, headers(from)).await.map_err(Stop::because)?;
    let field = |name: HeaderName| stream.headers().get(name).and_then(|value| value.to_str().ok());
    input.content_type = field(header::CONTENT_TYPE).filter(|text| text.len() <= CONTENT_TYPE_MAX).map(str::to_owned);
    let mut blocks = match field(header::CONTENT_ENCODING).map(str::trim) {
        None | Some("") => None,
        Some(encoding) if encoding.eq_ignore_ascii_case("identity") => None,
        Some(encoding) if encoding.eq_ignore_ascii_case(CONTENT_ENCODING) => Some(Blocks::default()),
        Some(encoding) => return Err(Stop::because(format_args!("its encoding is {encoding:?}"))),
    };
    while let Some(bytes) = stream.read().await.map_err(Stop::because)? {
        match &mut blocks {
            None => input.write(&bytes).await?,
            Some(blocks) => blocks.write(input, &bytes).await?,
        }
    }
    Ok(())
}

fn headers(from: &PullSource) -> HeaderMap {
    let mut headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("*/*"))]);
    if let Some((name, password)) = &from.user {
        let text = format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}")));
        if let Ok(mut value) = HeaderValue::from_str(&text) {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
    }
    headers
}

/// Takes blocks apart.
#[derive(Debug, Default)]
struct Blocks {
    reader: Reader,
    /// The header that came last.
    header: Vec<u8>,
    /// One that comes, and its length.
    coming: Option<(Vec<u8>, usize)>,
    lost: u64,
}

impl Blocks {
    async fn write<S: Sink>(&mut self, input: &mut Input<'_, S>, mut bytes: &[u8]) -> Result<(), Stop> {
        while let Some(part) = self.reader.read(&mut bytes) {
            match part {
                Part::Block { kind: Kind::Header, len } => {
                    let len = len as usize;
                    if len > HEADER_LEN_MAX {
                        return Err(Stop::because(format_args!("its header has {len} bytes")));
                    }
                    self.coming = Some((Vec::with_capacity(len), len));
                }
                Part::Block { .. } => self.coming = None,
                Part::Data(data) => match &mut self.coming {
                    None => input.write(data).await?,
                    Some((header, len)) => {
                        header.extend_from_slice(data);
                        if header.len() == *len {
                            self.take_header(input).await?;
                        }
                    }
                },
                Part::Metadata(_) => {}
            }
        }
        if self.reader.lost() > self.lost {
            tracing::debug!(stream = input.sink.name(), bytes = self.reader.lost() - self.lost, "damaged blocks");
            self.lost = self.reader.lost();
        }
        Ok(())
    }

    async fn take_header<S: Sink>(&mut self, input: &mut Input<'_, S>) -> Result<(), Stop> {
        let Some((header, _)) = self.coming.take() else { return Ok(()) };
        if header == self.header {
            return Ok(());
        }
        if input.has_begun {
            input.begin();
        }
        self.header = header;
        input.write(&self.header).await
    }
}
