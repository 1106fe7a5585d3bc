//! What is written for byte streams.
//!
//! The engine writes pieces in order, as far as the kernel takes them. It keeps nothing that is shared or in a file: whose
//! last bytes were not taken is told so (`LinkEvent::Unsent`), has its own position, and goes on when there is room.
//! Copied pieces are for heads and frames that must not be torn: each is taken whole or not at all.

use std::fs::File;
use std::sync::Arc;

use super::{DATAGRAM_MAX, Outbox, PIECES_MAX};
use crate::LinkId;

/// Bytes for one byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stream.
    pub link: LinkId,
    place: Place,
    start: u64,
    len: usize,
}

/// Where a piece lies, with the number of the shared bytes or of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Slots,
    Shared(u16),
    File(u16),
}

/// The bytes of a piece.
#[derive(Clone, Copy, Debug)]
pub enum PieceSource<'a> {
    /// They were copied, and are taken whole or not at all.
    Copied(&'a [u8]),
    /// They lie in shared memory.
    Shared(&'a [u8]),
    /// They lie in a file, from a place on.
    File {
        /// The file.
        file: &'a Arc<File>,
        /// Where the piece begins.
        at: u64,
    },
}

impl Piece {
    /// Bytes in all.
    pub fn len_bytes(&self) -> usize {
        self.len
    }
}

impl Outbox {
    /// Copies bytes in for a byte stream. Returns false when there is no room, or nothing to be sent.
    pub fn push_bytes(&mut self, link: LinkId, bytes: &[u8]) -> bool {
        let Some(slot) = self.buf.get_mut(self.used..self.used + bytes.len()) else { return false };
        if bytes.is_empty() || self.pieces.len() >= PIECES_MAX {
            return false;
        }
        slot.copy_from_slice(bytes);
        self.pieces.push(Piece { link, place: Place::Slots, start: self.used as u64, len: bytes.len() });
        self.used += bytes.len();
        true
    }

    /// Queues the first `len` bytes of the slot for a byte stream, as if they were copied in. Returns false when there is no
    /// room for another piece, as a slot alone does not say, or nothing to be sent.
    ///
    /// # Panics
    /// When `len` exceeds `DATAGRAM_MAX`.
    #[must_use]
    pub fn commit_bytes(&mut self, link: LinkId, len: usize) -> bool {
        assert!(len <= DATAGRAM_MAX, "a slot has no more");
        let fits = len > 0 && self.has_room_for_piece();
        if fits {
            self.pieces.push(Piece { link, place: Place::Slots, start: self.used as u64, len });
            self.used += len;
        }
        fits
    }

    /// Queues `len` of the shared bytes from `start` on for a byte stream. They are not copied. Returns false when there is no
    /// room, they are not all there, or there are none.
    pub fn push_stream<T: AsRef<[u8]> + Send + Sync + 'static>(
        &mut self,
        link: LinkId,
        bytes: &Arc<T>,
        start: usize,
        len: usize,
    ) -> bool {
        let is_there = start.checked_add(len).is_some_and(|end| end <= (**bytes).as_ref().len());
        if !is_there || len == 0 || self.pieces.len() >= PIECES_MAX {
            return false;
        }
        let place = Place::Shared(self.keep(bytes));
        self.pieces.push(Piece { link, place, start: start as u64, len });
        true
    }

    /// Queues `len` bytes of a file from `at` on for a byte stream. They are read when they are sent, and by nobody but the
    /// kernel; a file that ends before them ends the connection, behind zeros as far as its last page goes. While they come from a disk the worker stands still: the
    /// file is to be in memory (memfd_create(2)), or its pages in the kernel's cache. Returns false when there is no room, or nothing to be sent.
    pub fn push_file(&mut self, link: LinkId, file: &Arc<File>, at: u64, len: usize) -> bool {
        if len == 0 || self.pieces.len() >= PIECES_MAX {
            return false;
        }
        let kept = self.files.iter().rposition(|kept| Arc::ptr_eq(kept, file));
        let index = kept.unwrap_or_else(|| {
            self.files.push(Arc::clone(file));
            self.files.len() - 1
        });
        self.pieces.push(Piece { link, place: Place::File(index as u16), start: at, len });
        true
    }

    /// Whether there is room for another piece of any kind, of up to `DATAGRAM_MAX` bytes when it is copied.
    pub fn has_room_for_piece(&self) -> bool {
        self.pieces.len() < PIECES_MAX && self.has_room()
    }

    /// What is queued for byte streams, in the order in which it was written.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The bytes of one piece.
    pub fn piece(&self, piece: &Piece) -> PieceSource<'_> {
        let range = piece.start as usize..piece.start as usize + piece.len;
        match piece.place {
            Place::Slots => PieceSource::Copied(&self.buf[range]),
            Place::Shared(index) => PieceSource::Shared(&(*self.shared[usize::from(index)]).as_ref()[range]),
            Place::File(index) => PieceSource::File { file: &self.files[usize::from(index)], at: piece.start },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkKind;

    fn text(out: &Outbox) -> Vec<(usize, String)> {
        let of = |piece: &Piece| match out.piece(piece) {
            PieceSource::Copied(bytes) => format!("copied {bytes:?}"),
            PieceSource::Shared(bytes) => format!("shared {bytes:?}"),
            PieceSource::File { at, .. } => format!("file {at}+{}", piece.len_bytes()),
        };
        out.pieces().iter().map(|piece| (piece.link.slot(), of(piece))).collect()
    }

    #[test]
    fn pieces_keep_their_order_and_what_they_point_at() {
        let (one, two) = (LinkId::new(LinkKind::Stream, 1, 0), LinkId::new(LinkKind::Stream, 2, 0));
        let (shared, file) = (Arc::new(vec![1_u8, 2, 3, 4]), Arc::new(File::open("/dev/null").expect("it is there")));
        let mut out = Outbox::new(2_000);
        assert!(
            out.push_bytes(one, &[9, 8]) && out.push_stream(one, &shared, 1, 2) && out.push_file(two, &file, 70, 9)
        );
        assert!(out.push_file(one, &file, 0, 1) && out.push_stream(two, &shared, 0, 1));
        let expected =
            [(1, "copied [9, 8]"), (1, "shared [2, 3]"), (2, "file 70+9"), (1, "file 0+1"), (2, "shared [1]")];
        assert_eq!(text(&out), expected.map(|(slot, text)| (slot, text.to_owned())));
        assert_eq!((Arc::strong_count(&shared), Arc::strong_count(&file)), (2, 2), "each is kept once");
        assert!(!out.is_empty());
        out.clear();
        assert_eq!((Arc::strong_count(&shared), Arc::strong_count(&file), out.is_empty()), (1, 1, true));
    }

    #[test]
    fn what_was_written_into_the_slot_is_a_piece() {
        let link = LinkId::new(LinkKind::Stream, 1, 0);
        let mut out = Outbox::new(2_000);
        out.slot().expect("room")[..3].copy_from_slice(&[7, 8, 9]);
        assert!(out.commit_bytes(link, 2) && !out.commit_bytes(link, 0));
        assert_eq!(text(&out), [(1, "copied [7, 8]".to_owned())]);
    }

    #[test]
    fn pieces_that_are_not_there_or_too_many_are_refused() {
        let link = LinkId::new(LinkKind::Stream, 1, 0);
        let shared = Arc::new(vec![0_u8; 4]);
        let mut out = Outbox::new(2_000);
        assert!(!out.push_bytes(link, &[0; 2_001]) && !out.push_bytes(link, &[]));
        assert!(!out.push_stream(link, &shared, 2, 3) && !out.push_stream(link, &shared, usize::MAX, 2));
        assert!(!out.push_stream(link, &shared, 4, 0));
        while out.has_room_for_piece() {
            assert!(out.push_stream(link, &shared, 0, 4));
        }
        assert!(!out.push_bytes(link, &[1]));
        assert!(out.slot().is_some() && !out.commit_bytes(link, 1), "there are bytes left, and no piece");
        assert_eq!(out.pieces().len(), PIECES_MAX);
    }
}
