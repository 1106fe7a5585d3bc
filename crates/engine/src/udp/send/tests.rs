use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{Fragments, LinkId, Path, Token};

use super::*;
use crate::udp::{Options, PLAIN_SLOT_BYTES, recv_batch};

const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn bind(ip: IpAddr, gso: bool, gro: bool) -> UdpSocket {
    let options = Options { gso, gro, ..Options::default() };
    UdpSocket::bind((ip, 0).into(), &options).expect("loopback can be bound")
}

fn path_to(socket: &UdpSocket) -> Path {
    Path { link: LinkId::datagrams(0), remote: socket.local_addr(), local: None }
}

/// A queue, and what it counts.
#[derive(Default)]
struct Sender {
    queue: SendQueue,
    counts: CountersSnapshot,
}

impl Sender {
    /// One whose first calls meet these errors instead of the kernel.
    fn failing(errors: impl Into<VecDeque<i32>>) -> Self {
        Sender { queue: SendQueue { faults: errors.into(), ..SendQueue::default() }, ..Sender::default() }
    }

    /// The pause after a wait in vain goes on, however slow the machine is.
    fn stop_time(&mut self) {
        assert!(self.queue.queues_paused_until.is_some(), "it has waited in vain");
        self.queue.queues_paused_until = Some(Instant::now() + Duration::from_secs(3_600));
    }

    fn send(&mut self, socket: &mut UdpSocket, out: &Outbox) {
        self.queue.send_outbox(socket, out, &mut self.counts);
    }

    /// The same, as one part of a flush.
    fn send_part(&mut self, socket: &mut UdpSocket, out: &Outbox) {
        self.queue.send_runs(socket, (out, &[]), out.runs(), &mut self.counts);
    }
}

/// Datagrams of the given lengths, each filled with its number.
fn outbox(path: &Path, lens: &[usize]) -> Outbox {
    let mut out = Outbox::new(1 << 20);
    for (number, len) in lens.iter().enumerate() {
        assert!(out.push(path, &vec![number as u8; *len]));
    }
    out
}

/// What arrives until `count` datagrams are there: the number of datagrams in each message, and the datagrams.
fn receive(socket: &UdpSocket, count: usize) -> (Vec<usize>, Vec<Vec<u8>>) {
    let mut batch = recv_batch(socket.gro());
    let (mut shape, mut found) = (Vec::new(), Vec::new());
    while found.len() < count {
        let readable = sys::wait_readable(socket.as_fd(), Some(Duration::from_secs(5))).expect("poll");
        assert!(readable, "{} of {count} arrived", found.len());
        batch.fill(socket).expect("receive");
        for index in 0..batch.message_count() {
            let message = batch.message(index).expect("a message");
            assert!(!message.truncated);
            shape.push(message.datagram_count());
            found.extend(message.data.chunks(message.segment_bytes.get()).map(<[u8]>::to_vec));
        }
        batch.clear();
    }
    (shape, found)
}

fn sent(out: &Outbox) -> Vec<Vec<u8>> {
    out.datagrams().map(|(_, bytes)| bytes.to_vec()).collect()
}

#[test]
fn eight_datagrams_for_one_receiver_leave_and_arrive_as_one_message() {
    for ip in LOOPBACKS {
        let (mut a, b) = (bind(ip, true, true), bind(ip, true, true));
        let out = outbox(&path_to(&b), &[1_200; 8]);
        let mut sender = Sender::default();
        sender.send(&mut a, &out);

        let expected =
            CountersSnapshot { datagrams_out: 8, bytes_out: 9_600, send_calls: 1, gso_sends: 1, ..Default::default() };
        assert_eq!(sender.counts, expected);
        assert_eq!(receive(&b, 8), (vec![8], sent(&out)));
    }
}

