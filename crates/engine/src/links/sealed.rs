//! A connection's cipher, and what it needs to keep.
//!
//! In: bytes as the network has them, frames as they are queued. Out: plain bytes, records.
//! Cost: a box of some 80 bytes and what the cipher takes itself; buffers only while there is something in them. What came
//! is opened in place; what leaves is copied once to be sealed. Each frame is a record of its own, as there are TURN clients
//! that take a record for a message (coturn's); those of one flush leave together all the same.
//!
//! **Where the kernel seals** (kTLS), which it is asked to when the first file is sent, what is written is plain, and
//! nothing is copied here. What the cipher has to say besides are steps (`settle`): they are done before any data, but for
//! the end, which comes behind all of it. A cipher that can go no further, as the kernel takes no new key, ends its
//! connection in order: what was taken leaves, and the end is told.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;

use wire::{Cipher, CipherError, KernelStep};

use super::buffers::{Backlog, Buffers};
use super::stream::Got;
use crate::sys::{self, KernelTls};

/// Who seals what leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sealer {
    /// The worker; the kernel was not asked.
    Unasked,
    /// The worker, as the kernel would not.
    Worker,
    Kernel,
}

pub(super) struct Sealed {
    cipher: Box<dyn Cipher>,
    /// The beginning of a record that is not whole, and how long that is at least; 0 when nobody has looked yet.
    rest: Vec<u8>,
    record_len: usize,
    /// The other side has said that this was all.
    has_ended: bool,
    /// The cipher has something to say.
    has_output: bool,
    /// A frame could not be sealed, and no other can be.
    is_used_up: bool,
    pub(super) sealer: Sealer,
    /// What the kernel had no room for.
    step: Option<Box<KernelStep>>,
    /// The kernel is to tell that this was all, behind the data.
    pub(super) owes_end: bool,
}

impl Sealed {
    /// `came` was read and not opened yet.
    pub(super) fn new(cipher: Box<dyn Cipher>, came: Box<[u8]>) -> Self {
        Sealed {
            cipher,
            rest: came.into(),
            record_len: 0,
            has_ended: false,
            has_output: false,
            is_used_up: false,
            sealer: Sealer::Unasked,
            step: None,
            owes_end: false,
        }
    }

    /// Whether there is something to open or to tell that the kernel knows nothing of.
    pub(super) fn has_unread(&self) -> bool {
        self.has_ended || self.is_fresh()
    }

    /// Whether the beginning of a record waits for the rest of it.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether something came that nobody has looked at.
    fn is_fresh(&self) -> bool {
        self.record_len == 0 && !self.rest.is_empty()
    }

    /// Reads at most `read_max` bytes, and opens what is whole: plain bytes lie at the front of `room`, or none. A byte stream
    /// that ends without the other side having said so is cut off, and anybody may have done it; frames say themselves
    /// whether they are whole.
    pub(super) fn read(
        &mut self,
        mut socket: &TcpStream,
        is_stream: bool,
        room: &mut [u8],
        read_max: usize,
        buffers: &mut Buffers,
    ) -> io::Result<Got> {
        let kept = self.rest.len();
        if self.has_ended {
            return Ok(Got::End);
        }
        let Some(free) = room.get_mut(kept..) else { return Ok(Got::Failure) };
        let read_max = read_max.min(free.len());
        let (count, is_full) = if self.is_fresh() {
            (0, true)
        } else {
            let count = socket.read(&mut free[..read_max])?;
            if count == 0 {
                return Ok(if is_stream { Got::Failure } else { Got::End });
            }
            (count, count == read_max)
        };
        if kept + count < self.record_len {
            self.rest.extend_from_slice(&free[..count]);
            return Ok(Got::Bytes { len: 0, is_full });
        }
        room[..kept].copy_from_slice(&self.rest);
        self.give_rest(buffers);
        Ok(self.open(&mut room[..kept + count], is_full, buffers))
    }

    fn open(&mut self, came: &mut [u8], is_full: bool, buffers: &mut Buffers) -> Got {
        let Ok(opened) = self.cipher.open(came) else {
            self.has_output = true;
            return Got::Failure;
        };
        debug_assert!(opened.plain <= opened.used && opened.used <= came.len(), "no more than there is");
        self.has_ended = opened.has_ended;
        self.has_output |= opened.has_output;
        let rest = &came[opened.used..];
        // What follows the end means nothing.
        if !rest.is_empty() && !self.has_ended {
            debug_assert!(rest.len() < opened.record_len, "one record, and not a whole one");
            self.rest = buffers.take();
            self.rest.extend_from_slice(rest);
            self.record_len = opened.record_len;
        }
        Got::Bytes { len: opened.plain, is_full: is_full || self.has_ended }
    }

    /// Seals a frame, which is these parts.
    pub(super) fn seal_frame(&mut self, parts: [&[u8]; 4], backlog: &mut Backlog, buffers: &mut Buffers) {
        let mut plain = buffers.take();
        parts.iter().for_each(|part| plain.extend_from_slice(part));
        self.is_used_up |= self.seal(&plain, backlog, buffers).is_err();
        buffers.give(plain);
    }

