//! What the reflector of one process gives that of the next.

use std::net::IpAddr;

use reflect::moved::ViewerState;
use serde::{Deserialize, Serialize};

use super::access::Visit;
use super::inlet::InletState;

/// A stream, beside its file and what its source's bytes come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StreamRecord {
    /// What it is called; with Cubemap's framing the name ends so.
    pub(crate) name: String,
    pub(crate) inlet: InletState,
    /// Something of it was told.
    pub(crate) is_ready: bool,
    pub(crate) received_bytes: u64,
    /// Of a source that goes on: what it said of its format.
    pub(crate) content_type: Option<String>,
    /// A source is heard, and goes on.
    pub(crate) goes_on: bool,
}

/// A viewer, beside his connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ViewerRecord {
    pub(crate) id: u64,
    /// Which of the streams, in the order in which they came.
    pub(crate) stream: u32,
    pub(crate) client: Option<IpAddr>,
    /// Whose it is, as far as one client may have so many.
    pub(crate) network: Option<IpAddr>,
    /// What the access log will say of him, where there is one.
    pub(crate) visit: Option<Visit>,
    /// What he sent, and nobody looked at.
    pub(crate) unread: Vec<u8>,
    pub(crate) state: ViewerState,
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::reflect::inlet::{Framing, Inlet};
    use crate::upgrade::FORMAT;

    /// Whoever has to change these bytes changes the number, too.
    #[test]
    fn what_goes_over_is_written_as_its_format_says() {
        let viewer = b"\x07\x01\x01\x00\xc0\x00\x02\x07\x00\x01\x02ab\x01\x09\x02hi\
            \x01\x03abc\x01\x00\x01\xac\x02\x01\x00\x01\x01\x01\xc8\x01\x01\xe8\x07\x05\xac\x02\x00\x02\x01\x80\xca\xb5\xee\x01";
        let (read, rest): (ViewerRecord, _) = postcard::take_from_bytes(viewer).expect("a viewer");
        assert!(rest.is_empty());
        assert_eq!(postcard::to_allocvec(&read).expect("written"), viewer);
        assert_eq!(
            (read.id, read.stream, read.unread.as_slice(), read.state.age().as_millis()),
            (7, 1, &b"hi"[..], 1_500)
        );

        let now = Instant::now();
        let mut inlet =
            Inlet::new(now, crate::reflect::stream::settings(&Default::default(), Framing::None)).expect("memory");
        let (_, inlet) = inlet.give_away(now);
        let stream = StreamRecord {
            name: "x".into(),
            inlet,
            is_ready: true,
            received_bytes: 300,
            content_type: Some("a".into()),
            goes_on: false,
        };
        let written = postcard::to_allocvec(&stream).expect("written");
        // A stream without a byte is mostly zeros.
        let expected = [&b"\x01x\x00\x00\x00\x80\x80\x80\x0a"[..], &[0; 23], b"\x01\xac\x02\x01\x01a\x00"].concat();
        assert_eq!(written.escape_ascii().to_string(), expected.escape_ascii().to_string());
        assert_eq!(FORMAT, 2);
    }
}