#[test]
fn the_same_bytes_arrive_with_and_without_gso_and_gro() {
    let lens = [1_200, 1_200, 700, 30, 30, 30, 1_400, 1];
    for ip in LOOPBACKS {
        for (gso, gro) in [(true, true), (true, false), (false, true), (false, false)] {
            let (mut a, b) = (bind(ip, gso, gro), bind(ip, gso, gro));
            assert_eq!((a.gso(), b.gro()), (gso, gro));
            let out = outbox(&path_to(&b), &lens);
            let mut sender = Sender::default();
            sender.send(&mut a, &out);

            assert_eq!(receive(&b, lens.len()).1, sent(&out), "{ip}, GSO {gso}, GRO {gro}");
            assert_eq!(sender.counts.gso_sends, if gso { 3 } else { 0 });
        }
    }
}

#[test]
fn many_receivers_are_served_by_few_calls() {
    let (mut a, b, c) =
        (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
    let mut out = Outbox::new(1 << 20);
    for _ in 0..100 {
        for receiver in [&b, &c] {
            out.push(&path_to(receiver), &[5; 100]);
            out.push(&path_to(receiver), &[6; 100]);
        }
    }
    let mut sender = Sender::default();
    sender.send(&mut a, &out);

    assert_eq!((sender.counts.send_calls, sender.counts.gso_sends), (2, 200));
    assert_eq!((receive(&b, 200).1.len(), receive(&c, 200).1.len()), (200, 200));
}

/// Two datagrams for each of so many addresses of `socket`, which has a wildcard address.
fn outbox_of(socket: &UdpSocket, addresses: u8) -> Outbox {
    let mut out = Outbox::new(1 << 20);
    for last in 1..=addresses {
        let remote = (Ipv4Addr::new(127, 0, 0, last), socket.local_addr().port()).into();
        for _ in 0..2 {
            assert!(out.push(&Path { remote, ..path_to(socket) }, &[last; 500]));
        }
    }
    out
}

#[test]
fn a_kernel_that_refuses_to_split_for_several_destinations_is_not_asked_for_a_minute() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(Ipv4Addr::UNSPECIFIED.into(), true, true));
    sys::refuse_gso(a.as_fd()).expect("option");
    let out = outbox_of(&b, REFUSERS_MAX as u8);
    let mut sender = Sender::default();
    for _ in 0..=REFUSALS_MAX / REFUSERS_MAX as u32 {
        sender.send(&mut a, &out);
        assert_eq!(receive(&b, 2 * REFUSERS_MAX).1, sent(&out), "every datagram by itself");
    }
    assert_eq!((sender.counts.gso_refused, sender.counts.gso_lowered), (REFUSALS_MAX.into(), 1));
    assert!(!a.gso());
    sender.send(&mut a, &out);
    assert_eq!((sender.counts.gso_refused, sender.counts.gso_sends), (REFUSALS_MAX.into(), 0), "it is not tried");

    // As if the minute was over.
    a.gso_lowered_until = Some(Instant::now());
    assert!(a.gso());
    sender.send(&mut a, &out);
    assert_eq!(sender.counts.gso_refused, u64::from(REFUSALS_MAX) + REFUSERS_MAX as u64);
}

#[test]
fn a_socket_whose_card_does_not_split_is_known_beside_one_whose_card_does() {
    let [mut a, mut other] = [(); 2].map(|()| bind(LOOPBACKS[0], true, true));
    let b = bind(Ipv4Addr::UNSPECIFIED.into(), true, true);
    sys::refuse_gso(a.as_fd()).expect("option");
    let out = outbox_of(&b, REFUSERS_MAX as u8);
    let mut sender = Sender::default();
    for _ in 0..=REFUSALS_MAX / REFUSERS_MAX as u32 {
        for socket in [&mut a, &mut other] {
            sender.send(socket, &out);
            assert_eq!(receive(&b, 2 * REFUSERS_MAX).1, sent(&out));
        }
    }
    assert_eq!((sender.counts.gso_refused, sender.counts.gso_lowered), (REFUSALS_MAX.into(), 1));
    assert_eq!([a.gso(), other.gso()], [false, true]);
}

