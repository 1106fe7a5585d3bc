//! With rustls' client as the other side.

mod kernel;

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use proptest::prelude::*;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedCipherSuite};
use wire::{Cipher, CipherError};

use crate::{Established, Handshake};

/// A server and those who trust it, who have just this suite.
struct World {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl World {
    fn new(suite: SupportedCipherSuite) -> Self {
        let provider = Arc::new(CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() });
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let certificate = made.cert.der().clone();
        let versions = [if suite.tls13().is_some() { &TLS13 } else { &TLS12 }];
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .expect("a suite")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("its key");
        server.enable_secret_extraction = true;
        server.alpn_protocols = vec![b"stun.turn".to_vec()];
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .expect("a suite")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = server.alpn_protocols.clone();
        World { server: Arc::new(server), client: Arc::new(client) }
    }

    /// A client, and the server's end behind a handshake whose bytes come so many at a time. The client says `early` as soon
    /// as it may.
    fn connect(&self, step: usize, early: &[u8]) -> (ClientConnection, Established) {
        let name = "localhost".try_into().expect("a name");
        let mut client = ClientConnection::new(self.client.clone(), name).expect("a client");
        client.writer().write_all(early).expect("it is kept");
        let mut server = Handshake::new(self.server.clone()).expect("a server");
        let mut is_done = false;
        for _ in 0..20 {
            let (sent, mut answer) = (sent(&mut client), Vec::new());
            for part in sent.chunks(step) {
                is_done = server.handle(part, &mut answer).expect("a handshake");
            }
            receive(&mut client, &answer).expect("a handshake");
            if is_done && !client.is_handshaking() && !client.wants_write() {
                return (client, server.finish().expect("it is over"));
            }
        }
        panic!("a handshake is shorter");
    }
}

/// What a client wants to send.
fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("memory");
    }
    bytes
}

fn receive(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("memory");
        client.process_new_packets()?;
        let mut part = vec![0; 100_000];
        let len = client.reader().read(&mut part).unwrap_or(0);
        plain.extend_from_slice(&part[..len]);
    }
    Ok(plain)
}

/// What the server makes of bytes that come so many at a time.
fn open(server: &mut Established, bytes: &[u8], step: usize) -> Result<Vec<u8>, CipherError> {
    let mut plain = Vec::new();
    for part in bytes.chunks(step) {
        let mut buf = std::mem::take(&mut server.sealed);
        buf.extend_from_slice(part);
        let opened = server.records.open(&mut buf)?;
        plain.extend_from_slice(&buf[..opened.plain]);
        server.sealed = buf.split_off(opened.used);
        assert!(opened.has_ended || server.sealed.len() < opened.record_len, "{opened:?}");
    }
    Ok(plain)
}

