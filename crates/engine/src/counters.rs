//! What a worker has done, in numbers for people.
//!
//! In: plain integers that the worker adds to, copied out once per turn of its loop. Out: `CountersSnapshot`, which
//! lists its own names and help texts, so that a metrics page need not know them.
//! Cost: one relaxed store per counter and turn. There is one writer, so no addition is locked.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use wheel::{BUCKETS, Lateness};

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// Numbers of one worker at one time. All but `tcp_links` only grow.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[doc = $help])+ pub $name: u64,)+
            /// How long after the time that the service asked for it was given its turn.
            pub lateness: Lateness,
        }

        impl CountersSnapshot {
            /// Name, help and value of each number.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($help),+).trim_ascii(), self.$name),)+].into_iter()
            }
        }

        /// The same numbers, where another thread can read them.
        #[derive(Debug, Default)]
        struct Published {
            $($name: AtomicU64,)+
        }

        impl Published {
            fn store(&self, counts: &CountersSnapshot) {
                $(self.$name.store(counts.$name, Ordering::Relaxed);)+
            }

            fn load(&self) -> CountersSnapshot {
                CountersSnapshot {
                    $($name: self.$name.load(Ordering::Relaxed),)+
                    lateness: Lateness::default(),
                }
            }
        }
    };
}

counters! {
    /// UDP datagrams received.
    datagrams_in,
    /// Bytes of UDP payload received.
    bytes_in,
    /// System calls to receive UDP datagrams.
    receive_calls,
    /// Receive calls that failed.
    receive_errors,
    /// Received messages in which the kernel had joined several datagrams.
    gro_batches,
    /// Received messages that were longer than a slot, and dropped.
    truncated,
    /// UDP datagrams sent.
    datagrams_out,
    /// Bytes of UDP payload sent.
    bytes_out,
    /// System calls to send UDP datagrams.
    send_calls,
    /// Sent messages that the kernel split into several datagrams.
    gso_sends,
    /// Messages that the kernel would not split; they were sent datagram by datagram.
    gso_refused,
    /// Times that a UDP socket was full.
    send_would_block,
    /// UDP datagrams dropped because the socket stayed full.
    dropped_socket_full,
    /// UDP datagrams that the kernel refused, for their address or size.
    dropped_refused,
    /// Datagrams dropped because their TCP link was gone.
    dropped_no_link,
    /// Datagrams dropped because the send buffer of their TCP link was full.
    dropped_tcp_full,
    /// TCP links that are open.
    tcp_links,
    /// TCP connections accepted.
    tcp_accepted,
    /// TCP connections turned away because there were too many, or no descriptors.
    tcp_refused,
    /// TCP links closed, for whatever reason.
    tcp_closed,
    /// TCP links closed because a frame was longer than a link may send.
    tcp_frame_errors,
    /// Datagrams received over TCP.
    tcp_datagrams_in,
    /// Bytes of datagrams received over TCP.
    tcp_bytes_in,
    /// Datagrams queued on TCP links.
    tcp_datagrams_out,
    /// Bytes of datagrams queued on TCP links.
    tcp_bytes_out,
    /// Turns of the worker's loop.
    turns,
    /// Times that the worker slept.
    sleeps,
    /// Messages from other threads.
    messages,
    /// Messages given back to other threads because the mailbox was full.
    mailbox_full,
    /// Times that the service did what was due.
    timeouts,
    /// Nanoseconds in which the worker did not sleep.
    busy_ns,
}

impl CountersSnapshot {
    /// UDP and TCP datagrams that were to be sent and were not.
    pub fn dropped(&self) -> u64 {
        self.dropped_socket_full + self.dropped_refused + self.dropped_no_link + self.dropped_tcp_full
    }
}

/// What one worker publishes.
#[derive(Debug)]
pub(crate) struct Counters {
    published: Published,
    lateness: [AtomicU64; BUCKETS],
    /// The kernel's number for the worker's thread; 0 until it runs.
    pub(crate) thread_id: AtomicI32,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Counters {
            published: Published::default(),
            lateness: [const { AtomicU64::new(0) }; BUCKETS],
            thread_id: AtomicI32::new(0),
        }
    }

    /// Publishes all numbers but the lateness. For the worker alone.
    pub(crate) fn store(&self, counts: &CountersSnapshot) {
        self.published.store(counts);
    }

    /// Counts one timeout. For the worker alone.
    pub(crate) fn record_lateness(&self, late: Duration) {
        let bucket = &self.lateness[Lateness::bucket_of(late)];
        bucket.store(bucket.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> CountersSnapshot {
        let buckets = std::array::from_fn(|bucket| self.lateness[bucket].load(Ordering::Relaxed));
        CountersSnapshot { lateness: Lateness::from_buckets(buckets), ..self.published.load() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_with_names_and_help() {
        let counters = Counters::new();
        counters.store(&CountersSnapshot { gso_sends: 7, ..CountersSnapshot::default() });
        counters.record_lateness(Duration::from_nanos(100));

        let snapshot = counters.load();
        let nonzero: Vec<_> = snapshot.fields().filter(|(_, _, value)| *value > 0).collect();
        assert_eq!(nonzero, [("gso_sends", "Sent messages that the kernel split into several datagrams.", 7)]);
        assert_eq!(snapshot.lateness.count(), 1);
    }

    #[test]
    fn names_are_unique_and_each_has_help() {
        let snapshot = CountersSnapshot::default();
        let mut names: Vec<_> = snapshot.fields().map(|(name, help, _)| (!help.is_empty()).then_some(name)).collect();
        assert!(names.iter().all(Option::is_some));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
