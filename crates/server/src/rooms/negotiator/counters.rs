//! What a negotiator counts. Written by its thread alone, read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of one negotiator, shared with who reports them.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(pub(super) $name: Count,)+
        }

        /// All counters at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            pub fn snapshot(&self) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name.load(),)+ }
            }
        }
    };
}

counters! {
    /// Sessions now, connected or not.
    sessions,
    /// Sessions now that have no keys yet.
    handshakes,
    /// Offers answered since the start.
    answered,
    /// Offers and fragments refused for their text.
    refused,
    /// Offers refused because there are too many sessions or handshakes.
    overloaded,
    /// Sessions that got their keys.
    connected,
    /// Sessions that did not in time.
    timed_out,
    /// Sessions whose handshake failed.
    failed,
    /// Of these: for want of an ECDSA certificate.
    certificates_refused,
    /// ICE restarts.
    restarts,
    /// STUN and DTLS datagrams that came in.
    datagrams,
    /// Of these: malformed.
    malformed,
    /// For no session: an unknown user fragment, or DTLS from an unknown address.
    unknown,
    /// With a wrong message integrity.
    not_authentic,
    /// From more addresses than a peer may have.
    too_many_addresses,
    /// Not taken because the worker's mailbox was full; peers repeat theirs.
    transmits_dropped,
    /// Commands that had to wait for room in the worker's mailbox.
    commands_delayed,
}

/// One counter with one writer: no locked instruction.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, by: u64) {
        self.set(self.load().wrapping_add(by));
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
