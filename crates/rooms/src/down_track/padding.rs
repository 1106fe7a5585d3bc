//! Packets of nothing but padding (RFC 3550 §5.1) before the first one of a track.

use wire::codec::PayloadInfo;
use wire::rtp;

use super::{DownTrack, Next};
use crate::forward::Forwarded;
use crate::io::Io;
use crate::log::Logged;
use crate::packet::PacketMeta;
use crate::reports::Losses;
use crate::transport::Transport;

impl DownTrack {
    /// Sends one, if there is room. False when something of the track went out before: from then on each number is that of a packet
    /// which came.
    pub fn send_padding(&mut self, transport: &mut Transport, io: &mut Io<'_>) -> bool {
        if self.forwarder.last_seq().is_some() {
            return false;
        }
        self.note_send_time(io.now, io.settings);
        let Some(slot) = io.out.slot() else { return true };
        let (seq, timestamp) = self.forwarder.pad(io.now);
        let meta = PacketMeta { seq, timestamp, arrival: io.now, marker: false, payload: PayloadInfo::default() };
        let next = Next {
            logged: Logged { meta: &meta, extensions: &[], payload: &[], padded_len: 0 },
            forwarded: Forwarded { seq, timestamp, marker: false, picture: None, is_padding: true },
            layer: 0,
            position: 0,
        };
        let Some(header_len) = self.write_new_header(slot, &next, self.spec.payload_type, transport) else {
            return true;
        };
        let len = rtp::pad(slot, header_len, header_len + 1);
        let len = transport.sealer.seal_rtp(slot, header_len, len, self.spec.ssrc, seq);
        transport.commit(io.now, len, self.is_numbered(), io.out);
        transport.on_sent(io.now, 1, len, io.settings);
        io.counters.packets_out += 1;
        self.packet_count = self.packet_count.wrapping_add(1);
        // What the peer reports is of the path from here on.
        (self.before_first, self.losses) = (seq, Losses::new(seq));
        true
    }
}
