//! Handshakes and records, with dimpl as the client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::crypto::Dtls12CipherSuite;
use dimpl::{Config, Dtls, Output};
use proptest::prelude::*;

use super::*;

const CLIENT: &str = "192.0.2.7:1234";

const SUITES: [Dtls12CipherSuite; 3] = [
    Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256,
    Dtls12CipherSuite::ECDHE_ECDSA_AES256_GCM_SHA384,
    Dtls12CipherSuite::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256,
];

/// A client, and what it has been told and heard.
struct Client {
    dtls: Dtls,
    sends: Vec<Vec<u8>>,
    /// What was taken from there last.
    last_sent: Vec<Vec<u8>>,
    data: Vec<Vec<u8>>,
    is_connected: bool,
    has_ended: bool,
}

impl Client {
    fn new(suite: Dtls12CipherSuite, now: Instant) -> Self {
        let config = Config::builder().dtls12_cipher_suites(&[suite]).build().expect("a configuration");
        let certificate = dimpl::certificate::generate_self_signed_certificate().expect("a certificate");
        let mut dtls = Dtls::new_12(Arc::new(config), certificate, now);
        dtls.set_active(true);
        let mut client = Client {
            dtls,
            sends: Vec::new(),
            last_sent: Vec::new(),
            data: Vec::new(),
            is_connected: false,
            has_ended: false,
        };
        client.wait(now);
        client
    }

    fn wait(&mut self, now: Instant) {
        self.dtls.handle_timeout(now).expect("a client");
        self.poll();
    }

    fn receive(&mut self, datagram: &[u8]) {
        self.dtls.handle_packet(datagram).expect("a client");
        self.poll();
    }

    fn send(&mut self, data: &[u8]) -> Vec<u8> {
        self.dtls.send_application_data(data).expect("connected");
        self.poll();
        self.sends.pop().expect("a record")
    }

    fn poll(&mut self) {
        let mut buf = vec![0; 3_000];
        loop {
            match self.dtls.poll_output(&mut buf) {
                Output::Packet(packet) => self.sends.push(packet.to_vec()),
                Output::ApplicationData(data) => self.data.push(data.to_vec()),
                Output::Connected => self.is_connected = true,
                Output::CloseNotify => self.has_ended = true,
                Output::Timeout(_) => return,
                _ => {}
            }
        }
    }

    fn sends(&mut self) -> Vec<Vec<u8>> {
        self.last_sent = std::mem::take(&mut self.sends);
        self.last_sent.clone()
    }
}

/// Asks for a cookie and begins; `lose` says which of the datagrams of either side are lost, by their numbers.
fn connect(suite: Dtls12CipherSuite, lose: impl Fn(usize) -> bool) -> (Client, Established, Instant) {
    let (mut now, identity, cookies) = (Instant::now(), Identity::made_up().expect("ours"), Cookies::new(&[1; 32]));
    let from = CLIENT.parse().expect("an address");
    let mut client = Client::new(suite, now);
    let [hello] = &client.sends()[..] else { panic!("one hello") };
    let Hello::Unverified(answer) = cookies.check(Duration::ZERO, from, hello, || true) else {
        panic!("it has no cookie")
    };
    assert!(answer.len() < hello.len());
    client.receive(&answer);
    let hellos = client.sends();
    let Hello::Verified(numbers) = cookies.check(Duration::ZERO, from, &hellos[0], || true) else {
        panic!("it has ours")
    };
    let mut server = Handshake::new(&identity, now, numbers);
    let (mut to_server, mut count) = (hellos, 0);
    for _ in 0..40 {
        let mut answers = Vec::new();
        for datagram in to_server.drain(..).map(Some).chain([None]) {
            count += usize::from(datagram.is_some());
            if datagram.is_some() && lose(count) {
                continue;
            }
            match server.handle(now, datagram.as_deref()).expect("a handshake") {
                Progress::Answers(datagrams) => answers.extend(datagrams),
                Progress::Done(established) => return (client, established, now),
            }
        }
        for answer in answers {
            assert!(answer.len() <= 1_200);
            count += 1;
            if !lose(count) {
                client.receive(&answer);
            }
        }
        now += Duration::from_millis(700);
        client.wait(now);
        to_server = client.sends();
    }
    panic!("a handshake is shorter");
}

/// The end of the handshake comes to the client.
fn tell(client: &mut Client, established: &Established) {
    established.last_flight.iter().for_each(|datagram| client.receive(datagram));
    assert!(client.is_connected);
}

