//! What a worker has done, in numbers for people.
//!
//! In: plain integers that the worker adds to, copied out once per turn of its loop. Out: `CountersSnapshot`.
//! Cost: one relaxed store per number and turn. There is one writer, so no addition is locked.

use std::sync::atomic::AtomicI32;
use std::time::Duration;

use counters::{Lateness, Published, counters};

counters! {
    /// Numbers of one worker at one time.
    pub struct CountersSnapshot: "millrace_worker_" {
        /// UDP datagrams received.
        counter datagrams_in: u64 = "datagrams_in_total",
        /// Bytes of UDP payload received.
        counter bytes_in: u64 = "bytes_in_total",
        /// System calls to receive UDP datagrams.
        counter receive_calls: u64 = "receive_calls_total",
        /// Receive calls that failed.
        counter receive_errors: u64 = "receive_errors_total",
        /// Received messages in which the kernel had joined several datagrams.
        counter gro_batches: u64 = "gro_batches_total",
        /// Received messages that were longer than a slot, and dropped.
        counter truncated: u64 = "truncated_total",
        /// UDP datagrams sent.
        counter datagrams_out: u64 = "datagrams_out_total",
        /// Bytes of UDP payload sent.
        counter bytes_out: u64 = "bytes_out_total",
        /// System calls to send UDP datagrams.
        counter send_calls: u64 = "send_calls_total",
        /// Sent messages that the kernel split into several datagrams.
        counter gso_sends: u64 = "gso_sends_total",
        /// Messages that the kernel would not split; they were sent datagram by datagram.
        counter gso_refused: u64 = "gso_refused_total",
        /// Times that the kernel refused to split so often in a row that one socket did not ask it for a minute.
        counter gso_lowered: u64 = "gso_lowered_total",
        /// UDP datagrams that found no room in a socket's receive buffer, as of the last second.
        counter dropped_receive_full: u64 = "dropped_receive_full_total",
        /// ICMP messages that nobody listens at a port where a datagram was sent; some may be forged, as all of these.
        counter icmp_port_unreachable: u64 = "icmp_port_unreachable_total",
        /// ICMP messages that a datagram was too long for its path.
        counter icmp_too_long: u64 = "icmp_too_long_total",
        /// ICMP messages that a host or network is not reached, or does not want to be.
        counter icmp_unreachable: u64 = "icmp_unreachable_total",
        /// Times that a queue below a UDP socket, as that of an interface (tc(8)), was full and dropped a message, which was
        /// sent again if there was time.
        counter send_queue_full: u64 = "send_queue_full_total",
        /// UDP datagrams lost as a queue below the socket stayed full.
        counter dropped_queue_full: u64 = "dropped_queue_full_total",
        /// Times that a UDP socket was full.
        counter send_would_block: u64 = "send_would_block_total",
        /// UDP datagrams dropped because the socket stayed full.
        counter dropped_socket_full: u64 = "dropped_socket_full_total",
        /// UDP datagrams that the kernel refused, for their address or size.
        counter dropped_refused: u64 = "dropped_refused_total",
        /// Datagrams dropped because their TCP link was gone.
        counter dropped_no_link: u64 = "dropped_no_link_total",
        /// Datagrams dropped because the send buffer of their TCP link was full.
        counter dropped_tcp_full: u64 = "dropped_tcp_full_total",
        /// TCP links that are open.
        gauge tcp_links: u64 = "tcp_links",
        /// TCP connections that the worker accepted.
        counter tcp_accepted: u64 = "tcp_accepted_total",
        /// TCP connections turned away because there were too many, of all or of their address, or no descriptors.
        counter tcp_refused: u64 = "tcp_refused_total",
        /// TCP links to which nothing was sent yet, as who is there has shown no ICE credentials.
        gauge tcp_strangers: u64 = "tcp_strangers",
        /// TCP links closed because nothing was sent to them for too long since they opened, or a newcomer needed the place.
        counter tcp_strangers_closed: u64 = "tcp_strangers_closed_total",
        /// TCP links closed, for whatever reason.
        counter tcp_closed: u64 = "tcp_closed_total",
        /// TCP links closed because a frame was longer than a link may send.
        counter tcp_frame_errors: u64 = "tcp_frame_errors_total",
        /// Datagrams received over TCP.
        counter tcp_datagrams_in: u64 = "tcp_datagrams_in_total",
        /// Bytes of datagrams received over TCP.
        counter tcp_bytes_in: u64 = "tcp_bytes_in_total",
        /// Datagrams queued on TCP links.
        counter tcp_datagrams_out: u64 = "tcp_datagrams_out_total",
        /// Bytes of datagrams queued on TCP links.
        counter tcp_bytes_out: u64 = "tcp_bytes_out_total",
        /// Bytes received from byte streams.
        counter stream_bytes_in: u64 = "stream_bytes_in_total",
        /// Bytes that the kernel took, or that wait to be taken, for byte streams.
        counter stream_bytes_out: u64 = "stream_bytes_out_total",
        /// Connections under TLS that were sent files, and whose records the kernel seals (kTLS).
        counter tls_files_by_kernel: u64 = "tls_files_ktls_total",
        /// Connections under TLS that were sent files, and whose records the server seals, as the kernel does not.
        counter tls_files_by_worker: u64 = "tls_files_software_total",
        /// Links that were asked for and could not be opened.
        counter links_failed: u64 = "links_failed_total",
        /// Turns of the worker's loop.
        counter turns: u64 = "turns_total",
        /// Times that the worker slept.
        counter sleeps: u64 = "sleeps_total",
        /// Messages from other threads.
        counter messages: u64 = "messages_total",
        /// Messages given back to other threads because the mailbox was full.
        counter mailbox_full: u64 = "mailbox_full_total",
        /// Times that the service did what was due.
        counter timeouts: u64 = "timeouts_total",
        /// Seconds in which the worker did not sleep.
        counter busy: Duration = "busy_seconds_total",
        /// Seconds from the time that the service asked for until it had its turn.
        histogram lateness: Lateness = "lateness_seconds",
    }
}

impl CountersSnapshot {
    /// UDP and TCP datagrams that were to be sent and were not.
    pub fn dropped(&self) -> u64 {
        self.dropped_socket_full
            + self.dropped_queue_full
            + self.dropped_refused
            + self.dropped_no_link
            + self.dropped_tcp_full
    }
}

/// What one worker publishes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) published: Published<CountersSnapshot>,
    /// The kernel's number for the worker's thread; 0 until it runs.
    pub(crate) thread_id: AtomicI32,
}
