//! `millrace token`: signs a token with the key that the server checks it with.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use server::auth::{Claims, Rights, SigningKey, mint};
use server::livekit;

use crate::args;

pub fn print(args: &args::Token) -> anyhow::Result<bool> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
    println!("{}", token(args, now)?);
    Ok(true)
}

/// It is `now` since 1970.
fn token(args: &args::Token, now: Duration) -> anyhow::Result<String> {
    let exp = (now + args.expires).as_secs();
    if let (Some(room), Some(identity)) = (&args.room, &args.identity) {
        let config = crate::load(&args.settings)?;
        let claims = livekit::Claims::to_join(room, identity, args.name.as_deref().unwrap_or_default(), exp);
        return livekit::sign(&config, claims).context("no key to sign with: set livekit.keys");
    }
    ensure!(
        args.admin || !args.publish.is_empty() || !args.watch.is_empty(),
        "such a token would allow nothing: give --publish NAME, --watch NAME, --admin, or --room NAME and --identity WHO"
    );
    let config = crate::load(&args.settings)?;
    let claims = Claims {
        sub: args.subject.clone(),
        exp,
        nbf: None,
        iss: config.auth.issuer.clone(),
        aud: config.auth.audience.clone().map(Into::into),
        millrace: Rights { publish: args.publish.clone(), watch: args.watch.clone(), admin: args.admin },
    };
    Ok(match (&args.key, &config.auth.hs256_secret) {
        (Some(path), _) => {
            let name = path.display();
            let pem = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
            mint(&claims, SigningKey::EdDsaPem(&pem)).with_context(|| name.to_string())?
        }
        (None, Some(secret)) => mint(&claims, SigningKey::Hs256(&secret.0))?,
        (None, None) => anyhow::bail!("no key to sign with: set auth.hs256_secret, or give --key FILE"),
    })
}
