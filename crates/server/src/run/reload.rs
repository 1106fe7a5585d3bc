//! What changes while the server runs: by SIGHUP, and by `POST /api/admin/reload`.
//!
//! In: the settings, read again from where they came. Out: what can change is as they say now, what cannot is named, and none
//! has changed where something is wrong with them. Certificates and users are read again in any case.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use super::{Reread, reflected, upgrades};
use crate::auth::Auth;
use crate::config::Config;
use crate::http::{App, Reloaded};
use crate::machine::{Running, directory_settings};
use crate::supervisor;
use crate::tls::Certificates;

/// Settings that are taken over while the server runs; of the others a change takes a restart.
const TAKEN: [&str; 13] = [
    "auth",
    "auth.dev",
    "auth.hs256_secret",
    "auth.eddsa_public_key",
    "auth.issuer",
    "auth.audience",
    "log.filter",
    "rooms.reconnect_grace",
    "rooms.waiting_per_client",
    "rooms.sessions_per_client",
    "rooms.sessions_per_token",
    "rooms.viewers_per_stream",
    "reflect",
];

/// Whether it is among those, or of a section that is taken as a whole.
fn is_taken(name: &str) -> bool {
    TAKEN.contains(&name) || name.starts_with("reflect.")
}

/// What is read again when whoever runs the server says so.
pub(super) struct Reload<'a> {
    certificates: Option<&'a Certificates>,
    read: Reread<'a>,
    with_demo: bool,
    /// As it was when the server started, and as it was read last and was good.
    started: Config,
    known: Mutex<Config>,
}

impl<'a> Reload<'a> {
    /// Of a server that was started with `config`.
    pub(super) fn new(
        config: &Config,
        read: Reread<'a>,
        certificates: Option<&'a Certificates>,
        with_demo: bool,
    ) -> Self {
        Reload { certificates, read, with_demo, started: config.clone(), known: Mutex::new(config.clone()) }
    }

    /// Has certificates, users and settings read again. Returns what has changed in the settings.
    ///
    /// # Errors
    /// What is wrong with them: then they stay as they were.
    pub(super) fn run(
        &self,
        says: &dyn Display,
        config: &Config,
        running: &Running,
        app: &App,
    ) -> anyhow::Result<Reloaded> {
        tracing::info!("{says}: certificates and users are read again, and the settings");
        supervisor::tell_reloading();
        let reloaded = self.take(running, app);
        match &reloaded {
            Ok(Reloaded { taken, restart }) => {
                tracing::info!(taken = taken.join(", "), "the settings are as they say now, as far as they can change");
                if !restart.is_empty() {
                    tracing::warn!("these settings have changed, and need a restart: {}", restart.join(", "));
                }
            }
            Err(error) => tracing::error!("the settings are not taken over: {error:#}"),
        }
        if let Some(certificates) = self.certificates {
            certificates.read_again();
        }
        if let Some(relay) = &running.relay {
            relay.read_again();
        }
        supervisor::tell_ready(&upgrades(config, running));
        reloaded
    }

    fn take(&self, running: &Running, app: &App) -> anyhow::Result<Reloaded> {
        let new = (self.read)()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let auth = Auth::of(&new).context("reading the keys of [auth]")?;
        let filter = app.admin.log_filter().filter(|_| new.log.filter != known.log.filter);
        let set = filter.map_or(Ok(()), |filter| filter.set(&new.log.filter));
        set.map_err(|error| anyhow::anyhow!("log.filter: {error}"))?;
        // What is wrong with the settings has been said by now. A key that is gone counts no more, whatever there is no room for.
        app.auth.replace(auth);
        running.rooms.set_limits(directory_settings(&new.rooms));
        let reflect = running.reflect.apply(&reflected(&new, self.with_demo));
        let mut taken = known.differences(&new);
        taken.retain(|name| is_taken(name));
        let mut restart = self.started.differences(&new);
        restart.retain(|name| !is_taken(name));
        *known = new;
        reflect.context("all else is as the settings say now, but not all of [reflect]")?;
        Ok(Reloaded { taken, restart })
    }
}
