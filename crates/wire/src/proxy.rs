//! What a load balancer says of a connection before it passes it on: whose it is (PROXY protocol).
//!
//! In: what a connection has brought. Out: how long that header is, and both ends of the connection as the client has them.
//! Whoever may write one may say anything: only those who are trusted are to be read like this.
//! Source: "The PROXY protocol", versions 1 and 2, <https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What stands at the front of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// More bytes are needed.
    Incomplete,
    /// A header.
    Whole {
        /// Its bytes. What follows is the client's.
        len: usize,
        /// Whose connection it is. `None`: that of who wrote it, such as a health check.
        ends: Option<Ends>,
    },
    /// No header, or one that is longer than any.
    Invalid,
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Where the client is.
    pub client: SocketAddr,
    /// Where it went to.
    pub server: SocketAddr,
}

impl Ends {
    /// A balancer that listens for both families at one address writes IPv4 addresses as IPv6 ones (RFC 4291 §2.5.5.2).
    fn new(client: (IpAddr, u16), server: (IpAddr, u16)) -> Self {
        let [client, server] = [client, server].map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port));
        Ends { client, server }
    }
}

/// Bytes of a header at most: the fields and what may stand behind them (TLVs), of which nothing is read here.
pub const HEADER_MAX: usize = 4_096;

/// The longest line of version 1, with its end.
const LINE_MAX: usize = 107;

const LINE_START: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes before the addresses in version 2.
const FIXED_LEN: usize = 16;

/// Reads the header at the front of `buf`.
pub fn header(buf: &[u8]) -> Header {
    let begins_as = |start: &[u8]| buf.iter().zip(start).all(|(one, other)| one == other);
    if begins_as(SIGNATURE) {
        return binary(buf);
    }
    if begins_as(LINE_START) {
        return line(buf);
    }
    Header::Invalid
}

/// Version 1: one line of text.
fn line(buf: &[u8]) -> Header {
    let Some(end) = buf.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if buf.len() < LINE_MAX { Header::Incomplete } else { Header::Invalid };
    };
    let text = buf[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(LINE_START));
    let Some(text) = text.and_then(|text| str::from_utf8(text).ok()) else { return Header::Invalid };
    let mut words = text.split(' ');
    let ends = match words.next() {
        // What follows is to be ignored.
        Some("UNKNOWN") => return Header::Whole { len: end + 1, ends: None },
        Some("TCP4") => ends::<Ipv4Addr>(words),
        Some("TCP6") => ends::<Ipv6Addr>(words),
        _ => None,
    };
    ends.map_or(Header::Invalid, |ends| Header::Whole { len: end + 1, ends: Some(ends) })
}

fn ends<'a, T: std::str::FromStr + Into<IpAddr>>(mut words: impl Iterator<Item = &'a str>) -> Option<Ends> {
    let [client, server] = [words.next()?, words.next()?].map(|word| word.parse::<T>().ok().map(Into::into));
    let [client_port, server_port] = [words.next()?, words.next()?].map(|word| word.parse().ok());
    if words.next().is_some() {
        return None;
    }
    Some(Ends::new((client?, client_port?), (server?, server_port?)))
}

/// Version 2: signature, version and command, family and transport, length, addresses.
fn binary(buf: &[u8]) -> Header {
    let Some((fixed, rest)) = buf.split_first_chunk::<FIXED_LEN>() else { return Header::Incomplete };
    let [.., command, family, high, low] = *fixed;
    let len = usize::from(u16::from_be_bytes([high, low]));
    if FIXED_LEN + len > HEADER_MAX {
        return Header::Invalid;
    }
    let Some(fields) = rest.get(..len) else { return Header::Incomplete };
    let ends = match (command, family) {
        // Of the sender's own.
        (0x20, _) => None,
        // TCP over IPv4 and IPv6.
        (0x21, 0x11) => match fields.first_chunk::<12>() {
            Some(&[a, b, c, d, e, f, g, h, ports @ ..]) => Some(pair([a, b, c, d], [e, f, g, h], ports)),
            None => return Header::Invalid,
        },
        (0x21, 0x21) => match fields.first_chunk::<36>() {
            Some(fields) => {
                let (client, rest) = fields.split_first_chunk::<16>().expect("36 bytes");
                let (server, ports) = rest.split_first_chunk::<16>().expect("20 bytes");
                Some(pair(*client, *server, ports.try_into().expect("4 bytes")))
            }
            None => return Header::Invalid,
        },
        // Unknown, or of another kind: a receiver uses what the socket says.
        (0x21, _) => None,
        _ => return Header::Invalid,
    };
    Header::Whole { len: FIXED_LEN + len, ends }
}

