//! `millrace relay`: a TURN server and nothing else, from what was typed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::ensure;
use clap::Args;
use server::auth::{Auth, KeyError};
use server::config::Config;

use crate::args::Settings;

#[derive(Args)]
pub struct Relay {
    #[command(flatten)]
    pub settings: Settings,
    /// Who may use it, as often as there are users: a name and a password.
    #[arg(long = "user", value_name = "NAME:PASSWORD")]
    users: Vec<String>,
    /// Shared secret for time-limited credentials, as often as there are secrets.
    #[arg(long = "secret", value_name = "TEXT")]
    secrets: Vec<String>,
    /// Address and UDP port that clients send to; several where it is given several times [default: 0.0.0.0:3478]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// Address for allocations; behind NAT with what peers reach it by: 10.0.0.5=203.0.113.7.
    #[arg(long = "address", value_name = "ADDR[=EXTERNAL]")]
    addresses: Vec<String>,
    /// Peers that may be reached though they are refused otherwise, such as 10.1.0.0/16.
    #[arg(long = "allow", value_name = "NETWORK[:PORTS]")]
    allowed_peers: Vec<String>,
    /// What names and passwords belong to.
    #[arg(long)]
    realm: Option<String>,
    /// Where the API and the metrics are; port 0 is any, and is shown. Elsewhere than on loopback it needs a key for tokens
    /// (auth.hs256_secret) [default: 127.0.0.1:0, or http.listen of the file]
    #[arg(long, value_name = "ADDR:PORT")]
    api: Option<SocketAddr>,
}

pub const EXAMPLES: &str = "\
Examples:
  millrace relay --user alice:open-sesame
  millrace relay --user alice:open-sesame --address 10.0.0.5=203.0.113.7     behind NAT
  millrace relay --secret north-wind-and-sun --listen 192.0.2.1:3478 --listen [2001:db8::1]:3478
  millrace relay --config millrace.toml
  MILLRACE_RELAY_SECRETS=$(cat secret) MILLRACE_AUTH_HS256_SECRET=$(cat key) millrace relay --api 192.0.2.1:8080

Other users of this machine see what is typed; the environment and a file keep it from them. A file has more, too: quotas,
bandwidth, TCP and TLS; see `millrace check --reference`. Whatever it says of rooms and pump, here is a relay alone.";

impl Relay {
    /// What it means, in settings.
    ///
    /// # Errors
    /// What cannot be, or would let everybody in.
    pub fn config(&self, environment: impl IntoIterator<Item = (String, String)>) -> anyhow::Result<Config> {
        let mut config = Config::load(self.settings.config.as_deref(), environment, &self.settings.set)?;
        for (flag, setting, values) in [
            ("--user", "relay.users", &self.users),
            ("--secret", "relay.secrets", &self.secrets),
            ("--address", "relay.addresses", &self.addresses),
            ("--allow", "relay.allowed_peers", &self.allowed_peers),
        ] {
            if !values.is_empty() {
                config.apply_flags(flag, setting, values)?;
            }
        }
        if let Some(realm) = &self.realm {
            config.apply_flag("--realm", "relay.realm", realm)?;
        }
        let relay = &mut config.relay;
        if !self.listen.is_empty() {
            relay.listen.clone_from(&self.listen);
        } else if relay.listen.is_empty() {
            relay.listen.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 3_478)));
        }
        let has_users = !relay.users.is_empty() || !relay.secrets.is_empty();
        ensure!(
            has_users || relay.users_file.is_some() || relay.redis.is_some(),
            "nobody could use the relay: give --user NAME:PASSWORD or --secret TEXT, or set one of relay.users, relay.secrets, \
             relay.users_file and relay.redis"
        );
        if let Some(api) = self.api {
            config.http.listen = api;
        } else if self.settings.config.is_none() && config.http.listen == Config::default().http.listen {
            config.http.listen.set_port(0);
        }
        let_in(&mut config)?;
        // There are rooms and a pump, without an address.
        config.workers.bind.clear();
        config.pump.bind.clear();
        (config.pump.rtsp_listen, config.pump.live) = (None, Vec::new());
        Ok(config)
    }
}

