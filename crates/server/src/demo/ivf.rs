//! IVF, the plain container of libvpx: a file header, then frames with a length and a presentation time each.
//!
//! In: a whole file. Out: its codec, time base and frames. Cost: one pass, frames are borrowed.
//! Source: libvpx, `ivfdec.c` and `ivfenc.c`; all fields are little-endian.

// 0      4       6        8      12     14      16     20     24            32
// ┌──────┬───────┬────────┬──────┬──────┬───────┬──────┬──────┬──────────────┐   then per frame: u32 length,
// │ DKIF │version│ header │fourcc│width │height │ rate │scale │ frames, zero │   u64 time in scale/rate seconds,
// └──────┴───────┴────────┴──────┴──────┴───────┴──────┴──────┴──────────────┘   and so many bytes.

const HEADER_SIZE: usize = 32;
const FRAME_HEADER_SIZE: usize = 12;

/// An IVF file, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ivf<'a> {
    pub fourcc: [u8; 4],
    /// Units of time per second, as a fraction.
    pub rate: u32,
    pub scale: u32,
    pub frames: Vec<IvfFrame<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IvfFrame<'a> {
    /// Presentation time in `scale / rate` seconds.
    pub time: u64,
    pub data: &'a [u8],
}

/// What is wrong with an IVF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum IvfError {
    #[error("no IVF file: it does not begin with DKIF")]
    Signature,
    #[error("cut off after {got} bytes")]
    Truncated { got: usize },
}

impl<'a> Ivf<'a> {
    pub fn parse(file: &'a [u8]) -> Result<Self, IvfError> {
        let truncated = IvfError::Truncated { got: file.len() };
        if !file.starts_with(b"DKIF") {
            return Err(IvfError::Signature);
        }
        let fourcc = array(file, 8).ok_or(truncated)?;
        let rate = u32::from_le_bytes(array(file, 16).ok_or(truncated)?);
        let scale = u32::from_le_bytes(array(file, 20).ok_or(truncated)?);
        let mut frames = Vec::new();
        let mut rest = file.get(HEADER_SIZE..).ok_or(truncated)?;
        while !rest.is_empty() {
            let len = u32::from_le_bytes(array(rest, 0).ok_or(truncated)?) as usize;
            let time = u64::from_le_bytes(array(rest, 4).ok_or(truncated)?);
            let frame = rest.get(FRAME_HEADER_SIZE..).ok_or(truncated)?;
            let (data, after) = frame.split_at_checked(len).ok_or(truncated)?;
            frames.push(IvfFrame { time, data });
            rest = after;
        }
        Ok(Self { fourcc, rate, scale, frames })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_two_frames_is_taken_apart() {
        let file = file(&[(0, b"one"), (1, b"three")]);

        let ivf = Ivf::parse(&file).expect("it is whole");

        assert_eq!((&ivf.fourcc, ivf.rate, ivf.scale), (b"VP80", 30, 1));
        assert_eq!(ivf.frames, [IvfFrame { time: 0, data: b"one" }, IvfFrame { time: 1, data: b"three" }]);
    }

    #[test]
    fn file_that_is_cut_off_anywhere_but_between_frames_is_refused() {
        let file = file(&[(0, b"one")]);

        for len in 4..file.len() {
            let whole = len == HEADER_SIZE;
            assert_eq!(Ivf::parse(&file[..len]).is_ok(), whole, "{len} bytes");
        }
    }

    #[test]
    fn something_else_is_refused() {
        assert_eq!(Ivf::parse(b"RIFF and more"), Err(IvfError::Signature));
    }

    fn file(frames: &[(u64, &[u8])]) -> Vec<u8> {
        let mut file = b"DKIF\0\0\x20\0VP80".to_vec();
        file.extend([0x80, 2, 0x68, 1, 30, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (time, data) in frames {
            file.extend((data.len() as u32).to_le_bytes());
            file.extend(time.to_le_bytes());
            file.extend(*data);
        }
        file
    }
}
