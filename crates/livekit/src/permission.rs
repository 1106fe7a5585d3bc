//! Who may subscribe to a publisher's tracks, as the publisher says.

use std::collections::{HashMap, HashSet};

use livekit_protocol::SubscriptionPermission;

use crate::limits::PERMISSIONS_MAX;

/// Until a publisher says something, everybody may.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permissions {
    /// By identity; `None` is everybody.
    named: Option<HashMap<String, Tracks>>,
}

#[derive(Clone, Debug)]
enum Tracks {
    All,
    These(HashSet<String>),
}

/// Why an update was not taken; what held before holds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PermissionError {
    #[error("{0} permissions are more than are kept")]
    TooMany(usize),
    #[error("a permission names nobody")]
    Nobody,
}

impl Permissions {
    /// Takes an update, which replaces all that was said before; `identity_of` finds participants by their sid.
    pub(crate) fn set(
        &mut self,
        update: &SubscriptionPermission,
        identity_of: impl Fn(&str) -> Option<String>,
    ) -> Result<(), PermissionError> {
        if update.all_participants {
            self.named = None;
            return Ok(());
        }
        let listed = &update.track_permissions;
        let size = listed.len() + listed.iter().map(|entry| entry.track_sids.len()).sum::<usize>();
        if size > PERMISSIONS_MAX {
            return Err(PermissionError::TooMany(size));
        }
        let mut named = HashMap::new();
        for entry in listed {
            let identity = match (entry.participant_identity.as_str(), entry.participant_sid.as_str()) {
                ("", "") => return Err(PermissionError::Nobody),
                ("", sid) => identity_of(sid),
                (identity, _) => Some(identity.to_owned()),
            };
            // Who has left in the meantime is not named any more.
            let Some(identity) = identity else { continue };
            let tracks = match entry.all_tracks {
                true => Tracks::All,
                false => Tracks::These(entry.track_sids.iter().cloned().collect()),
            };
            named.insert(identity, tracks);
        }
        self.named = Some(named);
        Ok(())
    }

    pub(crate) fn allow(&self, track: &str, identity: &str) -> bool {
        let Some(named) = &self.named else { return true };
        match named.get(identity) {
            None => false,
            Some(Tracks::All) => true,
            Some(Tracks::These(tracks)) => tracks.contains(track),
        }
    }
}

#[cfg(test)]
mod tests {
    use livekit_protocol::TrackPermission;

    use super::*;

    fn only(entries: Vec<TrackPermission>) -> Permissions {
        let mut permissions = Permissions::default();
        let update = SubscriptionPermission { all_participants: false, track_permissions: entries };
        permissions.set(&update, |sid| (sid == "PA_eve").then(|| "eve".to_owned())).expect("a permission");
        permissions
    }

    #[test]
    fn everybody_may_until_the_publisher_says_otherwise() {
        assert!(Permissions::default().allow("TR_1", "adam"));
        assert!(!only(vec![]).allow("TR_1", "adam"));
    }

    #[test]
    fn who_is_named_by_sid_or_identity_may_have_what_is_named() {
        let by_sid = TrackPermission {
            participant_sid: "PA_eve".into(),
            track_sids: vec!["TR_1".into()],
            ..TrackPermission::default()
        };
        let by_identity =
            TrackPermission { participant_identity: "adam".into(), all_tracks: true, ..TrackPermission::default() };
        let permissions = only(vec![by_sid, by_identity]);
        assert!(permissions.allow("TR_1", "eve") && !permissions.allow("TR_2", "eve"));
        assert!(permissions.allow("TR_2", "adam"));
    }

    #[test]
    fn an_update_that_names_nobody_changes_nothing() {
        let mut permissions = Permissions::default();
        let update =
            SubscriptionPermission { track_permissions: vec![TrackPermission::default()], ..Default::default() };
        assert_eq!(permissions.set(&update, |_| None), Err(PermissionError::Nobody));
        assert!(permissions.allow("TR_1", "adam"));
    }
}