/// Whoever is on this machine may use the API without a token, where there are no keys for any; nobody else may.
fn let_in(config: &mut Config) -> anyhow::Result<()> {
    if !matches!(Auth::new(&config.auth), Err(KeyError::NoKey)) {
        return Ok(());
    }
    let elsewhere = [Some(config.http.listen), config.http.tls_listen].into_iter().flatten();
    let elsewhere: Vec<SocketAddr> = elsewhere.filter(|addr| !is_loopback(addr.ip())).collect();
    if let [addr, ..] = elsewhere[..] {
        anyhow::bail!(
            "the API at {addr} is not on loopback alone, and would give credentials and the administration of the relay to \
             whoever reaches it: set auth.hs256_secret (MILLRACE_AUTH_HS256_SECRET=$(openssl rand -base64 32)) or \
             auth.eddsa_public_key, and ask with a token of `millrace token --admin`; or leave it on loopback"
        );
    }
    config.auth.dev = true;
    // Pages that this machine's browser shows are not this machine's.
    config.http.cors_origins.clear();
    Ok(())
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        relay: Relay,
    }

    fn config_in(environment: &[(&str, &str)], words: &[&str]) -> anyhow::Result<Config> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Cli::try_parse_from(std::iter::once(&"relay").chain(words))?.relay.config(environment)
    }

    fn config(words: &[&str]) -> anyhow::Result<Config> {
        config_in(&[], words)
    }

    #[test]
    fn what_is_typed_becomes_settings() {
        let typed =
            ["--user", "alice:open:sesame", "--user", "bob:1,2", "--address", "10.0.0.5=203.0.113.7", "--realm", "r"];
        let config = config(&typed).expect("it can be");
        let names: Vec<&str> = config.relay.users.iter().map(|user| user.name.as_str()).collect();
        assert_eq!((names, config.relay.realm.as_str()), (vec!["alice", "bob"], "r"));
        assert_eq!(config.relay.listen, ["0.0.0.0:3478".parse().expect("an address")]);
        assert!(config.auth.dev && config.http.listen.ip().is_loopback() && config.http.listen.port() == 0);
        assert!(config.http.cors_origins.is_empty());
        server::relay::setup::check(&config).expect("it can be served");
    }

    #[test]
    fn each_secret_is_one_whatever_is_in_it() {
        let (commas, quotes) = ("north wind, sun, and rain", "[\"\"\"north wind\"\"\"]");
        let config = config(&["--secret", commas, "--secret", quotes]).expect("it can be");
        assert_eq!(config.relay.secrets.iter().map(|secret| secret.0.as_str()).collect::<Vec<_>>(), [commas, quotes]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let wrong = |words: &[&str]| config(words).expect_err("wrong").to_string();
        assert!(wrong(&[]).contains("--user"));
        assert!(wrong(&["--user", "alice"]).starts_with("--user: relay.users[0]: got something else, which is not"));
        let allowed = wrong(&["--user", "a:b", "--allow", "10.0.0.0/8", "--allow", "10.0.0.1/8"]);
        assert!(allowed.starts_with("--allow: relay.allowed_peers[1]: got \"10.0.0.1/8\"; allowed: "), "{allowed}");
    }

    #[test]
    fn off_loopback_the_api_needs_a_key() {
        let user = ["--user", "alice:open-sesame", "--api"];
        let at =
            |environment: &[(&str, &str)], api: &'static str| config_in(environment, &[&user[..], &[api]].concat());
        for api in ["127.0.0.1:8080", "127.9.9.9:0", "[::1]:8080", "[::ffff:127.0.0.1]:8080"] {
            assert!(at(&[], api).expect(api).auth.dev, "{api}");
        }
        let key = ("MILLRACE_AUTH_HS256_SECRET", "0123456789abcdef0123456789abcdef");
        for api in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:8080"] {
            let error = at(&[], api).expect_err(api).to_string();
            assert!(error.contains(api) && error.contains("MILLRACE_AUTH_HS256_SECRET"), "{error}");
            assert!(!at(&[key], api).expect(api).auth.dev, "{api}");
        }
        assert!(!at(&[key], "127.0.0.1:0").expect("a key").auth.dev, "a key counts on loopback, too");
        let tls = ["--user", "a:b", "--set", "http.tls_listen=0.0.0.0:443"];
        assert!(config(&tls).expect_err("no key").to_string().contains("0.0.0.0:443"));
    }

    #[test]
    fn a_file_and_the_environment_count_and_flags_go_before_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("millrace.toml");
        let text = "[http]\nlisten = \"127.0.0.1:8123\"\n[relay]\nlisten = [\"127.0.0.1:3479\"]\nrealm = \"file\"\n";
        std::fs::write(&file, text).expect("written");
        let words = ["--config", file.to_str().expect("UTF-8"), "--realm", "flag"];
        let config = config_in(&[("MILLRACE_RELAY_SECRETS", "north-wind-and-sun")], &words).expect("it can be");
        assert_eq!((config.relay.realm.as_str(), config.http.listen.port()), ("flag", 8_123));
        assert_eq!(config.relay.listen, ["127.0.0.1:3479".parse().expect("an address")]);
        assert!(config.relay.secrets.len() == 1 && config.workers.bind.is_empty() && config.pump.bind.is_empty());
    }
}
