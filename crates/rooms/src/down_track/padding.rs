//! Packets of nothing but padding (RFC 3550 §5.1): before the first one of a track, and to probe a path.

use wire::Seq;
use wire::codec::PayloadInfo;
use wire::rtp::{self, RtpHeader};

use super::{DownTrack, Next};
use crate::forward::Forwarded;
use crate::io::Io;
use crate::log::Logged;
use crate::packet::PacketMeta;
use crate::reports::Losses;
use crate::transport::Transport;

/// The most that a packet can say to be padding, in bytes.
const PADDING_MAX: usize = 255;

impl DownTrack {
    /// Sends one as a retransmission of nothing, as libwebrtc's pacer does, where what was sent before is too little to probe a path
    /// with. Returns its size on the wire; `None` when there is no room, or the viewer takes no RTX.
    pub fn send_probe(&mut self, transport: &mut Transport, io: &mut Io<'_>) -> Option<usize> {
        let (ssrc, payload_type) = self.spec.rtx?;
        self.note_send_time(io.now, io.settings);
        let slot = io.out.slot()?;
        let seq = self.rtx_seq;
        let header = RtpHeader { payload_type, marker: false, seq: Seq(seq as u16), timestamp: 0, ssrc };
        let header_len = self.write_header(slot, &header, &[], transport.transport_seq, true)?;
        let len = rtp::pad(slot, header_len, header_len + PADDING_MAX);
        self.rtx_seq += 1;
        let len = transport.sealer.seal_rtp(slot, header_len, len, ssrc, seq);
        transport.commit(io.now, len, self.is_numbered(), io.out);
        transport.on_resent(io.now, len);
        io.counters.packets_resent += 1;
        Some(len)
    }

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