    /// Whether all frames could be sealed.
    pub(super) fn is_sound(&self) -> bool {
        !self.is_used_up
    }

    /// Seals bytes.
    pub(super) fn seal(
        &mut self,
        plain: &[u8],
        backlog: &mut Backlog,
        buffers: &mut Buffers,
    ) -> Result<(), CipherError> {
        backlog.append(plain.len(), buffers, |out| self.cipher.seal(plain, out))
    }

    /// Asks the kernel to seal from now on, if its time has come: what the cipher owes is queued, and has to leave first.
    /// True: nothing waits, and it is known who seals.
    pub(super) fn ask_kernel(
        &mut self,
        socket: &TcpStream,
        kernel: KernelTls,
        backlog: &mut Backlog,
        buffers: &mut Buffers,
    ) -> Result<bool, CipherError> {
        debug_assert!(backlog.is_empty() && self.sealer == Sealer::Unasked, "what was sealed here leaves first");
        self.sealer = Sealer::Worker;
        let Some(cipher) = self.cipher.handover() else { return Ok(true) };
        backlog.append(0, buffers, |out| cipher.settle(out))?;
        if !backlog.is_empty() {
            self.sealer = Sealer::Unasked;
            return Ok(false);
        }
        let key = cipher.sending_key();
        if !kernel.has(&key) {
            return Ok(true);
        }
        match sys::seal_in_kernel(socket.as_fd(), &key) {
            Ok(()) => {
                cipher.take_over(kernel.takes_keys());
                self.sealer = Sealer::Kernel;
            }
            Err(error) => tracing::debug!(%error, "the kernel does not seal"),
        }
        Ok(true)
    }

    /// Has the kernel do what comes before the next data. False when it has no room, or there is no next data
    /// (`has_to_end`).
    pub(super) fn settle(&mut self, socket: &TcpStream) -> io::Result<bool> {
        if !self.is_by_kernel() {
            return Ok(true);
        }
        let Some(cipher) = self.cipher.handover() else { return Ok(true) };
        self.has_output = false;
        loop {
            let next = self.step.take().map_or_else(|| cipher.poll_step(), |step| Ok(Some(*step)));
            let step = match next {
                Ok(Some(step)) => step,
                Ok(None) => return Ok(true),
                Err(CipherError) => {
                    self.is_used_up = true;
                    return Ok(false);
                }
            };
            match sys::do_step(socket.as_fd(), &step) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    self.step = Some(Box::new(step));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Has the kernel tell that this was all, if that is owed. All data has been given to it.
    pub(super) fn settle_end(&mut self, socket: &TcpStream) -> io::Result<()> {
        if std::mem::take(&mut self.owes_end)
            && let Some(cipher) = self.cipher.handover()
        {
            cipher.tell_end();
            self.settle(socket)?;
        }
        Ok(())
    }

    /// Whether the kernel has something to do besides data.
    pub(super) fn owes_steps(&self) -> bool {
        self.is_by_kernel() && (self.has_output || self.owes_end || self.step.is_some())
    }

    pub(super) fn is_by_kernel(&self) -> bool {
        self.sealer == Sealer::Kernel
    }

    /// Whether the kernel can be given no more data, and the connection is to be ended.
    pub(super) fn has_to_end(&self) -> bool {
        self.is_used_up && self.is_by_kernel()
    }

    /// The kernel was given so many bytes of data with one call.
    pub(super) fn count_sealed(&mut self, bytes: usize) {
        if self.is_by_kernel()
            && let Some(cipher) = self.cipher.handover()
        {
            cipher.count_sealed(bytes);
        }
    }

    /// Queues what the cipher has to say by itself.
    pub(super) fn answer(&mut self, backlog: &mut Backlog, buffers: &mut Buffers) {
        if self.is_by_kernel() {
            return;
        }
        if std::mem::take(&mut self.has_output) {
            backlog.append(0, buffers, |out| self.cipher.poll_output(out));
        }
    }

    /// Queues that this was all.
    pub(super) fn end(&mut self, backlog: &mut Backlog, buffers: &mut Buffers) {
        if self.is_by_kernel() {
            // What is left of a piece cannot be sealed any more.
            if self.is_used_up {
                backlog.consume(backlog.len(), buffers);
            }
            self.owes_end = true;
        } else {
            backlog.append(0, buffers, |out| self.cipher.end(out));
        }
        self.give_rest(buffers);
    }

    fn give_rest(&mut self, buffers: &mut Buffers) {
        buffers.give(std::mem::take(&mut self.rest));
        self.record_len = 0;
    }

    /// Memory of its buffers.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.rest.capacity()
    }

    /// Lets go of its buffers.
    pub(super) fn release(&mut self, buffers: &mut Buffers) {
        self.give_rest(buffers);
    }
}
