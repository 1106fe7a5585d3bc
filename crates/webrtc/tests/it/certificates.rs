//! Which certificates clients may have: ECDSA, as RFC 8827 §6.5 wants them, and RSA, as some have them all the same.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::crypto::aws_lc_rs::default_provider;
use dimpl::{CryptoError, Dtls, DtlsCertificate, HashAlgorithm, Output, SignatureAlgorithm};
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize, SigningKey};

#[path = "../../../../tests/support/skip.rs"]
mod skip;

/// How long a slow machine may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn dtls(is_client: bool, now: Instant) -> Dtls {
    dtls_with(dimpl::certificate::generate_self_signed_certificate().unwrap(), is_client, now)
}

fn dtls_with(certificate: DtlsCertificate, is_client: bool, now: Instant) -> Dtls {
    let config = dimpl::Config::builder().use_server_cookie(false).build().unwrap();
    let mut dtls = Dtls::new_12(Arc::new(config), certificate, now);
    dtls.set_active(is_client);
    dtls.handle_timeout(now).unwrap();
    dtls
}

/// What it sends now, and whether it has certificate and keys.
fn outputs(dtls: &mut Dtls) -> (Vec<Vec<u8>>, bool, bool) {
    let (mut sent, mut has_certificate, mut has_keys) = (Vec::new(), false, false);
    let mut buf = vec![0; 4_000];
    loop {
        match dtls.poll_output(&mut buf) {
            Output::Packet(data) => sent.push(data.to_vec()),
            Output::PeerCert(_) => has_certificate = true,
            Output::KeyingMaterial(..) => has_keys = true,
            Output::Timeout(_) => return (sent, has_certificate, has_keys),
            _ => {}
        }
    }
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn openssl_with_an_rsa_certificate_shakes_hands() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        return skip::skip("openssl, with an RSA certificate, is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let (key, certificate) = (dir.path().join("key.pem"), dir.path().join("certificate.pem"));
    let key_pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let issued = CertificateParams::default().self_signed(&key_pair).unwrap();
    std::fs::write(&key, key_pair.serialize_pem()).unwrap();
    std::fs::write(&certificate, issued.pem()).unwrap();

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut server = dtls(false, Instant::now());
    let mut client = Command::new("openssl");
    client.args(["s_client", "-dtls1_2", "-use_srtp", "SRTP_AEAD_AES_256_GCM", "-connect"]);
    client.arg(socket.local_addr().unwrap().to_string());
    client.arg("-cert").arg(&certificate).arg("-key").arg(&key);
    let _client = Ends(client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut buf = vec![0; 4_000];
    let mut peer = None;
    let (mut is_known, mut has_keys) = (false, false);
    let end = Instant::now() + PATIENCE;
    while !has_keys {
        assert!(Instant::now() < end, "no keys within {PATIENCE:?}; a certificate: {is_known}");
        if let Ok((len, from)) = socket.recv_from(&mut buf) {
            peer = Some(from);
            server.handle_packet(&buf[..len]).unwrap();
        }
        server.handle_timeout(Instant::now()).unwrap();
        let (sent, certificate, keys) = outputs(&mut server);
        is_known |= certificate;
        has_keys |= keys;
        for data in sent {
            socket.send_to(&data, peer.expect("it speaks first")).unwrap();
        }
    }
    assert!(is_known, "its certificate comes before keys");
}

#[test]
fn a_signature_is_of_the_certificate_s_key_and_over_what_was_said() {
    let verifier = default_provider().signature_verification;
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let other = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let ecdsa = KeyPair::generate().unwrap();
    let certificate = |key: &KeyPair| CertificateParams::default().self_signed(key).unwrap().der().to_vec();
    let signature = rsa.sign(b"said").unwrap();
    let verify = |key: &KeyPair, said: &[u8], hash, kind| {
        verifier.verify_signature(&certificate(key), said, &signature, hash, kind)
    };
    let (sha, kind) = (HashAlgorithm::SHA256, SignatureAlgorithm::RSA);
    assert_eq!(verify(&rsa, b"said", sha, kind), Ok(()));
    assert!(verify(&rsa, b"not said", sha, kind).is_err());
    assert!(verify(&other, b"said", sha, kind).is_err());
    assert!(verify(&rsa, b"said", HashAlgorithm::SHA384, kind).is_err());
    for weak in [HashAlgorithm::MD5, HashAlgorithm::SHA1] {
        assert_eq!(verify(&rsa, b"said", weak, kind), Err(CryptoError::UnsupportedSignatureAlgorithm(kind)));
    }
    // Who says one and has the other.
    assert_eq!(verify(&ecdsa, b"said", sha, kind), Err(CryptoError::UnsupportedPublicKeyAlgorithm));
    assert_eq!(verify(&rsa, b"said", sha, SignatureAlgorithm::ECDSA), Err(CryptoError::UnsupportedPublicKeyAlgorithm));
}

/// The suite, what the server signs with, and which certificates it asks for: ECDSA first.
#[test]
fn a_client_with_an_ecdsa_certificate_gets_the_suite_and_signature_that_it_got() {
    let now = Instant::now();
    let (mut client, mut server) = (dtls(true, now), dtls(false, now));
    let (mut from_server, mut ended) = (Vec::new(), (false, false));
    for _ in 0..20 {
        let (sent, _, keys) = outputs(&mut client);
        ended.0 |= keys;
        sent.iter().for_each(|data| server.handle_packet(data).unwrap());
        let (sent, _, keys) = outputs(&mut server);
        ended.1 |= keys;
        sent.iter().for_each(|data| client.handle_packet(data).unwrap());
        from_server.extend(sent);
    }
    assert_eq!(ended, (true, true), "both have keys");

    let messages: Vec<_> = from_server.iter().flat_map(|datagram| messages(datagram)).collect();
    let body = |kind: u8| &messages.iter().find(|(of, _)| *of == kind).expect("it was sent").1[..];
    // ServerHello: version, random, and no session id before the suite (RFC 5246 §7.4.1.3).
    let hello = body(2);
    let at = 35 + usize::from(hello[34]);
    assert_eq!(hello[at..at + 2], [0xc0, 0x2b], "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
    // ServerKeyExchange: a named curve and a point, then hash and signature (RFC 8422 §5.4).
    let exchange = body(12);
    let at = 4 + usize::from(exchange[3]);
    assert_eq!(exchange[at..at + 2], [4, 3], "ecdsa_secp256r1_sha256");
    // CertificateRequest: types, then hashes and signatures (RFC 5246 §7.4.4).
    assert_eq!(body(13), [2, 64, 1, 0, 8, 4, 3, 5, 3, 4, 1, 5, 1, 0, 0], "ECDSA, then RSA");
}

/// What is asked of it is copied to who asks, into a buffer of so much.
#[test]
fn a_certificate_of_more_than_2000_bytes_is_refused() {
    for (names, is_taken) in [(1, true), (60, false)] {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = (0..names).map(|number| format!("{number:0>30}.example")).collect();
        let issued = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let certificate = DtlsCertificate { certificate: issued.der().to_vec(), private_key: key.serialize_der() };
        assert_eq!(certificate.certificate.len() <= 2_000, is_taken);
        for client_has_it in [true, false] {
            let now = Instant::now();
            let of = |is_client| match is_client == client_has_it {
                true => dtls_with(certificate.clone(), is_client, now),
                false => dtls(is_client, now),
            };
            let (mut client, mut server) = (of(true), of(false));
            let (mut are_taken, mut has_keys) = (true, false);
            for _ in 0..20 {
                let (sent, _, _) = outputs(&mut client);
                sent.iter().for_each(|data| are_taken &= server.handle_packet(data).is_ok());
                let (sent, _, keys) = outputs(&mut server);
                has_keys |= keys;
                sent.iter().for_each(|data| are_taken &= client.handle_packet(data).is_ok());
            }
            assert_eq!((are_taken, has_keys), (is_taken, is_taken), "the client has it: {client_has_it}");
        }
    }
}

/// Kind and body of each whole handshake message in the records of a datagram that are not sealed.
fn messages(datagram: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut rest, mut found) = (datagram, Vec::new());
    while let Some((header, behind)) = rest.split_at_checked(13) {
        let (record, behind) = behind.split_at(usize::from(u16::from_be_bytes([header[11], header[12]])));
        rest = behind;
        let (is_handshake, epoch) = (header[0] == 22, [header[3], header[4]]);
        let mut message = record;
        while is_handshake && epoch == [0, 0] && message.len() >= 12 {
            let length = usize::from(u16::from_be_bytes([message[2], message[3]]));
            let end = 12 + length.min(message.len() - 12);
            found.push((message[0], message[12..end].to_vec()));
            message = &message[end..];
        }
    }
    found
}
