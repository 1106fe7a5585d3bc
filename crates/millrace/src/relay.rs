//! `millrace relay`: a TURN server and nothing else, from what was typed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use server::config::Config;

#[derive(Args)]
pub struct Relay {
    /// Who may use it, as often as there are users: a name and a password.
    #[arg(long = "user", value_name = "NAME:PASSWORD", required_unless_present = "secrets")]
    users: Vec<String>,
    /// Shared secret for time-limited credentials.
    #[arg(long = "secret", value_name = "TEXT")]
    secrets: Vec<String>,
    /// Address and UDP port that clients send to; several where it is given several times.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:3478")]
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
    /// Where the API and the metrics are, for whoever reaches it. Port 0 is any, and is shown.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    api: SocketAddr,
}

pub const EXAMPLES: &str = "\
Examples:
  millrace relay --user alice:open-sesame
  millrace relay --user alice:open-sesame --address 10.0.0.5=203.0.113.7     behind NAT
  millrace relay --secret north-wind-and-sun --listen 192.0.2.1:3478 --listen [2001:db8::1]:3478

A file has more: users, quotas, bandwidth, TLS; see `millrace check --reference` and `millrace serve --config FILE`.";

impl Relay {
    /// What it means, in settings.
    pub fn config(&self) -> anyhow::Result<Config> {
        let lists = [
            ("users", &self.users),
            ("secrets", &self.secrets),
            ("addresses", &self.addresses),
            ("allowed_peers", &self.allowed_peers),
        ];
        let given = lists.iter().filter(|(_, values)| !values.is_empty());
        let mut settings: Vec<String> =
            given.map(|(key, values)| format!("relay.{key}={}", values.join(","))).collect();
        settings.extend(self.realm.as_ref().map(|realm| format!("relay.realm={realm}")));
        let mut config = Config::load(None, [], &settings)?;
        config.relay.listen.clone_from(&self.listen);
        config.http.listen = self.api;
        // Who reaches the API is on this machine, or where it was told to be.
        config.auth.dev = true;
        // There are rooms, but nobody outside is to find them.
        config.workers.bind = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        config.workers.udp_port = 0;
        config.workers.tcp = false;
        Ok(config)
    }
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

    fn config(words: &[&str]) -> anyhow::Result<Config> {
        Cli::try_parse_from(std::iter::once(&"relay").chain(words))?.relay.config()
    }

    #[test]
    fn what_is_typed_becomes_settings() {
        let typed =
            ["--user", "alice:open:sesame", "--user", "bob:1", "--address", "10.0.0.5=203.0.113.7", "--realm", "r"];
        let config = config(&typed).expect("it can be");
        let names: Vec<&str> = config.relay.users.iter().map(|user| user.name.as_str()).collect();
        assert_eq!((names, config.relay.realm.as_str()), (vec!["alice", "bob"], "r"));
        assert_eq!(config.relay.listen, ["0.0.0.0:3478".parse().expect("an address")]);
        assert!(config.auth.dev && config.http.listen.ip().is_loopback());
        server::relay::setup::check(&config).expect("it can be served");
    }

    #[test]
    fn what_cannot_be_is_named() {
        let wrong = |words: &[&str]| config(words).expect_err("wrong").to_string();
        assert!(wrong(&[]).contains("--user"));
        assert!(wrong(&["--user", "alice"]).contains("relay.users: got \"alice\""));
        assert!(wrong(&["--user", "a:b", "--allow", "10.0.0.1/8"]).contains("relay.allowed_peers"));
    }
}
