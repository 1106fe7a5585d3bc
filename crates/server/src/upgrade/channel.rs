//! What two processes of the server say to each other while one takes over from the other.
//!
//! In and out: values, with descriptors, over a pair of Unix sockets that keeps messages apart (unix(7), "SOCK_SEQPACKET").
//! A message is 24 bytes, and its value is in a file in memory that comes with it as the first descriptor (memfd_create(2)): so
//! it may have any length up to `VALUE_MAX`, and is written and read at once.
//!
//! ```text
//! 0        8        12       16            24
//! ┌────────┬────────┬────────┬─────────────┐
//! │millrace│ FORMAT │ count  │ length      │   little-endian; the count is that of the descriptors behind the first
//! └────────┴────────┴────────┴─────────────┘
//! ```

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How values are written. **Whoever changes a type that goes over changes this**: another number is refused, and the process
/// before goes on.
pub(crate) const FORMAT: u32 = 2;

/// Descriptors of one message at most, without that of the value. The kernel takes 253 in all (SCM_MAX_FD).
pub(super) const DESCRIPTORS_MAX: usize = 200;

/// Bytes of a value at most.
const VALUE_MAX: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"millrace";
const HEAD_LEN: usize = 24;

/// Why a message cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    /// The system says so; that time is over, or the other end gone, included.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other process is of a version that writes otherwise.
    #[error("it speaks format {0}, and this one {FORMAT}")]
    OtherFormat(u32),
    /// It is no message.
    #[error("what it says cannot be read: {0}")]
    Malformed(&'static str),
    /// It is not the value that is expected.
    #[error("what it says cannot be read: {0}")]
    Value(#[from] postcard::Error),
}

impl From<rustix::io::Errno> for ChannelError {
    fn from(errno: rustix::io::Errno) -> Self {
        ChannelError::Io(errno.into())
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Both ends; the second is for another process.
    pub(super) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel { socket }, other))
    }

    /// The other end of a pair.
    pub(super) fn of(socket: OwnedFd) -> Self {
        Channel { socket }
    }

    /// Says something.
    pub(super) fn send<T: Serialize>(
        &self,
        value: &T,
        descriptors: &[BorrowedFd<'_>],
        time_max: Duration,
    ) -> Result<(), ChannelError> {
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(ChannelError::Malformed("too many descriptors"));
        }
        let value = postcard::to_allocvec(value)?;
        let file = File::from(memfd_create("millrace-upgrade", MemfdFlags::CLOEXEC)?);
        file.write_all_at(&value, 0)?;
        let head = head(descriptors.len() as u32, value.len() as u64);
        let all: Vec<BorrowedFd<'_>> = [file.as_fd()].into_iter().chain(descriptors.iter().copied()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&all)) {
            return Err(ChannelError::Malformed("too many descriptors"));
        }
        set_socket_timeout(&self.socket, Timeout::Send, Some(time_max))?;
        sendmsg(&self.socket, &[IoSlice::new(&head)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for what the other end says next, no longer than `time_max`.
    pub(super) fn receive<T: DeserializeOwned>(&self, time_max: Duration) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(time_max))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; HEAD_LEN];
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                descriptors.extend(came);
            }
        }
        if got.bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let (count, len) = read_head(&bytes[..got.bytes])?;
        if descriptors.len() != count as usize + 1 {
            return Err(ChannelError::Malformed("descriptors are missing"));
        }
        let file = File::from(descriptors.remove(0));
        let mut value = vec![0; len as usize];
        file.read_exact_at(&mut value, 0)?;
        Ok((decode(&value)?, descriptors))
    }
}

/// Reads a value, all of it.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ChannelError> {
    let (value, rest) = postcard::take_from_bytes(bytes)?;
    if rest.is_empty() { Ok(value) } else { Err(ChannelError::Malformed("something follows")) }
}

fn head(count: u32, len: u64) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..16].copy_from_slice(&count.to_le_bytes());
    head[16..].copy_from_slice(&len.to_le_bytes());
    head
}

/// The number of descriptors, and the length of the value.
fn read_head(bytes: &[u8]) -> Result<(u32, u64), ChannelError> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let long = |at: usize| bytes.get(at..at + 8).and_then(|long| long.try_into().ok()).map(u64::from_le_bytes);
    let (Some(format), Some(count), Some(len)) = (word(8), word(12), long(16)) else {
        return Err(ChannelError::Malformed("it is too short"));
    };
    if !bytes.starts_with(&MAGIC) {
        return Err(ChannelError::Malformed("it is somebody else"));
    }
    if format != FORMAT {
        return Err(ChannelError::OtherFormat(format));
    }
    if count as usize > DESCRIPTORS_MAX || len > VALUE_MAX {
        return Err(ChannelError::Malformed("it is too long"));
    }
    Ok((count, len))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_value_of_any_length_comes_with_its_descriptors() {
        let (one, other) = Channel::pair().expect("a pair");
        let other = Channel::of(other);
        let value = vec![(7_u64, "x".repeat(3_000_000)); 3];
        let (mut near, far) = UnixStream::pair().expect("a pair");
        let descriptors = vec![far.as_fd(); DESCRIPTORS_MAX];
        one.send(&value, &descriptors, PATIENCE).expect("it is taken");
        let (came, descriptors): (Vec<(u64, String)>, _) = other.receive(PATIENCE).expect("it comes");
        assert!(came == value && descriptors.len() == DESCRIPTORS_MAX);
        let last = descriptors.into_iter().next_back().expect("there are some");
        UnixStream::from(last).write_all(b"hello").expect("written");
        let mut said = [0; 5];
        near.read_exact(&mut said).expect("it comes");
        assert_eq!(&said, b"hello");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let good = head(2, 99);
        assert!(matches!(read_head(&good), Ok((2, 99))));
        let with = |at: usize, byte: u8| {
            let mut head = good;
            head[at] = byte;
            head
        };
        assert!(matches!(read_head(&good[..HEAD_LEN - 1]), Err(ChannelError::Malformed(_))));
        assert!(matches!(read_head(&with(0, b'M')), Err(ChannelError::Malformed(_))));
        assert!(matches!(read_head(&with(8, 99)), Err(ChannelError::OtherFormat(99))));
        assert!(matches!(read_head(&with(12, 201)), Err(ChannelError::Malformed(_))));
        assert!(matches!(read_head(&with(23, 1)), Err(ChannelError::Malformed(_))));
        assert!(matches!(decode::<u8>(&[1, 2]), Err(ChannelError::Malformed(_))));
        assert!(matches!(decode::<String>(&[200, 1]), Err(ChannelError::Value(_))));
    }

    #[test]
    fn who_says_nothing_is_not_waited_for_and_who_is_gone_is_noticed() {
        let (one, other) = Channel::pair().expect("a pair");
        let silent = one.receive::<u8>(Duration::from_millis(1));
        assert!(matches!(silent, Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock));
        drop(other);
        let gone = one.receive::<u8>(PATIENCE);
        assert!(matches!(gone, Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof));
        assert!(one.send(&1_u8, &[], PATIENCE).is_err());
    }
}
