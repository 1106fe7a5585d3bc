//! `millrace sign`: signs the address of a stream with the key that the server checks it with.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use clap::Args;
use server::reflect::sign::{UrlKeys, sign_url};

use crate::args::{Settings, duration};

#[derive(Args)]
pub struct Sign {
    #[command(flatten)]
    settings: Settings,
    /// Address of a stream or of its playlist; its path is enough.
    #[arg(value_name = "URL")]
    url: String,
    /// How long one may begin to watch: a number with s, m or h. Who watches by then goes on.
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = duration)]
    expires: Duration,
    /// Nobody elsewhere may use it: an address or a network.
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    client: Option<String>,
}

pub const EXAMPLES: &str = "\
Examples:
  millrace sign --config millrace.toml https://example.org/live/news
  millrace sign --config millrace.toml /live/news/index.m3u8 --expires 30m --client 2001:db8::/64

It is signed with the first of reflect.url_keys. No key is ever an argument: other users of the machine see those.";

fn network(text: &str) -> Result<String, String> {
    let is_one = server::config::network(text).is_some();
    is_one
        .then(|| text.to_owned())
        .ok_or_else(|| "an address or a network, such as 192.0.2.7 or 2001:db8::/64".to_owned())
}

impl Sign {
    pub fn run(&self) -> anyhow::Result<bool> {
        let config = crate::load(&self.settings)?;
        let keys = UrlKeys::new(&config.reflect.url_keys).context("no key to sign with: set reflect.url_keys")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
        let signed = sign_url(&keys, &self.url, (now + self.expires).as_secs(), self.client.as_deref());
        println!("{}", signed.map_err(|says| anyhow!(says))?);
        Ok(true)
    }
}
