//! A connection as a task reads and writes it, under a cipher or not.
//!
//! In and out: bytes as they are meant (`AsyncRead`, `AsyncWrite`).
//! Cost: a record that has begun, and `WAITING_MAX` that wait for room, at most.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use wire::{Begun, Cipher};

/// Bytes of one read.
const READ_MAX: usize = 16 * 1_024;

/// Bytes that are sealed at a time.
const SEALED_MAX: usize = 16 * 1_024;

/// Bytes that wait until the kernel has room, beyond which nothing is taken.
const WAITING_MAX: usize = 64 * 1_024;

/// A connection on which others have begun to speak.
pub(crate) struct Secured {
    socket: TcpStream,
    cipher: Option<Box<dyn Cipher>>,
    /// Plain bytes, of which `read` were taken.
    plain: Vec<u8>,
    read: usize,
    /// What came and is not opened yet.
    sealed: Vec<u8>,
    /// Sealed bytes that wait for room, of which `written` have left.
    waiting: Vec<u8>,
    written: usize,
    has_input_ended: bool,
    has_ended: bool,
}

impl Secured {
    pub(super) fn new(socket: TcpStream, begun: Begun) -> Self {
        let Begun { received, cipher, sealed, .. } = begun;
        Secured {
            socket,
            cipher,
            plain: received.into(),
            read: 0,
            sealed: sealed.into(),
            waiting: Vec::new(),
            written: 0,
            has_input_ended: false,
            has_ended: false,
        }
    }

    /// Reads once and opens what is whole.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(cipher) = &mut self.cipher else { return Poll::Ready(Ok(())) };
        let kept = self.sealed.len();
        self.sealed.resize(kept + READ_MAX, 0);
        let mut buf = ReadBuf::new(&mut self.sealed[kept..]);
        let came = Pin::new(&mut self.socket).poll_read(context, &mut buf);
        let count = buf.filled().len();
        self.sealed.truncate(kept + count);
        // Who is idle keeps no memory, neither when nothing has come nor when all of it was opened.
        if self.sealed.is_empty() {
            self.sealed = Vec::new();
        }
        ready!(came)?;
        if count == 0 {
            // Anybody may have cut it off.
            return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
        }
        let opened = cipher.open(&mut self.sealed);
        cipher.poll_output(&mut self.waiting);
        if let Ok(opened) = opened {
            (self.read, self.has_input_ended) = (0, opened.has_ended);
            self.plain.clear();
            self.plain.extend_from_slice(&self.sealed[..opened.plain]);
            self.sealed.drain(..opened.used);
            if self.sealed.is_empty() {
                self.sealed = Vec::new();
            }
        }
        // What the cipher has to say is on its way as soon as there is room.
        if let Poll::Ready(result) = self.poll_waiting(context) {
            result?;
        }
        Poll::Ready(opened.map(drop).map_err(|error| io::Error::new(ErrorKind::InvalidData, error)))
    }

    /// Writes what waits.
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.waiting.len() {
            let rest = &self.waiting[self.written..];
            match ready!(Pin::new(&mut self.socket).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        (self.waiting, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let rest = &this.plain[this.read..];
            if !rest.is_empty() {
                let count = rest.len().min(buf.remaining());
                buf.put_slice(&rest[..count]);
                this.read += count;
                if this.read == this.plain.len() {
                    (this.plain, this.read) = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(()));
            }
            if this.cipher.is_none() {
                return Pin::new(&mut this.socket).poll_read(context, buf);
            }
            if this.has_input_ended {
                return Poll::Ready(Ok(()));
            }
            ready!(this.poll_open(context))?;
        }
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.cipher.is_none() {
            return Pin::new(&mut this.socket).poll_write(context, buf);
        }
        if this.waiting.len() - this.written >= WAITING_MAX {
            ready!(this.poll_waiting(context))?;
        }
        let part = &buf[..buf.len().min(SEALED_MAX)];
        if let Some(cipher) = &mut this.cipher {
            cipher.seal(part, &mut this.waiting).map_err(io::Error::other)?;
        }
        // What finds no room now is written by the next call, or by a flush.
        if let Poll::Ready(result) = this.poll_waiting(context) {
            result?;
        }
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(context))?;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !std::mem::replace(&mut this.has_ended, true)
            && let Some(cipher) = &mut this.cipher
        {
            cipher.end(&mut this.waiting);
        }
        ready!(this.poll_waiting(context))?;
        Pin::new(&mut this.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.cipher.is_none() {
            return Pin::new(&mut self.socket).poll_write_vectored(context, bufs);
        }
        let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
        self.poll_write(context, first)
    }

    fn is_write_vectored(&self) -> bool {
        self.cipher.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use wire::{CipherError, Opened};

    use super::*;

    /// Records of four bytes, under nothing.
    #[derive(Debug)]
    struct Fours;

    impl Cipher for Fours {
        fn open(&mut self, buf: &mut [u8]) -> Result<Opened, CipherError> {
            let whole = buf.len() / 4 * 4;
            Ok(Opened { plain: whole, used: whole, ..Opened::default() })
        }

        fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
            out.extend_from_slice(plain);
            Ok(())
        }

        fn poll_output(&mut self, _: &mut Vec<u8>) {}

        fn end(&mut self, _: &mut Vec<u8>) {}
    }

    /// Reads until nothing is there.
    async fn read(secured: &mut Secured) -> Vec<u8> {
        let (mut bytes, mut all) = ([0; 3], Vec::new());
        poll_fn(|context| {
            loop {
                let mut buf = ReadBuf::new(&mut bytes);
                let Poll::Ready(read) = Pin::new(&mut *secured).poll_read(context, &mut buf) else {
                    return Poll::Ready(());
                };
                read.expect("it is there");
                all.extend_from_slice(buf.filled());
            }
        })
        .await;
        all
    }

    #[tokio::test]
    async fn who_is_idle_keeps_no_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        let (socket, _) = listener.accept().await.expect("a client");
        let begun = Begun { cipher: Some(Box::new(Fours)), ..Begun::default() };
        let mut secured = Secured::new(socket, begun);
        for (sent, left) in [(&b""[..], 0), (b"12345678", 0), (b"123456", 2), (b"78", 0)] {
            client.write_all(sent).await.expect("written");
            if !sent.is_empty() {
                secured.socket.readable().await.expect("it comes");
            }
            let came = read(&mut secured).await;
            assert_eq!(secured.sealed.len(), left, "{came:?}");
            let kept = [&secured.sealed, &secured.plain, &secured.waiting].map(Vec::capacity);
            assert!(left > 0 || kept == [0; 3], "{kept:?}");
        }
    }
}
