//! The inbound half of a session.

use wire::Seq;
use wire::rtp::RtpPacket;

use crate::keys::{KeyError, SessionKeys};
use crate::suite::{E_FLAG, PacketId, Suite};
use crate::window::Window;

/// How many SSRCs of one peer are known, for RTP and for RTCP each. A newcomer beyond takes the place of the one of which
/// nothing authentic came for longest, whose old packets would be let in again: only the peer itself can bring that about.
pub const SSRCS_MAX: usize = 64;

/// After so many packets of an SSRC that could not be opened, one is tried with the next rollover counter too: more than
/// 32,767 were lost. Who sends junk under the SSRC makes one packet in so many cost twice.
const FAILURES_PER_TRY: u16 = 16;

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
        let place = self.rtp.place_of(ssrc);
        let window = self.rtp.window(place);
        let index = guess_index(window.and_then(Window::newest), header.seq()).ok_or(SrtpError::Replayed)?;
        if window.is_some_and(|window| !window.is_new(index) && !window.is_too_old(index)) {
            return Err(SrtpError::Replayed);
        }
        let is_too_old = window.is_some_and(|window| window.is_too_old(index));
        if self.rtp.fails_often(place) {
            return self.open_with_next_counter(packet, header_len, place, PacketId { ssrc, index });
        }
        if is_too_old {
            self.rtp.on_failure(place);
            return Err(SrtpError::Replayed);
        }
        let id = PacketId { ssrc, index };
        let Some(len) = self.suite.open_rtp(packet, header_len, id) else {
            self.rtp.on_failure(place);
            return Err(SrtpError::NotAuthentic);
        };
        self.rtp.accept(place, id);
        Ok(len)
    }

    /// Opens a packet whose rollover counter may be one more than that of `id`.
    #[cold]
    fn open_with_next_counter(
        &mut self,
        packet: &mut [u8],
        header_len: usize,
        place: usize,
        id: PacketId,
    ) -> Result<usize, SrtpError> {
        // What does not open is spoilt.
        let sealed = packet.to_vec();
        for id in [id, PacketId { index: id.index + (1 << 16), ..id }] {
            if self.rtp.window(place).is_some_and(|window| !window.is_new(id.index)) {
                continue;
            }
            packet.copy_from_slice(&sealed);
            if let Some(len) = self.suite.open_rtp(packet, header_len, id) {
                self.rtp.accept(place, id);
                return Ok(len);
            }
        }
        self.rtp.on_failure(place);
        Err(SrtpError::NotAuthentic)
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

        let place = self.rtcp.place_of(id.ssrc);
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
    entries: Vec<Entry>,
    /// Packets accepted so far.
    accepted: u64,
}

#[derive(Default)]
struct Entry {
    window: Window,
    /// `SsrcTable::accepted` at the last packet of this SSRC.
    last_accepted: u64,
    /// Packets since then that could not be opened.
    failures: u16,
}

impl SsrcTable {
    /// Where the SSRC stands, or would: one past the end.
    fn place_of(&self, ssrc: u32) -> usize {
        self.ssrcs.iter().position(|known| *known == ssrc).unwrap_or(self.ssrcs.len())
    }

    fn window(&self, place: usize) -> Option<&Window> {
        self.entries.get(place).map(|entry| &entry.window)
    }

    /// Takes note of a packet that could not be opened.
    fn on_failure(&mut self, place: usize) {
        if let Some(entry) = self.entries.get_mut(place) {
            entry.failures = entry.failures % FAILURES_PER_TRY + 1;
        }
    }

    fn fails_often(&self, place: usize) -> bool {
        self.entries.get(place).is_some_and(|entry| entry.failures == FAILURES_PER_TRY)
    }

    fn accept(&mut self, place: usize, id: PacketId) {
        let place = if place < self.entries.len() { place } else { self.add(id.ssrc) };
        self.accepted += 1;
        let entry = &mut self.entries[place];
        entry.window.accept(id.index);
        (entry.last_accepted, entry.failures) = (self.accepted, 0);
    }

    #[cold]
    fn add(&mut self, ssrc: u32) -> usize {
        if self.entries.len() >= SSRCS_MAX {
            let oldest = (0..self.entries.len()).min_by_key(|place| self.entries[*place].last_accepted).unwrap_or(0);
            self.ssrcs.swap_remove(oldest);
            self.entries.swap_remove(oldest);
        }
        self.ssrcs.push(ssrc);
        self.entries.push(Entry::default());
        self.entries.len() - 1
    }
}
