//! News of participants that can wait: of those who publish nothing, gathered for some seconds.

use std::collections::BTreeMap;

use livekit_protocol::ParticipantInfo;

/// By sid; the latest of each.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    gathered: BTreeMap<String, ParticipantInfo>,
}

impl Updates {
    pub(crate) fn push(&mut self, info: ParticipantInfo) {
        self.gathered.insert(info.sid.clone(), info);
    }

    /// What was said of somebody holds no more: everybody hears the latest at once.
    pub(crate) fn forget(&mut self, sid: &str) {
        self.gathered.remove(sid);
    }

    pub(crate) fn take(&mut self) -> Vec<ParticipantInfo> {
        std::mem::take(&mut self.gathered).into_values().collect()
    }
}