fn pair<T: Into<IpAddr>>(client: T, server: T, [a, b, c, d]: [u8; 4]) -> Ends {
    Ends::new((client.into(), u16::from_be_bytes([a, b])), (server.into(), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(client: &str, server: &str) -> Option<Ends> {
        Some(Ends { client: client.parse().expect("an address"), server: server.parse().expect("an address") })
    }

    /// What the header is, and that each beginning of it is incomplete.
    fn whole(bytes: &[u8]) -> Option<Ends> {
        for len in 0..bytes.len() {
            assert_eq!(header(&bytes[..len]), Header::Incomplete, "{len}");
        }
        let with_more = [bytes, b"GET / HTTP/1.1\r\n\r\n"].concat();
        match header(&with_more) {
            Header::Whole { len, ends } => {
                assert_eq!(len, bytes.len());
                ends
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_says_whose_connection_it_is() {
        let v4 = whole(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n");
        assert_eq!(v4, ends("192.0.2.1:56324", "198.51.100.2:443"));
        let v6 = whole(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n");
        assert_eq!(v6, ends("[2001:db8::1]:1", "[2001:db8::2]:65535"));
        assert_eq!(whole(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(whole(b"PROXY UNKNOWN ffff:f... whatever 65535\r\n"), None);
    }

    #[test]
    fn an_ipv4_address_that_is_written_as_an_ipv6_one_is_an_ipv4_address() {
        let expected = ends("192.0.2.1:1", "198.51.100.2:443");
        assert_eq!(whole(b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.2 1 443\r\n"), expected);
        let mut binary = [SIGNATURE, &[0x21, 0x21, 0, 36][..]].concat();
        for ip in [[192, 0, 2, 1], [198, 51, 100, 2]] {
            binary.extend(Ipv4Addr::from(ip).to_ipv6_mapped().octets());
        }
        binary.extend([0, 1, 1, 187]);
        assert_eq!(whole(&binary), expected);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for wrong in [
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 1\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 65536\r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            "PROXY  TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            "proxy TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            "GET / HTTP/1.1\r\n",
        ] {
            assert_eq!(header(wrong.as_bytes()), Header::Invalid, "{wrong}");
        }
        let long = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; LINE_MAX]].concat();
        assert_eq!(header(&long), Header::Invalid);
    }

    fn binary(command: u8, family: u8, fields: &[u8]) -> Vec<u8> {
        let len = (fields.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, fields].concat()
    }

    #[test]
    fn version_2_says_the_same_in_bytes() {
        let mut fields = vec![192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 4, 1, 0xbb];
        assert_eq!(whole(&binary(0x21, 0x11, &fields)), ends("192.0.2.1:56324", "198.51.100.2:443"));
        // More may stand behind the addresses.
        fields.extend([4, 0, 1, 7]);
        assert_eq!(whole(&binary(0x21, 0x11, &fields)), ends("192.0.2.1:56324", "198.51.100.2:443"));
        let mut fields = [0; 36];
        (fields[15], fields[31], fields[33], fields[35]) = (1, 2, 3, 4);
        assert_eq!(whole(&binary(0x21, 0x21, &fields)), ends("[::1]:3", "[::2]:4"));
        assert_eq!(whole(&binary(0x20, 0x00, &[])), None);
        assert_eq!(whole(&binary(0x21, 0x00, &[7; 5])), None);
        assert_eq!(whole(&binary(0x21, 0x31, &[0; 216])), None);
    }

    #[test]
    fn what_is_no_header_of_version_2_is_refused() {
        assert_eq!(header(&binary(0x21, 0x11, &[0; 11])), Header::Invalid);
        assert_eq!(header(&binary(0x21, 0x21, &[0; 35])), Header::Invalid);
        assert_eq!(header(&binary(0x22, 0x11, &[0; 12])), Header::Invalid);
        assert_eq!(header(&binary(0x31, 0x11, &[0; 12])), Header::Invalid);
        assert_eq!(header(&binary(0x21, 0x11, &[0; HEADER_MAX])), Header::Invalid);
    }
}