fn open(records: &mut Records, record: &[u8]) -> Result<Vec<u8>, RecordError> {
    let mut record = record.to_vec();
    let header = Header::read(&record).expect("a record");
    assert_eq!(header.len, record.len());
    match records.open(&header, &mut record)? {
        Carried::Data(place) => Ok(record[place].to_vec()),
        other => panic!("{other:?}"),
    }
}

fn seal(records: &mut Records, data: &[u8]) -> Option<Vec<u8>> {
    let (mut buf, at) = (vec![0xee; data.len() + OVERHEAD_MAX], records.data_at());
    buf[at..at + data.len()].copy_from_slice(data);
    let len = records.seal(&mut buf, data.len())?;
    buf.truncate(len);
    Some(buf)
}

#[test]
fn data_goes_both_ways_with_every_suite() {
    for suite in SUITES {
        let (mut client, mut established, _) = connect(suite, |_| false);
        tell(&mut client, &established);
        let records = &mut established.records;
        for data in [&b"x"[..], b"question", &[7; 1_100]] {
            let record = client.send(data);
            assert_eq!(open(records, &record).as_deref(), Ok(data), "{suite:?}");
            let answer = seal(records, data).expect("a record");
            client.receive(&answer);
            assert_eq!(client.data.pop().as_deref(), Some(data), "{suite:?}");
        }
    }
}

#[test]
fn a_handshake_survives_the_loss_of_any_datagram() {
    for lost in 1..=8 {
        let (mut client, established, _) = connect(SUITES[0], |count| count == lost);
        tell(&mut client, &established);
    }
}

#[test]
fn who_has_not_got_the_end_of_the_handshake_says_so_under_the_new_keys() {
    let (mut client, mut established, now) = connect(SUITES[0], |_| false);
    client.wait(now + Duration::from_secs(3));
    let again = client.sends();
    let carried = again.iter().flat_map(|datagram| {
        let (mut rest, mut all) = (datagram.clone(), Vec::new());
        while let Some(header) = Header::read(&rest) {
            let behind = rest.split_off(header.len);
            all.push(established.records.open(&header, &mut rest));
            rest = behind;
        }
        all
    });
    let carried: Vec<_> = carried.collect();
    assert!(carried.contains(&Ok(Carried::Handshake)), "{carried:?}");
    assert!(carried.contains(&Err(RecordError::NotAuthentic)), "what anybody can write says nothing: {carried:?}");
    tell(&mut client, &established);
}

#[test]
fn a_record_is_opened_once_and_as_it_was_sent() {
    for suite in SUITES {
        let (mut client, mut established, _) = connect(suite, |_| false);
        tell(&mut client, &established);
        let records = &mut established.records;
        let [first, second] = [client.send(b"first"), client.send(b"second")];
        for at in 0..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 0x10;
            let opened = Header::read(&changed).map(|header| records.open(&header, &mut changed));
            assert!(!matches!(opened, Some(Ok(_))), "{suite:?} {at}");
        }
        assert_eq!(open(records, &second).as_deref(), Ok(&b"second"[..]));
        assert_eq!(open(records, &first).as_deref(), Ok(&b"first"[..]), "they may come in any order");
        assert_eq!(open(records, &first), Err(RecordError::Replayed));
    }
}

#[test]
fn each_side_says_that_this_was_all() {
    let (mut client, mut established, _) = connect(SUITES[0], |_| false);
    tell(&mut client, &established);
    client.dtls.close().expect("connected");
    client.poll();
    let mut record = client.sends().pop().expect("a record");
    let header = Header::read(&record).expect("a record");
    assert_eq!(established.records.open(&header, &mut record), Ok(Carried::End));

    let (mut client, mut established, _) = connect(SUITES[0], |_| false);
    tell(&mut client, &established);
    let mut buf = [0; 100];
    let len = established.records.end(&mut buf).expect("a record");
    client.receive(&buf[..len]);
    assert!(client.has_ended);
}

#[test]
fn a_key_ends_with_its_last_block_and_says_so() {
    let (mut client, mut established, _) = connect(SUITES[0], |_| false);
    tell(&mut client, &established);
    let records = &mut established.records;
    records.use_up(4);
    client.receive(&seal(records, b"last").expect("a record"));
    assert_eq!((client.data.pop().as_deref(), records.is_used_up()), (Some(&b"last"[..]), true));
    assert_eq!(seal(records, b"too many"), None);
    let mut buf = [0; 100];
    let len = records.end(&mut buf).expect("a record");
    client.receive(&buf[..len]);
    assert!(client.has_ended);
    assert_eq!(records.end(&mut buf), None);
}

