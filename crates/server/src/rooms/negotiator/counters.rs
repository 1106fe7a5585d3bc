//! What a negotiator counts. Written by its thread alone, and published when it has done what there was.

use counters::counters;

counters! {
    /// Counters of one negotiator.
    pub struct Counters: "millrace_handshake_" {
        /// Sessions of rooms now, connected or not.
        gauge sessions: u64 = "sessions",
        /// Sessions of rooms now that have no keys yet.
        gauge handshakes: u64 = "handshakes",
        /// Offers answered since the start.
        counter answered: u64 = "answered_total",
        /// Offers and fragments refused for their text.
        counter refused: u64 = "refused_total",
        /// Offers refused because there are too many sessions or handshakes.
        counter overloaded: u64 = "overloaded_total",
        /// Sessions that got their keys, and so have connected.
        counter connected: u64 = "connected_total",
        /// Sessions that did not connect in time.
        counter timed_out: u64 = "timed_out_total",
        /// Sessions that were shaking hands, and had to make room for newer ones.
        counter made_room: u64 = "made_room_total",
        /// Sessions whose handshake failed.
        counter failed: u64 = "failed_total",
        /// Sessions over which a library panicked. A defect; only they have ended.
        counter panicked: u64 = "panicked_total",
        /// Connected sessions that ended, as where media went nobody answered any more, for 30 s.
        counter consent_lapsed: u64 = "consent_lapsed_total",
        /// Sessions whose handshake failed for want of a certificate, ECDSA or RSA.
        counter certificates_refused: u64 = "certificates_refused_total",
        /// ICE restarts.
        counter restarts: u64 = "restarts_total",
        /// Addresses of peers that were proved: a check of ours was answered there.
        counter proved: u64 = "addresses_proved_total",
        /// STUN and DTLS datagrams that came in.
        counter datagrams: u64 = "datagrams_total",
        /// STUN and DTLS datagrams that were malformed.
        counter malformed: u64 = "datagrams_malformed_total",
        /// STUN and DTLS datagrams for no session: an unknown user fragment, or DTLS from an unknown address.
        counter unknown: u64 = "datagrams_unknown_total",
        /// STUN datagrams with a wrong message integrity.
        counter not_authentic: u64 = "datagrams_not_authentic_total",
        /// DTLS datagrams from an address that is yet to be proved.
        counter not_proved: u64 = "datagrams_not_proved_total",
        /// ICE checks beyond what a session's peer may send.
        counter too_many_checks: u64 = "checks_too_many_total",
        /// DTLS datagrams beyond what the peer of a connected session has to say.
        counter too_many_records: u64 = "records_too_many_total",
        /// Messages for data channels that their peers were too slow for, or that were too long for them.
        counter messages_dropped: u64 = "messages_dropped_total",
        /// STUN and DTLS datagrams of ours that the worker's mailbox had no room for; they are sent again when nobody answers.
        counter transmits_dropped: u64 = "transmits_dropped_total",
        /// Commands of handshakes that had to wait for room in the worker's mailbox.
        counter commands_delayed: u64 = "commands_delayed_total",
    }
}

impl Counters {
    /// Datagrams that were of no use, for whatever reason.
    pub fn refused_datagrams(&self) -> u64 {
        self.malformed
            + self.unknown
            + self.not_authentic
            + self.not_proved
            + self.too_many_checks
            + self.too_many_records
    }
}
