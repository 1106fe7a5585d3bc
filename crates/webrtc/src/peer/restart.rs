//! ICE credentials of a peer connection over its life, and its restarts (RFC 8445 §9).

use std::time::Instant;

use str0m::IceCreds;

use super::Peer;
use super::limits::RESTARTS;
use super::made_up::made_up_candidates;
use crate::Error;
use crate::fragment::Fragment;
use crate::random;

impl Peer {
    /// As a connected server, the user name and the password of the peer's checks; `None` while a restart is under way, as what
    /// comes then is for us to hear.
    pub fn settled_credentials(&self) -> Option<(String, &str)> {
        let IceCreds { ufrag, pass } = &self.checks.local;
        let remote = self.checks.remote.as_ref()?;
        (self.is_connected() && self.nomination.is_settled())
            .then(|| (format!("{ufrag}:{}", remote.ufrag), pass.as_str()))
    }

    /// Takes the body of a WHIP or WHEP PATCH (RFC 8840 §9). Other credentials than before are an ICE restart, and
    /// give the fragment to answer with; the user fragment is another one afterwards.
    pub fn handle_fragment(&mut self, text: &str) -> Result<Option<String>, Error> {
        let fragment = Fragment::parse(text)?;
        let answer = match fragment.credentials()? {
            Some(remote) if self.checks.remote.as_ref() != Some(&remote) => {
                self.restart(self.now, random::credentials()?, remote)?;
                let IceCreds { ufrag, pass } = &self.checks.local;
                Some(Fragment::write(ufrag, pass, fragment.mid, &self.candidates))
            }
            _ => None,
        };
        if !self.is_server {
            for candidate in &fragment.candidates {
                self.add_candidate(candidate);
            }
        }
        Ok(answer)
    }

    /// Goes on under other credentials on both sides, unless it did so too often.
    pub(crate) fn restart(&mut self, now: Instant, local: IceCreds, remote: IceCreds) -> Result<(), Error> {
        if !self.restarts.take(now, RESTARTS) {
            return Err(Error::TooManyRestarts { seconds: RESTARTS.interval.as_secs() });
        }
        self.switch_credentials(local, remote)
    }

    /// The peer's credentials, once it has said them.
    pub(crate) fn remote_credentials(&self) -> Option<&IceCreds> {
        self.checks.remote.as_ref()
    }

    /// Takes fresh credentials, as a client, and returns the fragment that asks the server for an ICE restart. The
    /// server's fragment then goes to `accept_restart`.
    pub fn start_restart(&mut self) -> Result<String, Error> {
        self.checks.local = random::credentials()?;
        let IceCreds { ufrag, pass } = &self.checks.local;
        Ok(Fragment::write(ufrag, pass, Some("0"), &[]))
    }

    /// Finishes the restart that `start_restart` began.
    pub fn accept_restart(&mut self, text: &str) -> Result<(), Error> {
        let remote = Fragment::parse(text)?.credentials()?.ok_or(Error::Missing { what: "a=ice-ufrag" })?;
        self.switch_credentials(self.checks.local.clone(), remote)
    }

    /// New credentials and no checked pairs; the old path goes on being used until another is nominated (RFC 8445 §9).
    fn switch_credentials(&mut self, local: IceCreds, remote: IceCreds) -> Result<(), Error> {
        if !self.is_server {
            let candidates = made_up_candidates(false, true)?;
            self.call_str0m(|rtc| {
                let mut api = rtc.direct_api();
                api.set_local_ice_credentials(local.clone());
                api.set_remote_ice_credentials(remote.clone());
                // Taking our candidates back and adding them again forgets all pairs and makes new ones.
                for candidate in candidates {
                    if rtc.direct_api().invalidate_candidate(&candidate) {
                        rtc.add_local_candidate(candidate);
                    }
                }
            });
        }
        self.checks.local = local;
        self.checks.remote = Some(remote);
        // Where media goes it goes on, for as long as that address is proved.
        self.reach.restart(self.media_remote());
        self.held.clear();
        self.nomination.restart();
        Ok(())
    }
}
