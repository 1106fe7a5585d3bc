//! Pieces of one byte stream, and how far they are done.
//!
//! In: pieces as they lie in an outbox. Out: what comes first, as it is written or sealed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use wire::{Outbox, Piece, PieceSource};

/// What is left of some pieces.
pub(super) struct Rest<'a> {
    out: &'a Outbox,
    pieces: &'a [Piece],
    /// Bytes of the first piece that are done.
    offset: usize,
}

impl<'a> Rest<'a> {
    pub(super) fn new(out: &'a Outbox, pieces: &'a [Piece]) -> Self {
        Rest { out, pieces, offset: 0 }
    }

    /// Whether some of the first piece is done.
    pub(super) fn has_begun(&self) -> bool {
        self.offset > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Piece::len_bytes).sum::<usize>() - self.offset
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.offset += count;
        while let Some((first, others)) = self.pieces.split_first()
            && self.offset >= first.len_bytes()
        {
            self.offset -= first.len_bytes();
            self.pieces = others;
        }
    }

    /// Copies what comes first behind `plain`, of a file or of memory, until that has `len_max` bytes.
    pub(super) fn copy_some(&self, plain: &mut Vec<u8>, len_max: usize) -> io::Result<()> {
        if let Some((file, at, len)) = self.file() {
            plain.resize(len.min(len_max), 0);
            return file.read_exact_at(plain, at);
        }
        for bytes in self.memory() {
            let room = len_max - plain.len();
            plain.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        Ok(())
    }

    /// The rest of the first piece, if that is of a file.
    pub(super) fn file(&self) -> Option<(&'a Arc<File>, u64, usize)> {
        let first = self.pieces.first()?;
        match self.out.piece(first) {
            PieceSource::File { file, at } => Some((file, at + self.offset as u64, first.len_bytes() - self.offset)),
            PieceSource::Copied(_) | PieceSource::Shared(_) => None,
        }
    }

    /// The rest of the first piece, if that was copied.
    pub(super) fn copied(&self) -> Option<&'a [u8]> {
        match self.out.piece(self.pieces.first()?) {
            PieceSource::Copied(bytes) => Some(&bytes[self.offset..]),
            PieceSource::Shared(_) | PieceSource::File { .. } => None,
        }
    }

    /// What lies in memory, up to the next file.
    pub(super) fn memory(&self) -> impl Iterator<Item = &'a [u8]> {
        let (out, mut offset) = (self.out, self.offset);
        self.pieces.iter().map_while(move |piece| match out.piece(piece) {
            PieceSource::Copied(bytes) | PieceSource::Shared(bytes) => Some(&bytes[std::mem::take(&mut offset)..]),
            PieceSource::File { .. } => None,
        })
    }
}
