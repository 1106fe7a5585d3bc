//! The inbound half of a session.

use wire::Seq;
use wire::rtp::RtpPacket;

use crate::keys::{KeyError, SessionKeys};
use crate::suite::{E_FLAG, PacketId, Suite};
use crate::window::Window;

/// How many SSRCs of one peer are known, for RTP and for RTCP each. A full table refuses newcomers: forgetting one would let
/// its old packets in again.
pub const SSRCS_MAX: usize = 64;

/// Why a packet was not opened. Its bytes are then of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SrtpError {
    /// Neither RTP nor RTCP, or shorter than its header.
    #[error("neither RTP nor RTCP")]
    Malformed,
    /// In the window already, or behind it.
    #[error("the packet was here before, or is too old to tell")]
    Replayed,
    /// The tag is wrong.
    #[error("the peer did not make this packet, or it was changed on the way")]
    NotAuthentic,
    /// Another SSRC than the `SSRCS_MAX` that are known.
    #[error("the peer uses more than {SSRCS_MAX} SSRCs")]
    TooManySsrcs,
}

/// Opens what one peer sends.
pub struct Opener {
    suite: Suite,
    rtp: SsrcTable,
    rtcp: SsrcTable,
}

impl Opener {
    /// Derives the peer's half of the session keys.
    ///
    /// # Errors
    /// When the cryptographic library refuses a key.
    pub fn new(keys: &SessionKeys) -> Result<Self, KeyError> {
        let suite = Suite::new(keys.profile(), keys.theirs())?;
        Ok(Opener { suite, rtp: SsrcTable::default(), rtcp: SsrcTable::default() })
    }

    /// Opens one SRTP packet in place and returns the plain packet's length.
    ///
    /// # Errors
    /// See `SrtpError`. Only a packet that opens changes what is known about its SSRC.
    pub fn open_rtp(&mut self, packet: &mut [u8]) -> Result<usize, SrtpError> {
        let header = RtpPacket::parse_header(packet).map_err(|_| SrtpError::Malformed)?;
        let (ssrc, header_len) = (header.ssrc(), header.header_len());
        let place = self.rtp.place_of(ssrc)?;
        let window = self.rtp.window(place);
        let index = guess_index(window.and_then(Window::newest), header.seq()).ok_or(SrtpError::Replayed)?;
        if window.is_some_and(|window| !window.is_new(index)) {
            return Err(SrtpError::Replayed);
        }
        let id = PacketId { ssrc, index };
        let len = self.suite.open_rtp(packet, header_len, id).ok_or(SrtpError::NotAuthentic)?;
        self.rtp.accept(place, id);
        Ok(len)
    }

    /// Opens one SRTCP packet in place and returns the plain compound packet's length.
    ///
    /// # Errors
    /// See `SrtpError`. Only a packet that opens changes what is known about its SSRC.
    pub fn open_rtcp(&mut self, packet: &mut [u8]) -> Result<usize, SrtpError> {
        if packet.first().is_none_or(|first| first >> 6 != 2) {
            return Err(SrtpError::Malformed);
        }
        let ssrc = packet.get(4..).and_then(|rest| rest.first_chunk()).ok_or(SrtpError::Malformed)?;
        let word = self.suite.rtcp_word(packet).ok_or(SrtpError::Malformed)?;
        let id = PacketId { ssrc: u32::from_be_bytes(*ssrc), index: (word & !E_FLAG).into() };

        let place = self.rtcp.place_of(id.ssrc)?;
        if self.rtcp.window(place).is_some_and(|window| !window.is_new(id.index)) {
            return Err(SrtpError::Replayed);
        }
        let encrypted = word & E_FLAG != 0;
        let len = self.suite.open_rtcp(packet, id, encrypted).ok_or(SrtpError::NotAuthentic)?;
        self.rtcp.accept(place, id);
        Ok(len)
    }
}

/// Takes the rollover counter for the one that brings `seq` nearest to the newest packet (RFC 3711 §3.3.1). The first
/// packet of an SSRC has counter 0. `None`: before the first packet that there can be.
fn guess_index(newest: Option<u64>, seq: Seq) -> Option<u64> {
    let Some(newest) = newest else { return Some(seq.0.into()) };
    newest.checked_add_signed(Seq(newest as u16).distance_to(seq).into())
}

/// A replay window per SSRC, found by a search through the few that there are. It allocates when an SSRC is new.
#[derive(Default)]
struct SsrcTable {
    ssrcs: Vec<u32>,
    windows: Vec<Window>,
}

impl SsrcTable {
    /// Where the SSRC stands, or would: one past the end.
    fn place_of(&self, ssrc: u32) -> Result<usize, SrtpError> {
        let place = self.ssrcs.iter().position(|known| *known == ssrc).unwrap_or(self.ssrcs.len());
        if place >= SSRCS_MAX {
            return Err(SrtpError::TooManySsrcs);
        }
        Ok(place)
    }

    fn window(&self, place: usize) -> Option<&Window> {
        self.windows.get(place)
    }

    fn accept(&mut self, place: usize, id: PacketId) {
        if place == self.windows.len() {
            self.ssrcs.push(id.ssrc);
            self.windows.push(Window::default());
        }
        self.windows[place].accept(id.index);
    }
}
