//! `millrace token`: signs a token with the key that the server checks it with.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use server::auth::{Claims, Rights, SigningKey, mint};

use crate::args;

pub fn print(args: &args::Token) -> anyhow::Result<bool> {
    ensure!(
        args.admin || !args.publish.is_empty() || !args.watch.is_empty(),
        "such a token would allow nothing: give --publish NAME, --watch NAME or --admin"
    );
    let config = crate::load(&args.settings)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
    let claims = Claims {
        sub: args.subject.clone(),
        exp: (now + args.expires).as_secs(),
        nbf: None,
        iss: config.auth.issuer.clone(),
        aud: config.auth.audience.clone().map(Into::into),
        millrace: Rights { publish: args.publish.clone(), watch: args.watch.clone(), admin: args.admin },
    };
    let token = match (&args.key, &config.auth.hs256_secret) {
        (Some(path), _) => {
            let name = path.display();
            let pem = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
            mint(&claims, SigningKey::EdDsaPem(&pem)).with_context(|| name.to_string())?
        }
        (None, Some(secret)) => mint(&claims, SigningKey::Hs256(&secret.0))?,
        (None, None) => anyhow::bail!("no key to sign with: set auth.hs256_secret, or give --key FILE"),
    };
    println!("{token}");
    Ok(true)
}
