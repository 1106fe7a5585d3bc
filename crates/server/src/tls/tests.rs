use std::fs;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// Writes a certificate for that name and its key, as `NAME.pem` and `NAME.key`.
fn write(folder: &Path, file: &str, name: &str) -> CertificateFiles {
    write_made(folder, file, rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name"))
}

fn write_made(folder: &Path, file: &str, wanted: rcgen::CertificateParams) -> CertificateFiles {
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = wanted.self_signed(&key).expect("a certificate");
    let files =
        CertificateFiles { certificate: folder.join(format!("{file}.pem")), key: folder.join(format!("{file}.key")) };
    fs::write(&files.certificate, made.pem()).expect("written");
    fs::write(&files.key, key.serialize_pem()).expect("written");
    files
}

/// The certificate that who asks for the name is shown.
fn shown(certificates: &Arc<Certificates>, name: &str) -> CertificateDer<'static> {
    let config = certificates.config(&["http/1.1"]).expect("a configuration");
    let mut roots = RootCertStore::empty();
    let all = certificates.current();
    all.iter().for_each(|pair| roots.add(pair.key.cert[0].clone()).expect("a certificate"));
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let mut server = tls::Handshake::new(config).expect("a server");
    let (mut hello, mut answer) = (Vec::new(), Vec::new());
    client.write_tls(&mut hello).expect("memory");
    server.handle(&hello, &mut answer).expect("a handshake");
    let mut answer = &answer[..];
    while !answer.is_empty() {
        client.read_tls(&mut answer).expect("memory");
        // A name that the certificate does not have is no secret to the client.
        let _ = client.process_new_packets();
    }
    client.peer_certificates().map_or_else(|| all[0].key.cert[0].clone(), |chain| chain[0].clone())
}

fn der(files: &CertificateFiles) -> CertificateDer<'static> {
    files::read(files, &provider()).expect("a certificate").key.cert[0].clone()
}

#[test]
fn who_asks_for_a_name_is_shown_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = [write(folder.path(), "one", "one.test"), write(folder.path(), "all", "*.two.test")];
    let certificates = Certificates::read(&all).expect("certificates");
    assert_eq!(shown(&certificates, "one.test"), der(&all[0]));
    assert_eq!(shown(&certificates, "any.two.test"), der(&all[1]));
}

#[test]
fn what_is_renewed_is_shown_and_what_is_no_good_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [write(folder.path(), "one", "one.test")];
    let certificates = Certificates::read(&files).expect("certificates");
    let first = der(&files[0]);

    // A file that is half written, one that belongs to another, none at all.
    let whole = fs::read_to_string(&files[0].certificate).expect("it is there");
    fs::write(&files[0].certificate, &whole[..100]).expect("written");
    certificates.look_again();
    let other = write(folder.path(), "other", "one.test");
    fs::copy(&other.certificate, &files[0].certificate).expect("copied");
    certificates.look_again();
    fs::remove_file(&files[0].key).expect("it is there");
    certificates.look_again();
    assert_eq!(shown(&certificates, "one.test"), first);

    fs::copy(&other.key, &files[0].key).expect("copied");
    certificates.look_again();
    assert_eq!(shown(&certificates, "one.test"), der(&other));
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one", "two"].map(|file| write(folder.path(), file, "one.test"));
    let mixed = CertificateFiles { key: two.key.clone(), ..one.clone() };
    let error = |files: &CertificateFiles| {
        let error = Certificates::read(std::slice::from_ref(files)).expect_err("it is no good");
        format!("{error:#}")
    };
    assert!(error(&mixed).contains("two.key"), "{}", error(&mixed));
    let swapped = CertificateFiles { certificate: one.key.clone(), key: one.key.clone() };
    assert!(error(&swapped).contains("one.key: there is none in it"), "{}", error(&swapped));
    let gone = CertificateFiles { certificate: folder.path().join("gone"), ..one };
    assert!(error(&gone).contains("gone"), "{}", error(&gone));
}

#[test]
fn a_certificate_of_our_own_has_the_names_that_it_is_asked_for() {
    let names = Some(vec!["localhost".into(), "127.0.0.1".into()]);
    let certificates = Certificates::new(Sources { self_signed: names, ..Sources::default() }).expect("a certificate");
    let key = certificates.current()[0].key.clone();
    for (name, fits) in [("localhost", true), ("127.0.0.1", true), ("elsewhere", false)] {
        assert_eq!(is_for(&key, &ServerName::try_from(name).expect("a name")), fits, "{name}");
    }
}

#[test]
fn a_certificate_that_is_out_of_date_is_told_of_and_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let mut wanted = rcgen::CertificateParams::new(vec!["one.test".to_owned()]).expect("a name");
    (wanted.not_before, wanted.not_after) = (at(1_000_000_000).into(), at(1_000_864_000).into());
    let files = write_made(folder.path(), "one", wanted);
    let certificates = Certificates::read(std::slice::from_ref(&files)).expect("it can be used");
    assert_eq!(certificates.expiries(), [(files.certificate.clone(), at(1_000_864_000))]);

    let file = files.certificate.display();
    for (now, expected) in [
        (999_999_990, Some(format!("certificate {file} is not good for another 10 s"))),
        (1_000_000_000, None),
        (1_000_863_999, None),
        (1_000_864_000, Some(format!("certificate {file} has been out of date for 0 s"))),
        (1_000_864_000 + 3_600, Some(format!("certificate {file} has been out of date for 60 minutes"))),
        (1_000_864_000 + 500_000, Some(format!("certificate {file} has been out of date for 5 days"))),
    ] {
        assert_eq!(certificates.faults(at(now)), Vec::from_iter(expected), "at {now}");
    }
}

#[test]
fn what_is_obtained_is_shown_from_then_on_and_a_directory_only_when_it_is_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = acme::Settings {
        names: vec!["one.test".to_owned()],
        directory: "https://acme.test/".to_owned(),
        contact: None,
        external_account: None,
        ca_file: None,
        folder: folder.path().join("kept"),
    };
    let keeper = Keeper::new(settings).expect("a folder");
    let file = keeper.files().remove(0);
    let self_signed = Some(vec!["one.test".to_owned()]);
    let certificates =
        Certificates::new(Sources { keeper: Some(keeper), self_signed, ..Sources::default() }).expect("one");
    let own = certificates.current()[0].key.cert[0].clone();
    assert_eq!(shown(&certificates, "one.test"), own);

    let made = write(folder.path(), "made", "one.test");
    let both = [&made.key, &made.certificate].map(|file| fs::read_to_string(file).expect("it is there")).concat();
    fs::write(&file, both).expect("written");
    certificates.look_again();
    assert_eq!(shown(&certificates, "one.test"), der(&made));
    assert_eq!(certificates.expiries().len(), 1);

    let config = certificates.config(&["http/1.1"]).expect("a configuration");
    for (offered, expected) in [(&["http/1.1"][..], true), (&[acme::ALPN], false), (&[acme::ALPN, "http/1.1"], true)] {
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        client.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("one.test").expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
        let mut server = tls::Handshake::new(config.clone()).expect("a server");
        let (mut hello, mut answer) = (Vec::new(), Vec::new());
        client.write_tls(&mut hello).expect("memory");
        assert_eq!(server.handle(&hello, &mut answer).is_ok(), expected, "{offered:?}");
    }
}
