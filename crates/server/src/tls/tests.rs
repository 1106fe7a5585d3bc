use std::fs;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// Writes a certificate for that name and its key, as `NAME.pem` and `NAME.key`.
fn write(folder: &Path, file: &str, name: &str) -> CertificateFiles {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
    let files =
        CertificateFiles { certificate: folder.join(format!("{file}.pem")), key: folder.join(format!("{file}.key")) };
    fs::write(&files.certificate, made.cert.pem()).expect("written");
    fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
    files
}

/// The certificate that who asks for the name is shown.
fn shown(certificates: &Arc<Certificates>, name: &str) -> CertificateDer<'static> {
    let config = certificates.config(&["http/1.1"]).expect("a configuration");
    let mut roots = RootCertStore::empty();
    let all = certificates.current.read().expect("a lock").clone();
    all.iter().for_each(|key| roots.add(key.key.cert[0].clone()).expect("a certificate"));
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
    let certificates = Certificates::self_signed(vec!["localhost".into(), "127.0.0.1".into()]).expect("a certificate");
    let key = certificates.current.read().expect("a lock")[0].clone();
    for (name, fits) in [("localhost", true), ("127.0.0.1", true), ("elsewhere", false)] {
        assert_eq!(is_for(&key.key, &ServerName::try_from(name).expect("a name")), fits, "{name}");
    }
}
