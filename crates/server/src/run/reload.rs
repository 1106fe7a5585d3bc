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
use crate::livekit;
use crate::machine::{Running, directory_settings};
use crate::pump::destination::Allowed;
use crate::pump::setup;
use crate::supervisor;
use crate::tls::Certificates;

/// Settings that are taken over while the server runs; of the others a change takes a restart.
const TAKEN: [&str; 23] = [
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
    "pump.destinations",
    "pump.bandwidth_max",
    "pump.sessions_max",
    "pump.refused_timeout",
    "pump.rtsp_sessions_per_client",
    "relay.allowed_peers",
    "relay.denied_peers",
    "relay.allocations_per_user",
    "relay.bandwidth_per_user",
    "relay.bandwidth_max",
    "reflect",
];

/// The same while there are LiveKit's rooms, before and after: where there are none they begin or end with a restart.
const TAKEN_IN_ROOMS: [&str; 2] = ["livekit", "livekit.keys"];

/// Whether it is among those, or of a section that is taken as a whole.
fn is_taken(name: &str, has_keys: bool) -> bool {
    TAKEN.contains(&name) || name.starts_with("reflect.") || has_keys && TAKEN_IN_ROOMS.contains(&name)
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
        let livekit = running.livekit.as_deref().zip(livekit::settings(&new));
        self.take_filter_and_log(running, app, (&known, &new))?;
        // What is wrong with the settings has been said by now. A key that is gone counts no more, whatever there is no room for.
        app.auth.replace(auth);
        if let Some((livekit, settings)) = &livekit {
            // Settings without keys are none.
            livekit.set_keys(&settings.keys).context("livekit.keys")?;
            livekit::weak_keys(&new).for_each(|weak| tracing::warn!("{weak}"));
        }
        running.rooms.set_limits(directory_settings(&new.rooms));
        let pump = setup::control_settings(&new);
        running.pump.set_limits(pump.limits, Allowed::new(&new.pump.destinations));
        if let Some(rtsp) = &app.rtsp {
            rtsp.set_sessions_per_client(new.pump.rtsp_sessions_per_client);
        }
        if let Some(relay) = &running.relay {
            relay.set_limits(&new.relay);
        }
        let reflect = running.reflect.apply(&reflected(&new, self.with_demo));
        let mut taken = known.differences(&new);
        taken.retain(|name| is_taken(name, livekit.is_some()));
        let mut restart = self.started.differences(&new);
        restart.retain(|name| !is_taken(name, livekit.is_some()));
        *known = new;
        reflect.context("all else is as the settings say now, but not all of [reflect]")?;
        Ok(Reloaded { taken, restart })
    }

    /// The log's filter and the log of who watches: where the latter cannot be had, the filter is again as it was.
    fn take_filter_and_log(
        &self,
        running: &Running,
        app: &App,
        (known, new): (&Config, &Config),
    ) -> anyhow::Result<()> {
        let filter = app.admin.log_filter().filter(|_| new.log.filter != known.log.filter);
        if let Some(filter) = &filter {
            filter.set(&new.log.filter).map_err(|error| anyhow::anyhow!("log.filter: {error}"))?;
        }
        let opened = running.reflect.apply_access(reflected(new, self.with_demo).access_log.as_deref());
        if let (Err(_), Some(filter)) = (&opened, &filter) {
            filter.set(&known.log.filter).ok();
        }
        opened.context("[reflect]")
    }
}