#[test]
fn what_a_key_seals_is_counted_by_its_blocks_and_a_day_of_small_records_is_not_too_much() {
    let (_, mut established, _) = connect(SUITES[0], |_| false);
    let records = &mut established.records;
    records.use_up(2 * (3 + 63) + 1);
    // 1,000 bytes are 63 blocks.
    assert_eq!(
        (0..10).filter(|_| seal(records, &[0; 1_000]).is_some()).count(),
        3,
        "and the last is the one that ends it"
    );
    let (_, mut established, _) = connect(SUITES[2], |_| false);
    (0..100).for_each(|_| drop(seal(&mut established.records, &[0; 1_000]).expect("of ChaCha20 there is no end")));
}

#[test]
fn what_came_in_the_handshake_does_not_come_again() {
    let (mut client, mut established, now) = connect(SUITES[0], |_| false);
    let [.., finished] = &client.last_sent[..] else { panic!("it has sent something") };
    let (mut rest, mut opened) = (finished.clone(), Vec::new());
    while let Some(header) = Header::read(&rest) {
        let behind = rest.split_off(header.len);
        if header.epoch == 1 {
            opened.push(established.records.open(&header, &mut rest));
        }
        rest = behind;
    }
    assert_eq!(opened, [Err(RecordError::Replayed)]);
    client.wait(now + Duration::from_secs(3));
    tell(&mut client, &established);
}

#[test]
fn where_there_is_no_room_nothing_is_sealed() {
    let (mut client, mut established, _) = connect(SUITES[0], |_| false);
    tell(&mut client, &established);
    let mut buf = [0; OVERHEAD_MAX + 99];
    assert_eq!(established.records.seal(&mut buf, 100), None);
    assert_eq!(established.records.seal(&mut buf, 99), Some(OVERHEAD_MAX + 99));
}

#[test]
fn a_key_that_nothing_can_be_signed_with_is_refused() {
    assert!(matches!(Identity::new([&b"certificate"[..]], b"no key"), Err(IdentityError::NotEcdsa)));
    assert!(matches!(Identity::new([], b"no key"), Err(IdentityError::Missing)));
}

#[test]
fn a_chain_is_sent_whole() {
    let [own, above] = [(); 2].map(|()| dimpl::certificate::generate_self_signed_certificate().expect("a certificate"));
    let identity = Identity::new([&own.certificate[..], &above.certificate], &own.private_key).expect("ours");
    let (now, cookies, from) = (Instant::now(), Cookies::new(&[1; 32]), CLIENT.parse().expect("an address"));
    let mut client = Client::new(SUITES[0], now);
    let Hello::Unverified(answer) = cookies.check(Duration::ZERO, from, &client.sends()[0], || true) else {
        panic!("none yet")
    };
    client.receive(&answer);
    let hello = client.sends().remove(0);
    let Hello::Verified(numbers) = cookies.check(Duration::ZERO, from, &hello, || true) else { panic!("it has ours") };
    let answers = Handshake::new(&identity, now, numbers).handle(now, Some(&hello)).expect("a handshake");
    let Progress::Answers(datagrams) = answers else { panic!("it goes on") };
    let all = datagrams.concat();
    let len = (own.certificate.len() as u32).to_be_bytes();
    let entry = [&len[1..], &own.certificate[..]].concat();
    assert!(all.windows(entry.len()).any(|window| window == entry), "each has its length before it");
    assert!(datagrams.iter().all(|datagram| datagram.len() <= 1_200));
}

proptest! {
    #[test]
    fn nothing_that_comes_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..100_usize) {
        let (cookies, from) = (Cookies::new(&[1; 32]), CLIENT.parse().expect("an address"));
        cookies.check(Duration::ZERO, from, &bytes, || true);
        let (now, identity) = (Instant::now(), Identity::made_up().expect("ours"));
        let mut client = Client::new(SUITES[0], now);
        let mut hello = client.sends().remove(0);
        let end = hello.len().min(at + bytes.len());
        let at = at.min(end);
        hello[at..end].copy_from_slice(&bytes[..end - at]);
        let checked = cookies.check(Duration::ZERO, from, &hello, || true);
        prop_assert!(!matches!(checked, Hello::Verified(_)));
        let mut server = Handshake::new(&identity, now, Numbers { record: 0, message: 0 });
        let _ = server.handle(now, Some(&hello)).and_then(|_| server.handle(now, Some(&bytes)));
    }
}
