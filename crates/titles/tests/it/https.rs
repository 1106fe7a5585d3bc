//! An origin with https: only with a certificate that is trusted.

use std::sync::Arc;

use crate::common::{Fault, Item, Origin, item, play, settings};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use titles::{Error, HttpError, Library, Settings, Url};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// An https origin, its URL, and a file with its certificate.
async fn start() -> (Origin, Url, tempfile::NamedTempFile) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), cert.pem()).unwrap();
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.into()], PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into())
        .unwrap();
    let origin = Origin::start_with(Some(TlsAcceptor::from(Arc::new(config)))).await;
    let url = format!("https://localhost:{}/", origin.addr.port()).parse().unwrap();
    (origin, url, file)
}

#[tokio::test]
async fn a_title_is_played_from_an_origin_whose_certificate_is_trusted() {
    let (origin, url, file) = start().await;
    let item = item(1);
    origin.put("/a.ts", item.clone());
    let ca_file = Some(file.path().to_owned());
    let library = Library::new(Settings { ca_file, origins: vec![url], ..settings(&[]) }).unwrap();

    let title = library.open("a.ts").await.unwrap();
    play(&library, &title, &item.bytes).await;

    assert!(origin.connections() <= 3);
}

#[tokio::test]
async fn an_origin_whose_certificate_is_not_trusted_is_not_asked() {
    let (origin, url, _file) = start().await;
    origin.put("/a.ts", item(1));
    let library = Library::new(Settings { origins: vec![url], ..settings(&[]) }).unwrap();

    let result = library.open("a.ts").await;

    assert!(matches!(result, Err(Error::Http { error: HttpError::Connect(_), .. })), "{result:?}");
    assert!(origin.asked().is_empty());
}

#[tokio::test]
async fn no_redirect_leads_from_https_to_http() {
    let (origin, url, file) = start().await;
    let plain = Origin::start().await;
    plain.put("/a.ts", item(1));
    let there = plain.url().join("a.ts").unwrap();
    origin.put("/a.ts", Item { always: Some(Fault::Redirect(there.into())), ..item(1) });
    let ca_file = Some(file.path().to_owned());
    let library = Library::new(Settings { ca_file, origins: vec![url], ..settings(&[]) }).unwrap();

    let result = library.open("a.ts").await;

    assert!(matches!(result, Err(Error::Http { error: HttpError::BadRedirect(_), .. })), "{result:?}");
    assert!(plain.asked().is_empty());
}
