//! Records that a kernel seals: one that does what Linux does (net/tls/tls_sw.c) with what it is given.

use ::aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use wire::{Handover, KernelKey, KernelStep, TlsKey, TlsVersion};

use super::*;

struct Kernel {
    key: KernelKey,
    sealed: Vec<u8>,
    nonces: Vec<[u8; 12]>,
}

impl Kernel {
    /// Takes over from a server.
    fn new(server: &mut Established, takes_keys: bool) -> Self {
        let cipher = handover(server);
        let kernel = Kernel { key: cipher.sending_key(), sealed: Vec::new(), nonces: Vec::new() };
        cipher.take_over(takes_keys);
        kernel
    }

    fn seal(&mut self, kind: u8, plain: &[u8]) {
        let KernelKey { version, key, iv, seq } = &mut self.key;
        let (algorithm, secret) = match &key {
            TlsKey::Aes128Gcm(secret) => (&AES_128_GCM, &secret[..]),
            TlsKey::Aes256Gcm(secret) => (&AES_256_GCM, &secret[..]),
            TlsKey::ChaCha20Poly1305(secret) => (&CHACHA20_POLY1305, &secret[..]),
        };
        let is_tls13 = *version == TlsVersion::Tls13;
        let has_explicit = !is_tls13 && !matches!(key, TlsKey::ChaCha20Poly1305(_));
        let mut nonce = *iv;
        if has_explicit {
            let next = u64::from_be_bytes(iv[4..].try_into().expect("eight bytes")).wrapping_add(1);
            iv[4..].copy_from_slice(&next.to_be_bytes());
        } else {
            nonce[4..].iter_mut().zip(seq.to_be_bytes()).for_each(|(byte, seq)| *byte ^= seq);
        }
        self.nonces.push(nonce);
        let mut body = plain.to_vec();
        body.extend(is_tls13.then_some(kind));
        let outer = if is_tls13 { 23 } else { kind };
        let len = (body.len() + 16 + if has_explicit { 8 } else { 0 }) as u16;
        let header = [&[outer, 3, 3][..], &len.to_be_bytes()].concat();
        let numbered = [&seq.to_be_bytes()[..], &[kind, 3, 3], &(plain.len() as u16).to_be_bytes()].concat();
        let additional = if is_tls13 { header.clone() } else { numbered };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, secret).expect("its length"));
        let nonce = Nonce::assume_unique_for_key(nonce);
        let explicit = if has_explicit { nonce.as_ref()[4..].to_vec() } else { Vec::new() };
        key.seal_in_place_append_tag(nonce, Aad::from(additional), &mut body).expect("sealed");
        self.sealed.extend([header, explicit, body].concat());
        *seq += 1;
    }

    /// Sends data, and before it what the cipher asks for.
    fn send(&mut self, server: &mut Established, plain: &[u8]) -> Result<(), CipherError> {
        self.do_steps(server)?;
        self.seal(23, plain);
        handover(server).count_sealed(plain.len());
        Ok(())
    }

    fn do_steps(&mut self, server: &mut Established) -> Result<(), CipherError> {
        while let Some(step) = handover(server).poll_step()? {
            match step {
                KernelStep::Record { kind, content } => self.seal(kind, &content),
                KernelStep::Key(key) => self.key = key,
            }
        }
        Ok(())
    }

    fn sealed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sealed)
    }
}

fn handover(server: &mut Established) -> &mut dyn Handover {
    server.records.handover().expect("it can")
}

#[test]
fn what_the_kernel_seals_goes_on_where_the_server_ends_with_every_suite() {
    for suite in suites() {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        let mut records = Vec::new();
        (0..3).for_each(|_| server.records.seal(b"here, ", &mut records).expect("records"));
        let mut kernel = Kernel::new(&mut server, false);
        (0..3).for_each(|_| kernel.send(&mut server, b"there, ").expect("a key"));
        handover(&mut server).tell_end();
        kernel.do_steps(&mut server).expect("the end");
        kernel.do_steps(&mut server).expect("nothing more");
        records.extend(kernel.sealed());
        let got = receive(&mut client, &records).expect("records");
        assert_eq!(got, b"here, here, here, there, there, there, ", "{suite:?}");
        assert!(client.process_new_packets().expect("no more").peer_has_closed(), "{suite:?}");

        client.writer().write_all(b"question").expect("memory");
        let records = sent(&mut client);
        assert_eq!(open(&mut server, &records, 7).expect("what comes is opened here"), b"question");
    }
}

