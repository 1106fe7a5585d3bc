//! Who writes a stream.
//!
//! In: bytes of a source. Out: the same to the stream, when there is room, and to the one in Cubemap's framing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use super::moved::Going;
use super::{Room, Stream};
use crate::reflect::inlet::Trouble;
use crate::reflect::source::{Sink, Stop};

/// Bytes that are written before others have their turn.
const WRITE_MAX: usize = 64 * 1_024;

/// Why bytes are not taken.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum WriteError {
    #[error("the stream is no more")]
    Ended,
    #[error("another source has begun")]
    Superseded,
    #[error(transparent)]
    Trouble(Trouble),
}

/// A stream is being written by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("somebody else sends this stream")]
pub struct Occupied;

/// Who writes a stream: a source with a ticket of its own. The last that has begun is heard.
#[derive(Clone)]
pub struct StreamHandle {
    stream: Arc<Stream>,
    ticket: u64,
}

impl StreamHandle {
    pub(super) fn new(stream: Arc<Stream>, ticket: u64) -> Self {
        StreamHandle { stream, ticket }
    }

    pub(super) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The source begins, and the one before is heard no more. `content_type` is what it says of its format.
    pub fn begin(&self, content_type: Option<&str>) {
        self.stream.begin(&mut self.stream.lock(), Instant::now(), self.ticket, content_type);
    }

    /// Takes bytes. Waits while workers hold on to so much that there is no room.
    ///
    /// # Errors
    /// When they are not taken; the source is broken off then, and is to begin anew, if it may.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), WriteError> {
        for piece in bytes.chunks(WRITE_MAX) {
            let _writing = self.stream.writing.lock().await;
            match self.stream.way(self.ticket) {
                Going::Here => {}
                Going::Away(feed) => {
                    feed.write(piece).await.map_err(|_| WriteError::Ended)?;
                    continue;
                }
                Going::Nowhere => return Err(WriteError::Ended),
            }
            until_taken(&self.stream.room, || self.stream.write(self.ticket, piece)).await?;
            if let Some(framed) = self.stream.framed() {
                until_taken(&framed.room, || framed.follow(&self.stream, self.ticket, piece)).await?;
            }
        }
        Ok(())
    }

    /// The source is gone.
    pub fn break_off(&self) {
        self.stream.break_off(self.ticket);
    }
}

impl Sink for StreamHandle {
    fn name(&self) -> &str {
        self.stream.name()
    }

    fn begin(&self, content_type: Option<&str>) {
        StreamHandle::begin(self, content_type);
    }

    async fn write(&self, bytes: &[u8]) -> Result<(), Stop> {
        StreamHandle::write(self, bytes).await.map_err(|error| match error {
            WriteError::Ended => Stop::Ended,
            WriteError::Superseded | WriteError::Trouble(_) => Stop::Failed(error.to_string()),
        })
    }

    fn break_off(&self) {
        StreamHandle::break_off(self);
    }
}

/// Writes, and again when there may be room.
async fn until_taken(room: &Notify, write: impl Fn() -> Result<Room, WriteError>) -> Result<(), WriteError> {
    loop {
        let mut may_be_room = pin!(room.notified());
        // What makes room from here on is not missed.
        may_be_room.as_mut().enable();
        match write()? {
            Room::Enough => return Ok(()),
            Room::None => may_be_room.await,
        }
    }
}