#[test]
fn a_destination_whose_sends_the_kernel_does_not_split_makes_those_to_others_no_dearer() {
    for errno in [libc::EIO, libc::EINVAL] {
        let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        let out = outbox(&path_to(&b), &[500, 500]);
        let mut sender = Sender::default();
        for _ in 0..2 * REFUSALS_MAX {
            sender.queue.faults.push_back(errno);
            sender.send(&mut a, &out);
            assert_eq!(receive(&b, 2).1, sent(&out));
        }
        let counts = &sender.counts;
        assert_eq!((counts.gso_refused, counts.gso_lowered, a.gso()), (u64::from(2 * REFUSALS_MAX), 0, true));
        assert_eq!(counts.dropped_refused, 0);
    }
}

#[test]
fn a_kernel_that_refuses_to_split_for_one_or_two_destinations_is_not_asked_for_a_minute_when_there_are_no_others() {
    for destinations in [1, 2] {
        let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(Ipv4Addr::UNSPECIFIED.into(), true, true));
        sys::refuse_gso(a.as_fd()).expect("option");
        let out = outbox_of(&b, destinations);
        let mut sender = Sender::default();
        for _ in 0..=REFUSALS_OF_FEW_MAX / u32::from(destinations) {
            sender.send(&mut a, &out);
            assert_eq!(receive(&b, 2 * usize::from(destinations)).1, sent(&out), "every datagram by itself");
        }
        assert_eq!((sender.counts.gso_refused, sender.counts.gso_lowered), (REFUSALS_OF_FEW_MAX.into(), 1));
    }
}

#[test]
fn a_destination_whose_sends_the_kernel_never_splits_makes_those_to_another_no_dearer() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(Ipv4Addr::UNSPECIFIED.into(), true, true));
    let out = outbox_of(&b, 2);
    let mut sender = Sender::default();
    for _ in 0..REFUSALS_OF_FEW_MAX {
        // The first run is refused, the second is split.
        sender.queue.faults.push_back(libc::EIO);
        sender.send(&mut a, &out);
        assert_eq!(receive(&b, 4).1, sent(&out));
    }
    assert_eq!((sender.counts.gso_refused, sender.counts.gso_lowered), (REFUSALS_OF_FEW_MAX.into(), 0));
}

#[test]
fn a_datagram_longer_than_its_path_takes_is_sent_in_fragments_from_then_on() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
    let out = outbox(&path_to(&b), &[500, 500, 200]);
    let mut sender = Sender::failing([libc::EMSGSIZE]);
    assert!(a.whole);
    sender.send(&mut a, &out);
    assert_eq!(receive(&b, 3).1, sent(&out));
    assert_eq!((sender.counts.gso_refused, sender.counts.gso_sends, sender.counts.dropped_refused), (0, 1, 0));
    assert!(!a.whole);

    // With fragments allowed it is the split that was refused, and at last the datagram.
    sender.queue.faults = [libc::EMSGSIZE, libc::EMSGSIZE].into();
    sender.send(&mut a, &out);
    assert_eq!(receive(&b, 2).1, sent(&out)[1..]);
    assert_eq!((sender.counts.gso_refused, sender.counts.dropped_refused), (1, 1));
}

#[test]
fn a_remote_behind_a_narrow_path_does_not_make_the_sends_to_all_others_dearer() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
    let out = outbox(&path_to(&b), &[500, 500]);
    let mut sender = Sender::failing([libc::EMSGSIZE]);
    for _ in 0..2 * REFUSALS_MAX {
        sender.queue.faults.push_back(libc::EMSGSIZE);
        sender.send(&mut a, &out);
        assert_eq!(receive(&b, 2).1, sent(&out));
    }
    assert_eq!((sender.counts.gso_refused, a.gso()), (u64::from(2 * REFUSALS_MAX), true));
}