/// AES-GCM in TLS 1.2 says its nonces itself, and counts them otherwise than we do: what the handshake and the server have
/// used is never used again.
#[test]
fn no_nonce_of_the_server_is_one_of_the_kernel() {
    let explicit = |record: &[u8]| <[u8; 8]>::try_from(&record[5..13]).expect("eight bytes");
    for suite in suites().filter(|suite| format!("{suite:?}").starts_with("TLS_ECDHE_ECDSA_WITH_AES")) {
        for _ in 0..20 {
            let (_, mut server) = World::new(suite).connect(100_000, b"");
            let mut used = Vec::new();
            let upper = |nonce: [u8; 8]| u32::from_be_bytes([nonce[0], nonce[1], nonce[2], nonce[3]]);
            for _ in 0..300 {
                let mut record = Vec::new();
                server.records.seal(b"data", &mut record).expect("records");
                used.push(explicit(&record));
            }
            assert!(used.iter().all(|nonce| upper(*nonce) == upper(used[0])), "the handshake's too");
            let mut kernel = Kernel::new(&mut server, false);
            (0..300).for_each(|_| kernel.send(&mut server, b"data").expect("a key"));
            for nonce in &kernel.nonces {
                let nonce = nonce[4..].try_into().expect("eight bytes");
                assert_eq!((upper(nonce) ^ upper(used[0])) >> 30, 2, "{suite:?}: it counts in the other half");
            }
        }
    }
}

#[test]
fn a_new_key_goes_to_the_kernel_behind_the_news_of_it() {
    for suite in suites().filter(|suite| suite.tls13().is_some()) {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        let mut kernel = Kernel::new(&mut server, true);
        for round in 0..5 {
            client.refresh_traffic_keys().expect("a key");
            let records = sent(&mut client);
            open(&mut server, &records, 7).expect("records");
            if round % 2 == 0 {
                server.records.tx().allow(2);
            }
            (0..3).for_each(|_| kernel.send(&mut server, b"answer").expect("a key"));
            let records = kernel.sealed();
            assert_eq!(receive(&mut client, &records).expect("records"), b"answeransweranswer", "{suite:?} {round}");
        }
        handover(&mut server).tell_end();
        kernel.do_steps(&mut server).expect("the end");
        receive(&mut client, &kernel.sealed()).expect("records");
        assert!(client.process_new_packets().expect("no more").peer_has_closed(), "{suite:?}");
    }
}

#[test]
fn a_kernel_that_takes_no_new_key_can_still_tell_the_end() {
    for suite in suites() {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        let mut kernel = Kernel::new(&mut server, false);
        kernel.send(&mut server, b"last").expect("a key");
        if suite.tls13().is_some() {
            client.refresh_traffic_keys().expect("a key");
            let records = sent(&mut client);
            open(&mut server, &records, 7).expect("records");
        } else {
            server.records.tx().allow(1);
        }
        assert_eq!(kernel.send(&mut server, b"too late"), Err(CipherError), "{suite:?}");
        assert_eq!(kernel.send(&mut server, b"too late"), Err(CipherError), "{suite:?}");
        handover(&mut server).tell_end();
        kernel.do_steps(&mut server).expect("the end");
        assert_eq!(receive(&mut client, &kernel.sealed()).expect("records"), b"last");
        assert!(client.process_new_packets().expect("no more").peer_has_closed(), "{suite:?}");
    }
}

#[test]
fn what_is_wrong_with_what_came_is_told_by_the_kernel() {
    for suite in suites() {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        let mut kernel = Kernel::new(&mut server, false);
        client.writer().write_all(&text(100)).expect("memory");
        let mut records = sent(&mut client);
        records[30] ^= 1;
        assert_eq!(open(&mut server, &records, 100_000), Err(CipherError));
        kernel.do_steps(&mut server).expect("an alert");
        let error = receive(&mut client, &kernel.sealed()).expect_err("it is told").to_string();
        assert!(error.contains("BadRecordMac"), "{suite:?}: {error}");
        assert!(handover(&mut server).poll_step().expect("nothing").is_none());
    }
}

#[test]
fn what_is_owed_before_is_told_by_the_server() {
    for suite in suites().filter(|suite| suite.tls13().is_some()) {
        let (mut client, mut server) = World::new(suite).connect(100_000, b"");
        client.refresh_traffic_keys().expect("a key");
        let records = sent(&mut client);
        open(&mut server, &records, 7).expect("records");
        let mut records = Vec::new();
        handover(&mut server).settle(&mut records).expect("a key");
        let owed = records.len();
        handover(&mut server).settle(&mut records).expect("a key");
        assert!(owed > 0 && records.len() == owed, "once");
        let mut kernel = Kernel::new(&mut server, false);
        kernel.send(&mut server, b"data").expect("a key");
        records.extend(kernel.sealed());
        assert_eq!(receive(&mut client, &records).expect("records"), b"data");
    }
}

#[test]
fn a_key_is_not_shown_to_people() {
    let key = KernelKey { version: TlsVersion::Tls13, key: TlsKey::Aes128Gcm([0xab; 16]), iv: [0xcd; 12], seq: 7 };
    assert_eq!(format!("{key:?}"), "KernelKey { version: Tls13, key: AES-128-GCM, .. }");
}
