//! What the fuzz targets of the server's own readers do with their bytes: the configuration and bearer tokens. Shared by
//! the fuzz targets and by `crates/server/tests`, which replays the corpora.

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use server::auth::Auth;
use server::config::{self, Config, Secret};

/// The text as a file, and each of its lines as an override and as a variable.
pub fn config(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let lines: Vec<String> = text.lines().map(Into::into).collect();
    let variables = lines.iter().filter_map(|line| line.split_once('=')).map(|(key, value)| {
        (format!("MILLRACE_{}", key.trim().replace('.', "_").to_ascii_uppercase()), value.trim().to_owned())
    });
    for config in [Config::load(None, [], &lines), Config::load(None, variables, &[])].into_iter().flatten() {
        assert_prints_what_it_read(&config);
    }
    let mut config = Config::default();
    match config.apply_toml("fuzz.toml", text) {
        Ok(()) => assert_prints_what_it_read(&config),
        Err(error) => assert!(error.to_string().starts_with("fuzz.toml:")),
    }
    let _ = Auth::new(&config.auth);
}

fn assert_prints_what_it_read(config: &Config) {
    let mut config = config.clone();
    // What is secret is not printed.
    config.auth.hs256_secret = None;
    config.rtc.ice_servers.iter_mut().for_each(|server| server.login = None);
    config.rtc.ice_servers.retain(|server| server.url.starts_with("stun"));
    let printed = config.to_string();
    let mut again = Config::default();
    again.apply_toml("printed.toml", &printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(again.to_string(), printed);
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAsqsE5Ddk/pWwRKmG8s5JhRSE6nIE1J/BM6tD2md3KE0=\n-----END PUBLIC KEY-----\n";

/// The bytes as they are for an `Authorization` header; then their first line for a token's header and the rest for its
/// claims, rightly signed.
pub fn token(data: &[u8]) {
    static AUTH: LazyLock<Auth> = LazyLock::new(|| {
        let config = config::Auth {
            hs256_secret: Some(Secret(SECRET.to_owned())),
            eddsa_public_key: Some(PUBLIC_KEY.to_owned()),
            issuer: Some("millrace".to_owned()),
            ..config::Auth::default()
        };
        Auth::new(&config).expect("good keys")
    });
    static KEY: LazyLock<hmac::Key> = LazyLock::new(|| hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()));

    assert!(AUTH.rights(Some(data)).is_err(), "nobody can guess a signature");
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (header, claims) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&KEY, signed.as_bytes()));
    let Ok(rights) = AUTH.rights(Some(format!("Bearer {signed}.{signature}").as_bytes())) else { return };
    for stream in ["", "studio", "*"] {
        assert!(rights.may_watch(stream) || !rights.may_publish(stream), "who may publish may watch");
    }
    // Claims of others may be anything between quotes.
    let text = String::from_utf8_lossy(claims);
    assert!(text.contains("exp") || text.contains("\\u"), "a token that never ends: {text}");
    assert!(AUTH.rights(Some(format!("Bearer {signed}.").as_bytes())).is_err(), "a signature is needed");
}
