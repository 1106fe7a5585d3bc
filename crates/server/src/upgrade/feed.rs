//! The bytes of a source whose connection another process has.
//!
//! In: what the source brings, in the process that has its connection. Out: the same, in the one that has its stream. Between
//! them is a Unix stream socket, which goes on to the process after; so it never passes through a third one.
//! Cost: two copies, and a wake of each side. What is not read waits, up to `WAITING_MAX` beside the socket's own buffer; then
//! the source does.
//!
//! ```text
//! 0      1        5
//! ┌──────┬────────┬────────┐
//! │ kind │ length │ data … │   little-endian; kinds: 0 bytes, 1 a source begins (its Content-Type), 2 it breaks off
//! └──────┴────────┴────────┘
//! ```

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

const HEAD_LEN: usize = 5;

/// Bytes of one frame at most.
pub(crate) const FRAME_MAX: usize = 64 * 1_024;

/// Bytes that wait for the other side at most.
const WAITING_MAX: usize = 1 << 20;

/// What is told of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// What it brings.
    Bytes(Vec<u8>),
    /// It begins, and says of its format so much.
    Begin(Option<String>),
    /// It is gone.
    BreakOff,
}

impl Frame {
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, data): (u8, &[u8]) = match self {
            Frame::Bytes(bytes) => (0, bytes),
            Frame::Begin(content_type) => (1, content_type.as_deref().unwrap_or_default().as_bytes()),
            Frame::BreakOff => (2, &[]),
        };
        debug_assert!(data.len() <= FRAME_MAX, "it is cut before");
        out.push(kind);
        out.extend_from_slice(&(data.len() as u32).to_le_bytes());
        out.extend_from_slice(data);
    }

    /// Takes a frame from the front; `None` when that is not whole.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn take(buffer: &mut Vec<u8>) -> io::Result<Option<Frame>> {
        let Some(head) = buffer.first_chunk::<HEAD_LEN>() else { return Ok(None) };
        let [kind, length @ ..] = *head;
        let len = u32::from_le_bytes(length) as usize;
        if len > FRAME_MAX || kind > 2 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(data) = buffer.get(HEAD_LEN..HEAD_LEN + len) else { return Ok(None) };
        let frame = match kind {
            0 => Frame::Bytes(data.to_vec()),
            1 => Frame::Begin(Some(String::from_utf8_lossy(data).into_owned()).filter(|said| !said.is_empty())),
            _ => Frame::BreakOff,
        };
        buffer.drain(..HEAD_LEN + len);
        Ok(Some(frame))
    }
}

/// The end that a source writes to.
#[derive(Debug)]
pub(crate) struct Feed {
    frames: mpsc::UnboundedSender<Frame>,
    room: Arc<Semaphore>,
}

/// The other process reads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

impl Feed {
    /// Writes frames to a socket until the feed is dropped, and then what waits. The task ends with that, or when nobody reads.
    pub(crate) fn start(socket: UnixStream) -> (Feed, JoinHandle<()>) {
        let (frames, waiting) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(WAITING_MAX));
        let task = tokio::spawn(write_all(socket, waiting, room.clone()));
        (Feed { frames, room }, task)
    }

    /// Passes bytes on; waits for room.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), Over> {
        for piece in bytes.chunks(FRAME_MAX) {
            // They come back when the piece has left.
            self.room.acquire_many(piece.len() as u32).await.map_err(|_| Over)?.forget();
            self.send(Frame::Bytes(piece.to_vec()))?;
        }
        Ok(())
    }

    /// Tells something else.
    pub(crate) fn send(&self, frame: Frame) -> Result<(), Over> {
        self.frames.send(frame).map_err(|_| Over)
    }
}

async fn write_all(mut socket: UnixStream, mut waiting: mpsc::UnboundedReceiver<Frame>, room: Arc<Semaphore>) {
    let mut buffer = Vec::new();
    while let Some(frame) = waiting.recv().await {
        buffer.clear();
        frame.write(&mut buffer);
        if let Err(error) = socket.write_all(&buffer).await {
            tracing::debug!(%error, "nobody reads what a source brings");
            break;
        }
        if let Frame::Bytes(bytes) = frame {
            room.add_permits(bytes.len());
        }
    }
    room.close();
}

/// The end that a stream reads from.
#[derive(Debug)]
pub(crate) struct Fed {
    socket: UnixStream,
    /// What was read and is no whole frame.
    buffer: Vec<u8>,
}

impl Fed {
    /// Reads from a socket, of which so much was read already.
    pub(crate) fn new(socket: UnixStream, buffer: Vec<u8>) -> Self {
        Fed { socket, buffer }
    }

    /// The next frame; `None` when the source has ended. Nothing is lost when this is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = Frame::take(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// What another process goes on with.
    pub(crate) fn into_parts(self) -> (UnixStream, Vec<u8>) {
        (self.socket, self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_however_they_are_cut() {
        let frames =
            [Frame::Begin(Some("video/mp2t".into())), Frame::Bytes(vec![7; 300]), Frame::BreakOff, Frame::Begin(None)];
        let mut written = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut written));
        for cut in 0..written.len() {
            let (mut buffer, mut read) = (Vec::new(), Vec::new());
            for part in [&written[..cut], &written[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(frame) = Frame::take(&mut buffer).expect("they are frames") {
                    read.push(frame);
                }
            }
            assert_eq!((&read[..], buffer.len()), (&frames[..], 0));
        }
        assert!(Frame::take(&mut vec![3, 0, 0, 0, 0]).is_err());
        assert!(Frame::take(&mut vec![0, 1, 0, 1, 0]).is_err());
    }

    #[tokio::test]
    async fn all_that_was_written_is_read_by_one_process_and_the_next() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (feed, task) = Feed::start(near);
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
        let expected = bytes.clone();
        let writer = tokio::spawn(async move { feed.write(&bytes).await });
        let (mut fed, mut read) = (Fed::new(far, Vec::new()), Vec::new());
        while let Some(frame) = fed.next().await.expect("frames") {
            let Frame::Bytes(bytes) = frame else { panic!("{frame:?}") };
            read.extend_from_slice(&bytes);
            let (socket, buffer) = fed.into_parts();
            fed = Fed::new(socket, buffer);
        }
        assert_eq!(writer.await.expect("no panic"), Ok(()));
        task.await.expect("no panic");
        assert!(read == expected);
    }

    #[tokio::test]
    async fn who_writes_hears_when_nobody_reads_any_more() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (feed, _task) = Feed::start(near);
        drop(far);
        while feed.write(&[1; FRAME_MAX]).await.is_ok() {}
        assert_eq!(feed.write(&[1]).await, Err(Over));
    }
}
