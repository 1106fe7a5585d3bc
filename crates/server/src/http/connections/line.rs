//! A connection whose other end may be listened for beside the library: while an answer of HTTP/1 is under way, when nobody reads, and
//! behind the last of HTTP/2.
//!
//! In: what the client sends. Out: the same, and that it sends no more.
//! Cost: a lock of its own per read and write, which nobody else waits for.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Bytes that are read ahead to see what is behind them: more than requests without a body have. Who sends more has left his
/// answer, as far as anybody can see.
const AHEAD_MAX: usize = 8 * 1_024;

/// A connection that two of one task have.
#[derive(Debug)]
pub(super) struct Line<S>(Arc<Mutex<Shared<S>>>);

#[derive(Debug)]
struct Shared<S> {
    stream: S,
    /// What was read, and nobody has asked for yet.
    ahead: Vec<u8>,
    has_ended: bool,
}

impl<S> Line<S> {
    pub(super) fn new(stream: S) -> Self {
        Line(Arc::new(Mutex::new(Shared { stream, ahead: Vec::new(), has_ended: false })))
    }

    pub(super) fn other(&self) -> Self {
        Line(self.0.clone())
    }

    /// A panic of a library ends the connection alone.
    fn lock(&self) -> MutexGuard<'_, Shared<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + Unpin> Line<S> {
    /// Whether the client has ended what it sends, sends without end, or the connection is broken.
    pub(super) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.lock();
        let Shared { stream, ahead, has_ended } = &mut *shared;
        while !*has_ended && ahead.len() < AHEAD_MAX {
            let mut room = [0; 1_024];
            let mut buf = ReadBuf::new(&mut room);
            if ready!(Pin::new(&mut *stream).poll_read(context, &mut buf)).is_err() {
                return Poll::Ready(());
            }
            *has_ended = buf.filled().is_empty();
            ahead.extend_from_slice(buf.filled());
            // Who reads was told that there was nothing.
            context.waker().wake_by_ref();
        }
        Poll::Ready(())
    }

    /// Throws away what comes until the client has ended what it sends, or the connection is broken.
    pub(super) async fn drain(mut self) {
        let mut room = [0; 1_024];
        while self.read(&mut room).await.is_ok_and(|count| count > 0) {}
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.lock();
        let Shared { stream, ahead, has_ended } = &mut *shared;
        if !ahead.is_empty() {
            let count = ahead.len().min(buf.remaining());
            buf.put_slice(&ahead[..count]);
            ahead.drain(..count);
            return Poll::Ready(Ok(()));
        }
        if *has_ended { Poll::Ready(Ok(())) } else { Pin::new(stream).poll_read(context, buf) }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().stream).poll_write(context, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().stream).poll_write_vectored(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn an_end_is_seen_behind_what_came_before_it_and_nothing_of_that_is_lost() {
        let (mut client, server) = duplex(64 * 1_024);
        let mut line = Line::new(server);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
        let listening = line.other();
        let listener = tokio::spawn(async move { poll_fn(|context| listening.poll_ended(context)).await });
        client.shutdown().await.expect("ended");
        listener.await.expect("it is seen");
        let mut all = Vec::new();
        line.read_to_end(&mut all).await.expect("read");
        assert_eq!(all, b"GET / HTTP/1.1\r\n\r\n");
        line.write_all(b"answer").await.expect("the other way is open");
        drop(line);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("read");
        assert_eq!(answer, b"answer");
    }

    #[tokio::test]
    async fn little_is_read_ahead_and_who_sends_more_has_left() {
        let (mut client, server) = duplex(64 * 1_024);
        let line = Line::new(server);
        client.write_all(&[7; 32 * 1_024]).await.expect("sent");
        let ended = poll_fn(|context| Poll::Ready(line.poll_ended(context))).await;
        assert!(ended.is_ready() && line.lock().ahead.len() == AHEAD_MAX);
    }
}