#[test]
fn what_icmp_said_of_another_path_costs_no_datagram_and_changes_nothing() {
    let mut a = UdpSocket::bind((LOOPBACKS[0], 0).into(), &Options::sender()).expect("loopback can be bound");
    let b = bind(LOOPBACKS[0], true, true);
    let out = outbox(&path_to(&b), &[1_252]);
    let mut sender = Sender::failing([libc::EMSGSIZE; 3]);
    sender.send(&mut a, &out);
    assert_eq!(receive(&b, 1).1, sent(&out));
    assert_eq!((sender.counts.dropped_refused, a.whole), (0, true));
}

#[test]
fn icmp_is_believed_where_a_datagram_was_longer_than_what_passes_everywhere_and_the_kernel_at_once() {
    for (ip, passes) in LOOPBACKS.into_iter().zip([1_252, 1_232]) {
        let mut a = UdpSocket::bind((ip, 0).into(), &Options::sender()).expect("loopback can be bound");
        let b = bind(ip, true, true);
        let mut sender = Sender::default();
        sender.send(&mut a, &outbox(&path_to(&b), &[passes, passes, passes]));
        assert!(!a.hear_too_long(false) && a.whole);
        sender.send(&mut a, &outbox(&path_to(&b), &[passes + 1, passes + 1]));
        assert!(a.hear_too_long(false) && !a.whole);

        let mut other = bind(ip, true, true);
        assert!(other.hear_too_long(true) && !other.whole);
        assert!(!other.hear_too_long(true), "it is known");

        let options = Options { fragments: Fragments::Never, ..Options::default() };
        let mut never = UdpSocket::bind((ip, 0).into(), &options).expect("loopback can be bound");
        assert!(!never.hear_too_long(true) && never.whole);
    }
}

#[test]
fn a_socket_that_is_full_for_a_moment_loses_nothing() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
    let out = outbox(&path_to(&b), &[500, 500, 200]);
    // One fault for each send: what it has of patience, 2 ms, is over after the first wait where the machine is busy.
    for (fault, waits) in [(libc::EAGAIN, (1, 0)), (libc::ENOBUFS, (0, 1)), (libc::EINTR, (0, 0))] {
        let mut sender = Sender::failing([fault]);
        sender.send(&mut a, &out);
        assert_eq!(receive(&b, 3).1, sent(&out));
        let counts = &sender.counts;
        assert_eq!(((counts.send_would_block, counts.send_queue_full), counts.dropped()), (waits, 0));
    }
}

#[test]
fn a_socket_that_stays_full_is_waited_for_once_and_its_drops_are_counted() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
    let out = outbox(&path_to(&b), &[500, 500, 200, 900]);
    let mut sender = Sender::failing(vec![libc::EAGAIN; 1 << 20]);
    sender.send(&mut a, &out);
    let calls = sender.counts.send_calls;
    assert!(calls >= 2, "it is waited for");
    assert_eq!((sender.counts.dropped_socket_full, sender.counts.datagrams_out), (4, 0));

    sender.send(&mut a, &out);
    assert_eq!((sender.counts.dropped_socket_full, sender.counts.send_calls), (8, calls + 1));

    sender.queue.faults.clear();
    sender.send(&mut a, &out);
    assert_eq!(receive(&b, 4).1, sent(&out));
}

#[test]
fn a_socket_that_stays_full_costs_the_others_neither_their_wait_nor_one_more() {
    let [mut a, mut b, mut c, d] = [(); 4].map(|()| bind(LOOPBACKS[0], true, true));
    let out = outbox(&path_to(&d), &[500]);
    let mut sender = Sender::failing(vec![libc::EAGAIN; 1 << 20]);
    sender.send(&mut a, &out);
    assert_eq!(sender.counts.dropped_socket_full, 1);

    // Another is full for a moment, in the same flush as one that is not.
    let full = sender.counts.send_would_block;
    sender.queue.faults = [libc::EAGAIN; 2].into();
    sender.queue.begin_flush();
    for socket in [&mut a, &mut b, &mut c] {
        sender.send_part(socket, &out);
    }
    assert_eq!(
        (sender.counts.send_would_block - full, sender.counts.dropped_socket_full),
        (2, 2),
        "only the first still drops"
    );
    assert_eq!(receive(&d, 2).1.len(), 2);

    // All that are full in one flush wait as long as one.
    sender.queue.faults = vec![libc::EAGAIN; 1 << 20].into();
    sender.queue.begin_flush();
    sender.send_part(&mut b, &out);
    let calls = sender.counts.send_calls;
    sender.send_part(&mut c, &out);
    assert_eq!(sender.counts.send_calls, calls + 1);
    assert_eq!(sender.counts.dropped_socket_full, 4);
}