fn suites() -> impl Iterator<Item = SupportedCipherSuite> {
    aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().filter(|suite| {
        // Those whose key is what the certificate has.
        suite.tls13().is_some() || format!("{suite:?}").contains("ECDHE_ECDSA")
    })
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

#[test]
fn data_goes_both_ways_with_every_suite_however_it_is_cut() {
    let mut count = 0;
    for suite in suites() {
        let world = World::new(suite);
        for step in [1, 100, 100_000] {
            let (mut client, mut server) = world.connect(step, b"at once");
            assert_eq!(server.protocol.as_deref(), Some(&b"stun.turn"[..]));
            let came = server.received.clone();
            let rest = sent(&mut client);
            let came = [came, open(&mut server, &rest, step).expect("records")].concat();
            assert_eq!(came, b"at once", "{suite:?} {step}");

            for len in [1, 120, 16_384, 16_385, 40_000] {
                let plain = text(len);
                client.writer().write_all(&plain).expect("memory");
                let records = sent(&mut client);
                assert!(open(&mut server, &records, step).expect("records") == plain, "{suite:?} {step} {len}");
                let mut records = Vec::new();
                server.records.seal(&plain, &mut records).expect("records");
                assert!(receive(&mut client, &records).expect("records") == plain, "{suite:?} {step} {len}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 6);
}

#[test]
fn what_comes_with_the_end_of_the_handshake_is_not_lost() {
    for suite in suites() {
        let (mut client, mut server) = World::new(suite).connect(100_000, &text(20_000));
        let records = sent(&mut client);
        let rest = open(&mut server, &records, 100_000).expect("records");
        assert!([server.received, rest].concat() == text(20_000), "{suite:?}");
    }
}

#[test]
fn who_says_all_with_the_end_of_the_handshake_is_heard() {
    for suite in suites() {
        let world = World::new(suite);
        let mut client =
            ClientConnection::new(world.client.clone(), "localhost".try_into().expect("a name")).expect("a client");
        let mut server = Handshake::new(world.server.clone()).expect("a server");
        let mut is_done = false;
        for _ in 0..3 {
            let mut answer = Vec::new();
            is_done = server.handle(&sent(&mut client), &mut answer).expect("a handshake");
            receive(&mut client, &answer).expect("a handshake");
            if !client.is_handshaking() && !is_done {
                client.writer().write_all(b"all").expect("it is kept");
                client.send_close_notify();
            }
        }
        assert!(is_done, "{suite:?}");
        let server = server.finish().expect("it is over");
        let said = if suite.tls13().is_some() { &b"all"[..] } else { b"" };
        assert_eq!((&server.received[..], server.protocol.as_deref()), (said, Some(&b"stun.turn"[..])), "{suite:?}");
    }
}

#[test]
fn keys_are_changed_by_either_side_and_no_data_is_lost() {
    for suite in suites().filter(|suite| suite.tls13().is_some()) {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        for round in 0..100 {
            client.refresh_traffic_keys().expect("a key");
            // Each 32 without a thousand records between them are too many.
            if round % 20 == 0 {
                client.writer().write_all(&[7]).expect("memory");
                let records: Vec<u8> = (0..25_000)
                    .flat_map(|_| {
                        client.writer().write_all(&[7]).expect("memory");
                        sent(&mut client)
                    })
                    .collect();
                open(&mut server, &records, 100_000).expect("records");
            }
            client.writer().write_all(b"question").expect("memory");
            let records = sent(&mut client);
            assert!(open(&mut server, &records, 7).expect("records").ends_with(b"question"));
            if round % 3 == 0 {
                server.records.tx().allow(2);
            }
            let mut records = Vec::new();
            (0..3).for_each(|_| server.records.seal(b"answer", &mut records).expect("records"));
            assert_eq!(receive(&mut client, &records).expect("records"), b"answeransweranswer", "{suite:?} {round}");
        }
    }
}

#[test]
fn who_changes_keys_without_end_is_sent_away() {
    let suite = suites().find(|suite| suite.tls13().is_some()).expect("one");
    let (mut client, mut server) = World::new(suite).connect(100_000, b"");
    let mut changes = 0;
    let failed = loop {
        client.refresh_traffic_keys().expect("a key");
        let records = sent(&mut client);
        if open(&mut server, &records, 1_000).is_err() {
            break alert(&mut server);
        }
        changes += 1;
        assert!(changes < 100);
    };
    assert_eq!(changes, 32);
    let error = receive(&mut client, &failed).expect_err("it is told").to_string();
    assert!(error.contains("UnexpectedMessage"), "{error}");
}

/// What the server says of what it did not like.
fn alert(server: &mut Established) -> Vec<u8> {
    let mut bytes = Vec::new();
    server.records.poll_output(&mut bytes);
    bytes
}

#[test]
fn a_key_of_tls_1_2_ends_with_the_connection() {
    let suite = suites().find(|suite| suite.tls13().is_none()).expect("one");
    let (mut client, mut server) = World::new(suite).connect(100_000, b"");
    server.records.tx().allow(2);
    let mut records = Vec::new();
    server.records.seal(b"last", &mut records).expect("a record");
    assert_eq!(server.records.seal(b"too many", &mut records), Err(CipherError));
    server.records.end(&mut records);
    assert_eq!(receive(&mut client, &records).expect("records"), b"last");
}

#[test]
fn each_side_says_that_this_was_all_and_what_follows_means_nothing() {
    for suite in suites() {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        client.writer().write_all(b"last").expect("memory");
        client.send_close_notify();
        let mut records = sent(&mut client);
        let end = records.len();
        records.extend_from_slice(b"\x17\x03\x03\0\x02 more");
        let opened = server.records.open(&mut records).expect("records");
        assert_eq!((&records[..opened.plain], opened.used, opened.has_ended), (&b"last"[..], end, true));

        let mut records = Vec::new();
        server.records.seal(b"last words", &mut records).expect("a record");
        server.records.end(&mut records);
        assert_eq!(receive(&mut client, &records).expect("records"), b"last words");
        assert!(client.process_new_packets().expect("no more").peer_has_closed());
    }
}

#[test]
fn what_was_changed_on_its_way_is_not_opened_and_the_client_hears_so() {
    for suite in suites() {
        let world = World::new(suite);
        for at in [0, 1, 3, 5, 12, 30] {
            let (mut client, mut server) = world.connect(100_000, b"");
            client.writer().write_all(&text(100)).expect("memory");
            let mut records = sent(&mut client);
            records[at] ^= 1;
            records.extend_from_slice(&[0; 700]);
            assert_eq!(open(&mut server, &records, 100_000), Err(CipherError), "{suite:?} {at}");
            let told = alert(&mut server);
            assert!(receive(&mut client, &told).is_err(), "{suite:?} {at}");
            assert!(alert(&mut server).is_empty(), "it is told once");
        }
    }
}

#[test]
fn a_record_that_was_there_before_is_not_opened_again() {
    for suite in suites() {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        client.writer().write_all(b"once").expect("memory");
        let records = sent(&mut client);
        assert_eq!(open(&mut server, &records, 100).expect("records"), b"once");
        assert_eq!(open(&mut server, &records, 100), Err(CipherError), "{suite:?}");
    }
}

#[test]
fn who_wants_another_protocol_hears_that_there_is_none() {
    let suite = suites().next().expect("one");
    let World { server, client } = World::new(suite);
    let mut client = (*client).clone();
    client.alpn_protocols = vec![b"smtp".to_vec()];
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let (mut server, mut out) = (Handshake::new(server).expect("a server"), Vec::new());
    assert!(server.handle(&sent(&mut client), &mut out).is_err());
    let error = receive(&mut client, &out).expect_err("it is told").to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
}

#[test]
fn more_than_a_handshake_is_not_kept() {
    let world = World::new(suites().next().expect("one"));
    let mut server = Handshake::new(world.server).expect("a server");
    // One record that never ends, and then another.
    let mut record = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    record.resize(9_000, 0);
    let mut taken = 0;
    while server.handle(&record, &mut Vec::new()).is_ok() {
        taken += record.len();
        assert!(taken < 100_000);
    }
}

proptest! {
    #[test]
    fn nothing_that_comes_ends_the_process(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), step in 1..500_usize) {
        let world = World::new(suites().next().expect("one"));
        let mut server = Handshake::new(world.server.clone()).expect("a server");
        for part in bytes.chunks(step) {
            if server.handle(part, &mut Vec::new()).is_err() {
                break;
            }
        }
        let (_, mut server) = world.connect(1_000, b"");
        let _ = open(&mut server, &bytes, step);
    }
}
