//! What a newcomer wants, by what was agreed (ALPN) or by its first words.
//!
//! In: the entrance, the name of the protocol, what came. Out: the wish, once there is enough to tell.
//! Source: RFC 7443 (names of STUN and TURN), RFC 9113 §3.2 (that of HTTP/2), RFC 7301, RFC 8489 §5, RFC 6062 §4.4.

use axum::http::Version;
use relay::message::{COOKIE, Message, Method};
use wire::framing::{Frame, Framing};

use super::Entrance;

pub(super) const ALPN_TURN: &str = "stun.turn";
pub(super) const ALPN_DISCOVERY: &str = "stun.nat-discovery";
pub(super) const ALPN_HTTP: &str = "http/1.1";
pub(super) const ALPN_HTTP2: &str = "h2";

/// Bytes of the first message of TURN at most.
const MESSAGE_MAX: usize = 2_048;

/// What is to be spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Http(Version),
    Turn {
        /// Of a ConnectionBind, which is the first message of its connection.
        connection_id: Option<u32>,
    },
}

/// How far it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    It(Wish),
    /// More has to come.
    NotYet,
    /// That is spoken nowhere.
    Never,
}

/// Tells it. TURN is told by its whole first message, as that may say which worker it belongs to.
pub(super) fn tell(entrance: &Entrance, protocol: Option<&[u8]>, received: &[u8]) -> Told {
    let is_http = match (entrance.http, entrance.turn, protocol) {
        (true, false, _) => true,
        (false, _, _) => false,
        (true, true, Some(protocol)) => [ALPN_HTTP, ALPN_HTTP2].iter().any(|http| protocol == http.as_bytes()),
        // A request begins with a letter. The two upper bits of STUN are zero.
        (true, true, None) => match received.first() {
            Some(first) => first >> 6 != 0,
            None => return Told::NotYet,
        },
    };
    // Without TLS nobody agrees on HTTP/2.
    let is_second = protocol == Some(ALPN_HTTP2.as_bytes());
    let version = if is_second { Version::HTTP_2 } else { Version::HTTP_11 };
    if is_http { Told::It(Wish::Http(version)) } else { tell_turn(received) }
}

fn tell_turn(received: &[u8]) -> Told {
    match Framing::Turn.next_frame(received, MESSAGE_MAX) {
        Frame::Incomplete { .. } => Told::NotYet,
        Frame::Datagram { range, .. } if received.get(4..8) == Some(&COOKIE) => {
            Told::It(Wish::Turn { connection_id: connection_id(&received[range]) })
        }
        // ChannelData cannot come first.
        Frame::Datagram { .. } | Frame::Invalid => Told::Never,
    }
}

/// The id that a ConnectionBind request names.
fn connection_id(message: &[u8]) -> Option<u32> {
    let message = Message::parse(message).ok()?;
    message.connection_id.filter(|_| message.method == Some(Method::ConnectionBind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrance(http: bool, turn: bool) -> Entrance {
        Entrance { http, turn, ..Entrance::default() }
    }

    /// A message of STUN with these attributes.
    fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let len = (attributes.len() as u16).to_be_bytes();
        [&kind.to_be_bytes()[..], &len, &COOKIE, &[7; 12], attributes].concat()
    }

    #[test]
    fn first_words_tell_turn_from_http() {
        let both = entrance(true, true);
        let allocate = message(3, &[0, 0x19, 0, 4, 17, 0, 0, 0]);
        assert_eq!(tell(&both, None, b""), Told::NotYet);
        for request in [b"G".as_slice(), b"OPTIONS *", b"DELETE /", b"patch /", b"CONNECT x"] {
            assert_eq!(tell(&both, None, request), Told::It(Wish::Http(Version::HTTP_11)));
        }
        for len in 1..allocate.len() {
            assert_eq!(tell(&both, None, &allocate[..len]), Told::NotYet, "{len}");
        }
        assert_eq!(tell(&both, None, &allocate), Told::It(Wish::Turn { connection_id: None }));
        assert_eq!(tell(&both, Some(b"stun.turn"), b"GET / HTTP/1.1"), Told::Never);
        for entrance in [both, entrance(true, false)] {
            assert_eq!(tell(&entrance, Some(b"http/1.1"), b""), Told::It(Wish::Http(Version::HTTP_11)));
            assert_eq!(tell(&entrance, Some(b"h2"), b""), Told::It(Wish::Http(Version::HTTP_2)));
        }
        assert_eq!(tell(&entrance(true, false), None, b""), Told::It(Wish::Http(Version::HTTP_11)));
    }

    #[test]
    fn what_is_no_first_message_of_turn_is_sent_away() {
        let turn = entrance(false, true);
        let channel_data = [0x40, 0, 0, 4, 1, 2, 3, 4];
        let no_cookie = [&message(3, &[])[..4], &[0; 16]].concat();
        let too_long = [0, 3, 0x20, 0];
        for wrong in [&channel_data[..], &no_cookie, &too_long, b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(tell(&turn, None, wrong), Told::Never, "{wrong:?}");
        }
    }

    #[test]
    fn a_connection_bind_says_which_connection_it_means() {
        let turn = entrance(false, true);
        let id = |attributes: &[u8]| tell(&turn, None, &message(0x000b, attributes));
        let bind = |connection_id| Told::It(Wish::Turn { connection_id });
        assert_eq!(id(&[0, 0x2a, 0, 4, 1, 2, 3, 4]), bind(Some(0x0102_0304)));
        assert_eq!(id(&[0, 6, 0, 1, b'u', 0, 0, 0, 0, 0x2a, 0, 4, 1, 2, 3, 4]), bind(Some(0x0102_0304)));
        assert_eq!(id(&[]), bind(None));
        assert_eq!(id(&[0, 0x2a, 0, 5, 1, 2, 3, 4]), bind(None));
        assert_eq!(id(&[0, 0x2a, 0, 2, 1, 2, 0, 0]), bind(None));
        assert_eq!(tell(&turn, None, &message(3, &[0, 0x2a, 0, 4, 1, 2, 3, 4])), bind(None));
    }
}
