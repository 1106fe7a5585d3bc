//! One certificate: the order, the proof that the name is ours, the certificate itself (RFC 8555 §7.4, §7.5).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewOrder, Order,
    OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::Challenges;

/// How a directory is asked whether it is done: after half a second, then less and less often, or when it says.
const PATIENCE: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(500)).backoff(1.5).timeout(Duration::from_secs(120));

/// The certificate has been replaced already, as far as the directory knows (RFC 9773 §7.4).
const ALREADY_REPLACED: &str = "urn:ietf:params:acme:error:alreadyReplaced";

/// Obtains a certificate. Returned is PEM: the key, the certificate, and those above it.
pub(crate) async fn obtain(
    account: &Account,
    name: &str,
    replaced: Option<CertificateIdentifier<'static>>,
    challenges: &Arc<Challenges>,
) -> anyhow::Result<String> {
    let mut order = begin(account, name, replaced).await.context("ordering")?;
    prove(&mut order, challenges).await.context("proving that the name is ours")?;
    let mut wanted = CertificateParams::new(vec![name.to_owned()])?;
    wanted.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate()?;
    order.finalize_csr(wanted.serialize_request(&key)?.der()).await.context("asking for it")?;
    let chain = order.poll_certificate(&PATIENCE).await.context("waiting for it")?;
    Ok(format!("{}{chain}", key.serialize_pem()))
}

async fn begin(
    account: &Account,
    name: &str,
    replaced: Option<CertificateIdentifier<'static>>,
) -> Result<Order, Error> {
    let names = [Identifier::Dns(name.to_owned())];
    let Some(replaced) = replaced else { return account.new_order(&NewOrder::new(&names)).await };
    match account.new_order(&NewOrder::new(&names).replaces(replaced)).await {
        // The directory may know nothing of replacing.
        Err(Error::Unsupported(_)) => account.new_order(&NewOrder::new(&names)).await,
        Err(Error::Api(problem)) if problem.r#type.as_deref() == Some(ALREADY_REPLACED) => {
            account.new_order(&NewOrder::new(&names)).await
        }
        other => other,
    }
}

async fn prove(order: &mut Order, challenges: &Arc<Challenges>) -> anyhow::Result<()> {
    // There until the directory has come.
    let mut shown = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            // It has been proved not long ago.
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => bail!("the authorization is {status:?} already"),
        }
        let name = authorization.identifier().to_string();
        let challenge = authorization.challenge(ChallengeType::TlsAlpn01);
        let mut challenge = challenge.context("the directory does not offer tls-alpn-01, and nothing else is known")?;
        shown.push(challenges.show(&name, challenge.key_authorization().digest().as_ref())?);
        challenge.set_ready().await?;
    }
    match order.poll_ready(&PATIENCE).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(status) => {
            bail!("{}", reason(order).await.map_or(format!("the order is {status:?}"), |why| why.to_string()))
        }
        // What the order has says less than what the challenge has.
        Err(Error::Api(problem)) => bail!("{}", reason(order).await.unwrap_or(problem)),
        Err(error) => Err(error.into()),
    }
}

/// Why the directory does not believe that the name is ours.
async fn reason(order: &mut Order) -> Option<Problem> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.clone()) {
            return Some(problem);
        }
    }
    None
}
