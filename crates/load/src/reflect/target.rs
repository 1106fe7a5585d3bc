//! Where the stream is: what a viewer asks, and whom; and whether it flows.
//!
//! In: a URL. Out: an address and a request; of the answer, where the stream's bytes begin. HTTP/1.0 is spoken, as simple
//! players do: so nobody answers in chunks.
//! Source: RFC 1945 §5 and §6.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use url::Url;

/// Bytes of an answer before the stream at most.
pub(super) const HEAD_MAX: usize = 16 << 10;

/// How long a server may take to answer one that only looks, and how long until it is asked again.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Whom viewers ask, and what.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) addr: SocketAddr,
    /// Host and port, as a request names them.
    pub(super) host: String,
    /// With the query.
    pub(super) path: String,
}

impl Target {
    /// Takes a whole URL, or a path of `server`.
    ///
    /// # Errors
    /// When it is none of http://, or its host is not known.
    pub(super) fn parse(text: &str, server: &str) -> Result<Self> {
        let whole =
            if text.starts_with('/') { format!("{}{text}", server.trim_end_matches('/')) } else { text.to_owned() };
        let url = Url::parse(&whole).with_context(|| format!("{whole} is no URL"))?;
        ensure!(url.scheme() == "http", "{whole}: only http:// is understood here");
        let host = url.host_str().with_context(|| format!("{whole} has no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let mut addrs =
            (host.trim_matches(['[', ']']), port).to_socket_addrs().with_context(|| format!("look up {host}"))?;
        let query = url.query().map_or(String::new(), |query| format!("?{query}"));
        Ok(Target {
            addr: addrs.next().with_context(|| format!("{host} has no address"))?,
            host: format!("{host}:{port}"),
            path: format!("{}{query}", url.path()),
        })
    }

    /// What a viewer asks.
    pub(super) fn request(&self) -> String {
        format!("GET {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: millrace-load\r\n\r\n", self.path, self.host)
    }

    /// Waits until the stream flows, and has for `span`: then a server knows it.
    ///
    /// # Errors
    /// When it does not after `wait`; the last thing that went wrong.
    pub(super) fn wait_for_stream(&self, span: Duration, wait: Duration) -> Result<()> {
        let end = Instant::now() + wait;
        loop {
            match self.look(span) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= end => {
                    return Err(error.context(format!("http://{}{} has no stream", self.host, self.path)));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Watches for a while.
    fn look(&self, span: Duration) -> Result<()> {
        let mut socket = TcpStream::connect_timeout(&self.addr, PATIENCE).context("connect")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(self.request().as_bytes()).context("ask")?;
        let (mut head, mut buf) = (Vec::new(), vec![0; 64 << 10]);
        let mut begun = None;
        loop {
            let len = socket.read(&mut buf).context("read")?;
            ensure!(len > 0, "it ended");
            if begun.is_none() {
                head.extend_from_slice(&buf[..len]);
                begun = read_head(&head)?.filter(|at| *at < head.len()).map(|_| Instant::now());
            }
            if begun.is_some_and(|begun| begun.elapsed() >= span) {
                return Ok(());
            }
        }
    }
}

/// Where the stream begins in an answer; `None` when its head is not whole.
///
/// # Errors
/// When it is no stream's: another status, chunks, or too long a head.
pub(super) fn read_head(answer: &[u8]) -> Result<Option<usize>> {
    let Some(len) = answer.windows(4).position(|end| end == b"\r\n\r\n") else {
        ensure!(answer.len() < HEAD_MAX, "an answer without end");
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&answer[..len]).to_ascii_lowercase();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("an answer without a status")?;
    ensure!(status == "200", "status {status}");
    ensure!(!lines.any(|line| line.starts_with("transfer-encoding:")), "an answer in chunks");
    Ok(Some(len + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_url_or_a_path() {
        for text in ["/live/news?token=x", "http://127.0.0.1:8080/live/news?token=x"] {
            let target = Target::parse(text, "http://127.0.0.1:8080/").unwrap();
            assert_eq!(target.addr, "127.0.0.1:8080".parse().unwrap());
            assert!(target.request().starts_with("GET /live/news?token=x HTTP/1.0\r\nHost: 127.0.0.1:8080\r\n"));
        }
        let six = Target::parse("http://[::1]/x", "").unwrap();
        assert_eq!(six.addr, "[::1]:80".parse().unwrap());
        for text in ["https://127.0.0.1/", "udp://127.0.0.1:5", "nothing"] {
            assert!(Target::parse(text, "").is_err(), "{text}");
        }
    }

    #[test]
    fn an_answer_is_a_stream_s_or_says_why_not() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\n\r\nG";
        assert_eq!(read_head(answer).unwrap(), Some(answer.len() - 1));
        assert_eq!(read_head(&answer[..30]).unwrap(), None);
        let refused =
            ["HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "\r\n\r\n"];
        assert!(refused.iter().all(|answer| read_head(answer.as_bytes()).is_err()));
        assert!(read_head(&[b'x'; HEAD_MAX]).is_err());
    }
}
