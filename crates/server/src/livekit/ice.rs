//! What clients are told to use where they cannot reach the workers: the servers of the configuration, and this server's own relay.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use livekit::proto;

use crate::config;
use crate::relay::control::RelayControl;
use crate::relay::issuer;

/// Where that comes from.
#[derive(Default)]
pub struct IceServers {
    /// Those of `rtc.ice_servers`.
    pub fixed: Vec<config::IceServer>,
    /// Makes a credential for each participant, where it has a secret for that.
    pub relay: Option<Arc<RelayControl>>,
}

impl IceServers {
    /// Those for somebody.
    pub(super) fn of(&self, identity: &str) -> Vec<proto::IceServer> {
        let fixed = self.fixed.iter().map(|server| {
            let (username, credential) = server.login.clone().unwrap_or_default();
            proto::IceServer { urls: vec![server.url.clone()], username, credential }
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let relay = self.relay.as_ref().filter(|_| issuer::is_name(identity));
        let own = relay.and_then(|relay| relay.credential(identity, None, now).ok());
        let own =
            own.map(|made| proto::IceServer { urls: made.uris, username: made.username, credential: made.password });
        fixed.chain(own).collect()
    }
}
