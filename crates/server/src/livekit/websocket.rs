//! WebSockets of clients: how one begins, and long messages that are written from where they are.
//!
//! In: a request that asks for one (RFC 6455 §4.2.1), and what is sent. Out: the answer, and what comes.
//! Cost: a copy of each short message. Long ones pass the library by, which would copy them into a buffer and keep that for good:
//! what a client hears when it joins is longer than all else that there is of it, where many are in the room. And behind a long one
//! that came (a description), it begins anew with empty buffers.
//! Source: RFC 6455 §4.2 (how it begins), §5.2 (frames).

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use axum::extract::OptionalFromRequestParts;
use axum::http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// Bytes of a message that comes at most.
pub(super) const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Bytes of memory for what comes: each connection has them, and most messages are far smaller.
const READ_BYTES: usize = 2 * 1024;

/// Messages of so many bytes and fewer are copied.
const SHORT_BYTES_MAX: usize = 1024;

/// A request for a WebSocket.
pub(super) struct Asked {
    key: HeaderValue,
    on_upgrade: OnUpgrade,
}

impl<S: Sync> OptionalFromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        let has = |name: HeaderName, word: &str| {
            let lines = parts.headers.get_all(name).into_iter();
            let mut words = lines.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
            words.any(|given| given.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        let is_asked = parts.method == Method::GET
            && has(CONNECTION, "upgrade")
            && has(UPGRADE, "websocket")
            && has(SEC_WEBSOCKET_VERSION, "13");
        let key = parts.headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_asked).cloned();
        let on_upgrade = key.is_some().then(|| parts.extensions.remove()).flatten();
        Ok(key.zip(on_upgrade).map(|(key, on_upgrade)| Asked { key, on_upgrade }))
    }
}

impl Asked {
    /// The answer; once the client has that, `serve` has the connection.
    pub fn answer<F>(self, serve: impl FnOnce(Socket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send,
    {
        let accept = derive_accept_key(self.key.as_bytes());
        tokio::spawn(async move {
            // Where there is none, what would have served is dropped, and so hears of it.
            if let Ok(upgraded) = self.on_upgrade.await {
                serve(Socket::new(TokioIo::new(upgraded)).await).await;
            }
        });
        let headers = [(CONNECTION, "upgrade"), (UPGRADE, "websocket"), (SEC_WEBSOCKET_ACCEPT, accept.as_str())];
        (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
    }
}

/// A connection.
pub(super) struct Socket<S = TokioIo<Upgraded>> {
    library: WebSocketStream<Bypass<S>>,
    /// Bytes of the frames that were given out. What more was read the library still has.
    heard: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    async fn new(stream: S) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX))
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0);
        let bypass = Bypass { stream, read: 0, long: [Bytes::new(), Bytes::new()] };
        Socket { library: WebSocketStream::from_raw_socket(bypass, Role::Server, Some(config)).await, heard: 0 }
    }

    /// The next message; `None` behind the last.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        let message = self.library.next().await;
        if let Some(Ok(message)) = &message {
            self.heard += frame_bytes(message.len());
        }
        message
    }

    /// The same connection behind a message of so many bytes that came, without the buffers that a long one has left. It keeps them
    /// where something is in them.
    pub async fn tidied(mut self, len: usize) -> Self {
        if len <= READ_BYTES || self.library.flush().now_or_never().is_none_or(|flushed| flushed.is_err()) {
            return self;
        }
        match self.library.get_ref().read == self.heard {
            true => Socket::new(self.library.into_inner().stream).await,
            false => self,
        }
    }

    /// Sends a message. Where this is not awaited to its end, the rest goes before all that is sent later.
    ///
    /// # Errors
    /// When the connection is closed or broken.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        let (kind, payload) = match message {
            Message::Binary(bytes) if bytes.len() > SHORT_BYTES_MAX => (Data::Binary, bytes),
            Message::Text(text) if text.len() > SHORT_BYTES_MAX => (Data::Text, text.into()),
            short => return self.library.send(short).await,
        };
        let mut head = Vec::new();
        FrameHeader { opcode: OpCode::Data(kind), ..FrameHeader::default() }.format(payload.len() as u64, &mut head)?;
        // What the library still has was said before.
        self.library.flush().await?;
        self.library.get_mut().long = [head.into(), payload];
        self.library.flush().await
    }
}

