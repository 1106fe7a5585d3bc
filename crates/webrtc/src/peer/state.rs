//! What a peer connection is, and how far.

/// What a peer connection is to be.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub is_server: bool,
    /// It is the one who nominates.
    pub is_controlling: bool,
    pub tcp: bool,
    /// It may have data channels.
    pub has_data: bool,
}

impl Kind {
    pub const SERVER: Kind = Kind { is_server: true, is_controlling: false, tcp: true, has_data: false };
    pub const CLIENT: Kind = Kind { is_server: false, is_controlling: true, tcp: false, has_data: false };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Handshaking,
    /// DTLS says that it is done; keys are there, or will never be.
    DtlsDone,
    Connected,
    Ended,
}

impl State {
    /// Every change is one of these.
    pub fn enter(&mut self, state: State) {
        debug_assert!(
            match (*self, state) {
                (State::Handshaking, State::DtlsDone) | (State::DtlsDone, State::Connected) => true,
                (from, State::Ended) => from != State::Ended,
                _ => false,
            },
            "{self:?} to {state:?}"
        );
        *self = state;
    }
}

impl std::fmt::Debug for super::Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("ufrag", &self.ufrag()).field("state", &self.state).finish_non_exhaustive()
    }
}