#[test]
fn of_a_queue_below_the_socket_that_stays_full_only_what_it_drops_is_lost() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
    let out = outbox(&path_to(&b), &[500, 500, 200, 900]);
    let mut sender = Sender::failing([libc::ENOBUFS; 100]);
    sender.send(&mut a, &out);
    assert_eq!((sender.counts.dropped_queue_full, sender.counts.datagrams_out), (4, 0));
    let full = sender.counts.send_queue_full;
    assert!((2..=13).contains(&full), "{full} times in two milliseconds");

    // It stays full for the first run, and nobody waits.
    sender.stop_time();
    sender.queue.faults = [libc::ENOBUFS].into();
    sender.send(&mut a, &out);
    assert_eq!(receive(&b, 1).1, sent(&out)[3..]);
    assert_eq!((sender.counts.send_queue_full - full, sender.counts.dropped_queue_full), (1, 7));
}

#[test]
fn a_queue_that_stays_full_is_waited_for_once_in_a_while_though_others_have_room() {
    let [mut a, mut other, b] = [(); 3].map(|()| bind(LOOPBACKS[0], true, true));
    let out = outbox(&path_to(&b), &[500]);
    let mut sender = Sender::default();
    let mut calls_of_full = |sender: &mut Sender| {
        let before = sender.counts.send_calls;
        sender.queue.faults = vec![libc::ENOBUFS; 1 << 10].into();
        sender.send(&mut a, &out);
        sender.queue.faults.clear();
        // What goes another way, of this socket and of another, goes.
        sender.send(&mut a, &out);
        sender.send(&mut other, &out);
        assert_eq!(receive(&b, 2).1.len(), 2);
        sender.counts.send_calls - before - 2
    };
    assert!(calls_of_full(&mut sender) > 1, "it is waited for");
    sender.stop_time();
    for _ in 0..3 {
        assert_eq!(calls_of_full(&mut sender), 1);
    }
    // As if the pause was over.
    sender.queue.queues_paused_until = Some(Instant::now());
    assert!(calls_of_full(&mut sender) > 1, "it is waited for again");
    assert_eq!((sender.counts.dropped_queue_full, sender.counts.datagrams_out), (5, 10));
}