/// Of a frame of a client's, which is masked (RFC 6455 §5.2).
fn frame_bytes(payload: usize) -> u64 {
    let extended = match payload {
        0..=125 => 0,
        126..=0xffff => 2,
        _ => 8,
    };
    (2 + extended + 4 + payload) as u64
}

/// A stream with a long message that goes before what is written next.
struct Bypass<S> {
    stream: S,
    /// Bytes that the library has read.
    read: u64,
    /// What is left of its head and its payload.
    long: [Bytes; 2],
}

impl<S: AsyncWrite + Unpin> Bypass<S> {
    fn poll_long(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let [head, payload] = &mut self.long;
        while !head.is_empty() || !payload.is_empty() {
            let parts = [IoSlice::new(head), IoSlice::new(payload)];
            let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, &parts))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = head.split_to(count.min(head.len())).len();
            drop(payload.split_to(count - of_head));
        }
        // Empty ones keep the memory, too.
        self.long = [Bytes::new(), Bytes::new()];
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bypass<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buf);
        self.read += (buf.filled().len() - before) as u64;
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bypass<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_long(context))?;
        Pin::new(&mut self.stream).poll_write(context, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_long(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_long(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// As proxies write it, which add lines of their own (RFC 9110 §5.3).
    #[tokio::test]
    async fn a_header_may_have_its_words_in_several_lines() {
        let asked = async |lines: &[&str]| {
            let request =
                axum::http::Request::get("/rtc").header(UPGRADE, "websocket").header(SEC_WEBSOCKET_VERSION, "13");
            let request = request.header(SEC_WEBSOCKET_KEY, "a2V5");
            let request = lines.iter().fold(request, |request, line| request.header(CONNECTION, *line));
            let mut request = request.body(()).expect("a request");
            let on_upgrade = hyper::upgrade::on(&mut request);
            let mut parts = request.into_parts().0;
            parts.extensions.insert(on_upgrade);
            Asked::from_request_parts(&mut parts, &()).await.expect("it never fails").is_some()
        };
        assert!(asked(&["keep-alive", "Upgrade"]).await && asked(&["keep-alive, Upgrade"]).await);
        assert!(!asked(&["keep-alive"]).await && !asked(&[]).await);
    }

    #[tokio::test]
    async fn a_long_message_is_whole_and_in_its_place_also_where_its_sender_gave_up() {
        let (client, server) = duplex(4 * 1024);
        let mut server = Socket::new(server).await;
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let long = Message::binary(vec![7; 100_000]);
        tokio::select! {
            biased;
            sent = server.send(long.clone()) => panic!("there is no room for it: {sent:?}"),
            () = async {} => {}
        }
        client.send(Message::Ping("there?".into())).await.expect("sent");
        let serving = async {
            assert_eq!(server.recv().await.expect("more").expect("a message"), Message::Ping("there?".into()));
            server.send(Message::text("x".repeat(2_000))).await.expect("sent");
            server.send(Message::text("y")).await.expect("sent");
        };
        let hearing = async {
            let mut heard = Vec::new();
            while heard.len() < 4 {
                heard.push(client.next().await.expect("more").expect("a message"));
            }
            heard
        };
        let ((), heard) = tokio::join!(serving, hearing);
        let pong = Message::Pong("there?".into());
        assert_eq!(heard, [long, pong, Message::text("x".repeat(2_000)), Message::text("y")]);
    }

    #[tokio::test]
    async fn the_buffers_of_a_long_message_go_where_nothing_is_in_them() {
        let (client, server) = duplex(256 * 1024);
        let mut server = Socket::new(server).await;
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        for len in [1, 200, 3_000, 100_000] {
            client.send(Message::binary(vec![7; len])).await.expect("sent");
            assert_eq!(server.recv().await.expect("more").expect("a message").len(), len);
            let read = server.library.get_ref().read;
            assert_eq!((read, read > 0), (server.heard, true), "{len}");
            server = server.tidied(len).await;
            assert_eq!(server.library.get_ref().read == 0, len > READ_BYTES, "{len}");
        }
        for message in [Message::text("x".repeat(3_000)), Message::Ping("there?".into()), Message::text("y")] {
            client.feed(message).await.expect("sent");
        }
        client.flush().await.expect("sent");
        for expected in [3_000, 6, 1] {
            let got = server.recv().await.expect("more").expect("a message");
            assert_eq!(got.len(), expected);
            server = server.tidied(3_000).await;
        }
        assert_eq!(client.next().await.expect("more").expect("a message"), Message::Pong("there?".into()));
    }
}
