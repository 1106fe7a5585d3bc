//! The newest chunks of each live input that this worker's sessions play, and who waits for the next.
//!
//! In: chunks, in order, from whoever receives the input. Out: the chunk with a number; sessions whose chunk has come.
//! Cost: a hash and a binary search per chunk that a session takes; memory for as many pointers as chunks are kept.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::chunk::Chunk;
use crate::spec::{InputId, SessionId};

#[derive(Debug, Default)]
pub(crate) struct Inputs {
    inputs: HashMap<InputId, Input, FxBuildHasher>,
}

#[derive(Debug, Default)]
struct Input {
    ring: VecDeque<Arc<Chunk>>,
    /// Sessions, and the chunk that each waits for.
    waiting: Vec<(SessionId, u32)>,
}

/// What became of a wish.
#[derive(Debug)]
pub(crate) enum Look {
    Here(Arc<Chunk>),
    /// It has not come yet; `push` names the session when it does.
    Waits,
    /// It was there, or never will be.
    Gone,
}

impl Inputs {
    /// Looks for a chunk, on behalf of a session.
    pub(crate) fn look(&mut self, input: InputId, number: u32, session: SessionId) -> Look {
        let Input { ring, waiting } = self.inputs.entry(input).or_default();
        if ring.back().is_none_or(|newest| number > newest.number) {
            waiting.push((session, number));
            return Look::Waits;
        }
        match ring.binary_search_by_key(&number, |chunk| chunk.number) {
            Ok(index) => Look::Here(ring[index].clone()),
            Err(_) => Look::Gone,
        }
    }

    /// Takes the next chunk, and forgets those before `oldest`. Returns the sessions that waited for it, or for one before
    /// it that did not come, each with the number that it waited for.
    pub(crate) fn push(&mut self, input: InputId, chunk: &Arc<Chunk>, oldest: u32) -> Vec<(SessionId, u32)> {
        let Input { ring, waiting } = self.inputs.entry(input).or_default();
        while ring.front().is_some_and(|chunk| chunk.number < oldest) {
            ring.pop_front();
        }
        if ring.back().is_none_or(|newest| newest.number < chunk.number) {
            ring.push_back(chunk.clone());
        }
        waiting.extract_if(.., |(_, number)| *number <= chunk.number).collect()
    }

    /// The sessions of an input are gone.
    pub(crate) fn forget(&mut self, input: InputId) {
        self.inputs.remove(&input);
    }
}
