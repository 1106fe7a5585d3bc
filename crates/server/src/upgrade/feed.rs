//! The bytes of a source whose connection another process has.
//!
//! In: what the source brings, in the process that has its connection. Out: the same, in the one that has its stream. Between
//! them is a Unix stream socket, which goes on to the process after; so it never passes through a third one. It ends with the
//! source.
//! Cost: two copies, and a wake of each side. What is not read waits in the socket's buffer, and then the source does.

use std::io;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// Bytes that are read at a time.
const READ_MAX: usize = 64 * 1_024;

/// The end that a source writes to.
#[derive(Debug)]
pub(crate) struct Feed {
    socket: UnixStream,
    /// Tells with its end that it has ended.
    _ended: oneshot::Sender<()>,
}

/// The other process reads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

impl Feed {
    /// One that writes to a socket. What comes with it resolves when it has been dropped.
    pub(crate) fn new(socket: UnixStream) -> (Feed, oneshot::Receiver<()>) {
        let (ended, is_over) = oneshot::channel();
        (Feed { socket, _ended: ended }, is_over)
    }

    /// Passes bytes on; waits for room. One writes at a time.
    ///
    /// # Errors
    /// When nobody reads.
    pub(crate) async fn write(&self, mut bytes: &[u8]) -> Result<(), Over> {
        while !bytes.is_empty() {
            self.socket.writable().await.map_err(|_| Over)?;
            match self.socket.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    tracing::debug!(%error, "nobody reads what a source brings");
                    return Err(Over);
                }
            }
        }
        Ok(())
    }
}

/// The end that a stream reads from.
#[derive(Debug)]
pub(crate) struct Fed {
    socket: UnixStream,
    buffer: Vec<u8>,
}

impl Fed {
    /// Reads from a socket.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Fed { socket, buffer: vec![0; READ_MAX] }
    }

    /// The next bytes; none when the source has ended. Nothing is lost when this is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<&[u8]> {
        let count = self.socket.read(&mut self.buffer).await?;
        Ok(&self.buffer[..count])
    }

    /// What another process goes on with.
    pub(crate) fn into_socket(self) -> UnixStream {
        self.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_that_was_written_is_read_by_one_process_and_the_next() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (feed, is_over) = Feed::new(near);
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
        let expected = bytes.clone();
        let writer = tokio::spawn(async move { feed.write(&bytes).await });
        let (mut fed, mut read) = (Fed::new(far), Vec::new());
        loop {
            let bytes = fed.next().await.expect("bytes");
            if bytes.is_empty() {
                break;
            }
            read.extend_from_slice(bytes);
            fed = Fed::new(fed.into_socket());
        }
        assert_eq!(writer.await.expect("no panic"), Ok(()));
        assert!(is_over.await.is_err() && read == expected);
    }

    #[tokio::test]
    async fn who_writes_hears_when_nobody_reads_any_more() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (feed, _is_over) = Feed::new(near);
        drop(far);
        assert_eq!(feed.write(&[1; READ_MAX]).await, Err(Over));
    }
}
