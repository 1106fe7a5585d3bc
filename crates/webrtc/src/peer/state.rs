//! What a peer connection is, and how far.

/// What a peer connection is to be.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub is_server: bool,
    pub tcp: bool,
    /// It may have data channels.
    pub has_data: bool,
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
