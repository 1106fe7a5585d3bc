//! Requests to a directory: one connection each, HTTP/1.1 under TLS.
//!
//! Bounds: `TIME_MAX` for a request, `BODY_MAX` for an answer. A directory is asked a dozen things for a certificate.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes. A chain of certificates has some 5,000.
const BODY_MAX: usize = 256 * 1_024;

/// Who asks.
#[derive(Clone)]
pub(crate) struct Client {
    tls: TlsConnector,
}

impl Client {
    /// One that trusts the system's certificates, and those of the file.
    pub(crate) fn new(ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca_file {
            let what = || format!("certificate {}", path.display());
            let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let all = all.with_context(what)?;
            ensure!(!all.is_empty(), "{}: there is none in it", what());
            all.into_iter().try_for_each(|certificate| roots.add(certificate)).with_context(what)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Client { tls: Arc::new(config).into() })
    }

    async fn ask(self, mut request: Request<BodyWrapper<Bytes>>) -> anyhow::Result<Response<Full<Bytes>>> {
        let uri = request.uri().clone();
        ensure!(uri.scheme_str() == Some("https"), "{uri} is no https URL");
        let authority = uri.authority().context("a URL without a host")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let stream = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(443))).await;
        let stream = stream.with_context(|| format!("connecting to {authority}"))?;
        let stream = self.tls.connect(ServerName::try_from(host)?, stream).await;
        let stream = stream.with_context(|| format!("TLS with {authority}"))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str())?);
        *request.uri_mut() = Uri::try_from(uri.path_and_query().map_or("/", |path| path.as_str()))?;
        let answer = async move {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, BODY_MAX).collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes();
            Ok(Response::from_parts(head, Full::new(body)))
        };
        // The connection ends when nobody wants to send any more.
        let (answer, _) = tokio::join!(answer, connection);
        answer
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let asked = self.clone().ask(request);
        Box::pin(async move {
            let answer = match timeout(TIME_MAX, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(anyhow::anyhow!("the directory takes longer than {TIME_MAX:?}")),
            };
            answer.map(BytesResponse::from).map_err(|error| Error::Other(format!("{error:#}").into()))
        })
    }
}
