//! What sockets drop for want of room is asked for, not too often and not of all at once.

use super::*;

#[test]
fn what_finds_no_room_is_counted_a_second_after_something_was_received() {
    let mut links = Links::new().expect("epoll");
    let mut open = |options: UdpOptions| {
        let (token, addr) = (Token::default(), ([127, 0, 0, 1], 0).into());
        links.handle_request(Instant::now(), LinkRequest::OpenUdp { token, addr, ports: None, options });
        let Some((_, LinkEvent::Opened { link, local, .. })) = links.poll_news() else { panic!("it is told") };
        (link, local)
    };
    let small = UdpOptions { receive_buffer_bytes: Some(4_096), ..UdpOptions::default() };
    let [(receiver, to), (sender, _)] = [small, UdpOptions::sender()].map(&mut open);
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let start = Instant::now();
    assert_eq!(links.next_sweep(), None);
    // The kernel may take its time.
    let since = Instant::now();
    while links.counts.dropped_receive_full == 0 {
        assert!(since.elapsed() < PATIENCE, "some find no room");
        client.send_to(&[7; 1_000], to).expect("sent");
        (0..2).for_each(|_| links.expect_drops(start, receiver, 1, 1_000));
        assert_eq!(links.next_sweep(), Some(start + SWEEP_INTERVAL), "a worker that sleeps wakes for it");
        let before = links.counts.dropped_receive_full;
        links.count_drops(start);
        assert_eq!(links.counts.dropped_receive_full, before, "it is not asked for in each turn");
        links.count_drops(start + SWEEP_INTERVAL);
        assert_eq!(links.next_sweep(), None, "nothing was received since");
    }
    links.close(receiver, CloseReason::Asked);
    links.close(sender, CloseReason::Asked);
    links.expect_drops(start, receiver, 64, 64);
    assert_eq!(links.next_sweep(), None, "it is gone");
}

#[test]
fn who_found_little_in_a_buffer_does_not_ask_what_it_dropped() {
    let mut links = Links::new().expect("epoll");
    let (token, addr) = (Token::default(), ([127, 0, 0, 1], 0).into());
    let options = UdpOptions { receive_buffer_bytes: Some(200_000), ..UdpOptions::default() };
    links.handle_request(Instant::now(), LinkRequest::OpenUdp { token, addr, ports: None, options });
    let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
    let start = Instant::now();
    links.expect_drops(start, link, 10, 12_000);
    assert_eq!(links.next_sweep(), None);
    links.expect_drops(start, link, 64, 64_000);
    assert_eq!(links.next_sweep(), Some(start + SWEEP_INTERVAL));
}

/// A relay has thousands: to ask all of them at once would make packets late.
#[test]
fn sockets_are_asked_for_what_they_dropped_in_shares_and_each_once() {
    let mut links = Links::new().expect("epoll");
    let start = Instant::now();
    for _ in 0..DROPS_MAX + 2 {
        let (token, addr) = (Token::default(), ([127, 0, 0, 1], 0).into());
        links.handle_request(start, LinkRequest::OpenUdp { token, addr, ports: None, options: UdpOptions::default() });
        let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
        (0..3).for_each(|_| links.expect_drops(start, link, 64, 4 << 20));
    }
    let mut now = start + SWEEP_INTERVAL;
    let mut left = Vec::new();
    while let Some(at) = links.next_sweep() {
        now = now.max(at);
        links.count_drops(now);
        left.push(links.received.len());
    }
    assert_eq!((left, now - start), (vec![2, 0], SWEEP_INTERVAL + DROPS_PAUSE));
}
