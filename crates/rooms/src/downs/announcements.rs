//! Makes tracks known of which nothing comes, to peers that hear of a track by its first packet.
//!
//! pion's are such, and so is LiveKit's SDK for Go: they tell nobody of a track that is muted from the start.
//! In: the streams of which that holds. Out: a packet of padding for each of their tracks in a second, five at most, until something
//! comes. Cost: a look at each of these streams in a second, and nothing for any other.
//! Source: `sendPaddingOnMute` in pkg/sfu/downtrack.go of LiveKit's server.

use super::Downs;
use crate::io::Io;
use crate::transport::Transport;

/// So many packets, since some may be lost.
const PACKETS: u8 = 5;

impl Downs {
    /// The peer is to hear of the stream's tracks, even if nothing comes of them.
    pub fn announce(&mut self, stream: usize) {
        if self.watches(stream) && !self.announced.iter().any(|(announced, _)| *announced == stream) {
            self.announced.push((stream, PACKETS));
        }
    }

    /// Sends the packets that are due. Comes once a second.
    pub(super) fn send_announcements(&mut self, transport: &mut Transport, io: &mut Io<'_>) {
        let Downs { announced, tracks, .. } = self;
        if transport.is_cut_off {
            return;
        }
        announced.retain_mut(|(stream, left)| {
            let of_stream = tracks.iter_mut().filter(|down| down.stream == *stream);
            let silent = of_stream.map(|down| down.send_padding(transport, io)).filter(|is_silent| *is_silent).count();
            *left -= 1;
            silent > 0 && *left > 0
        });
    }
}