#[test]
fn what_the_kernel_refuses_is_counted_and_the_rest_is_sent() {
    let (mut a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
    let nowhere = Path { remote: ([255, 255, 255, 255], 9).into(), ..path_to(&b) };
    let mut out = Outbox::new(1 << 20);
    out.push(&path_to(&b), &[1; 10]);
    out.push(&nowhere, &[2; 10]);
    out.push(&nowhere, &[2; 10]);
    out.push(&path_to(&b), &[3; 10]);
    let mut sender = Sender::default();
    sender.send(&mut a, &out);

    assert_eq!(receive(&b, 2).1, [[1; 10], [3; 10]]);
    assert_eq!((sender.counts.datagrams_out, sender.counts.dropped_refused), (2, 2));
}

#[test]
fn on_a_wildcard_address_the_answer_leaves_from_the_address_that_was_asked() {
    // All of 127.0.0.0/8 is ours; without packet info the answer would leave from 127.0.0.1.
    let asked = Ipv4Addr::new(127, 0, 0, 77);
    let (mut a, mut b) = (bind(LOOPBACKS[0], true, true), bind(Ipv4Addr::UNSPECIFIED.into(), true, true));
    let question = Path { remote: (asked, b.local_addr().port()).into(), ..path_to(&b) };
    let mut sender = Sender::default();
    sender.send(&mut a, &outbox(&question, &[10, 10]));

    let paths = paths_of(&b);
    assert_eq!(paths, [Path { link: LinkId::datagrams(4), remote: a.local_addr(), local: Some(asked.into()) }]);
    sender.send(&mut b, &outbox(&paths[0], &[20, 20]));
    assert_eq!(paths_of(&a), [Path { link: LinkId::datagrams(4), remote: question.remote, local: None }]);
    assert_eq!(sender.counts.gso_sends, 2);
}

#[test]
fn on_an_ipv6_wildcard_address_the_local_address_is_known_and_used() {
    let (mut a, mut b) = (bind(LOOPBACKS[1], true, true), bind(Ipv6Addr::UNSPECIFIED.into(), true, true));
    let question = Path { remote: (Ipv6Addr::LOCALHOST, b.local_addr().port()).into(), ..path_to(&b) };
    let mut sender = Sender::default();
    sender.send(&mut a, &outbox(&question, &[10, 10]));

    let paths = paths_of(&b);
    assert_eq!(paths, [Path { link: LinkId::datagrams(4), remote: a.local_addr(), local: Some(LOOPBACKS[1]) }]);
    sender.send(&mut b, &outbox(&paths[0], &[20, 20]));
    assert_eq!(receive(&a, 2).0, [2]);
}

#[test]
fn both_families_can_have_the_same_port() {
    // Another test may hold just this port in one family, so there are a few attempts.
    let is_shared = (0..10).any(|_| {
        let v6 = bind(Ipv6Addr::UNSPECIFIED.into(), true, true);
        let same = (Ipv4Addr::UNSPECIFIED, v6.local_addr().port());
        UdpSocket::bind(same.into(), &Options::default()).is_ok()
    });
    assert!(is_shared);
}

#[test]
fn a_datagram_longer_than_its_slot_is_marked() {
    let (a, b) = (bind(LOOPBACKS[0], true, false), bind(LOOPBACKS[0], true, false));
    a.socket.send_to(&[7; PLAIN_SLOT_BYTES + 1], b.local_addr()).expect("send");
    let mut batch = recv_batch(false);
    assert!(sys::wait_readable(b.as_fd(), Some(Duration::from_secs(5))).expect("poll"));
    assert_eq!(batch.fill(&b).expect("receive"), 1);
    assert!(batch.message(0).expect("a message").truncated);
}

#[test]
fn the_receive_buffer_that_was_got_is_known() {
    let socket = bind(LOOPBACKS[0], true, true);
    assert!(socket.receive_buffer_bytes() >= 100_000);
}

#[test]
fn each_error_of_a_send_has_its_remedy() {
    let of = |errno, is_gso| Refusal::of(&io::Error::from_raw_os_error(errno), is_gso);
    assert_eq!([of(libc::EIO, true), of(libc::EINVAL, true)], [Refusal::Gso; 2]);
    assert_eq!([of(libc::EAGAIN, true), of(libc::ENOBUFS, false)], [Refusal::Full, Refusal::QueueFull]);
    assert_eq!([of(libc::EMSGSIZE, true), of(libc::EMSGSIZE, false)], [Refusal::TooLong; 2]);
    for errno in [libc::EIO, libc::EINVAL, libc::EPERM, libc::ECONNREFUSED, libc::EHOSTUNREACH] {
        assert_eq!(of(errno, false), Refusal::Message);
    }
    assert_eq!(of(libc::EINTR, true), Refusal::Interrupted);
}

fn paths_of(socket: &UdpSocket) -> Vec<Path> {
    let mut batch = recv_batch(socket.gro());
    assert!(sys::wait_readable(socket.as_fd(), Some(Duration::from_secs(5))).expect("poll"));
    let count = batch.fill(socket).expect("receive");
    let path = |index| Some(batch.message(index)?.into_run(Token::default(), LinkId::datagrams(4), 0, 64).path);
    let mut paths: Vec<_> = (0..count).filter_map(path).collect();
    paths.dedup();
    paths
}
