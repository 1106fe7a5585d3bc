//! Live byte streams, as HTTP carries them: what each newcomer must have first, and where it may start.
//!
//! In: the bytes of a stream as they come, cut anywhere. Out: its header, whenever that changes, and its start points:
//! offsets from which, behind the header, a player shows a picture at once.
//! Nothing of the media is copied: what is kept is the header, and what spans a cut. No sockets, no clock.
//!
//! A transport stream out of step is taken up again by itself. In the other formats each length says where the next
//! element is, so what is wrong there is an [`Error`], and the source is to be asked anew.
#![forbid(unsafe_code)]

mod codecs;
mod flv;
mod format;
mod matroska;
pub mod metacube;
mod mp4;
mod reader;
mod ts;

pub use format::{DETECT_LEN, Format, raw_content_type};
pub use reader::{ELEMENT_LEN_MAX, Error, Event, HEADER_LEN_MAX, Header, Reader, Start};
