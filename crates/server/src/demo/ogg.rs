//! Packets of an Ogg file with one logical stream.
//!
//! In: a whole file. Out: its packets, put together again where they cross pages. Cost: one pass, packets are copied.
//! Source: RFC 3533 §6 (pages and lacing), RFC 7845 §3 (the two header packets of Opus).

// 0      4       5     6         14      18     22    26       27         27+n
// ┌──────┬───────┬─────┬─────────┬───────┬──────┬─────┬────────┬──────────┬────────┐   A lacing value of 255 says
// │ OggS │version│flags│ granule │serial │ page │ CRC │ n      │ n lacing │ bodies │   that the packet goes on in
// └──────┴───────┴─────┴─────────┴───────┴──────┴─────┴────────┴──────────┴────────┘   the next segment or page.

const SEGMENT_COUNT: usize = 26;

/// What is wrong with an Ogg file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum OggError {
    #[error("no Ogg page at byte {at}")]
    Signature { at: usize },
    #[error("cut off after {got} bytes")]
    Truncated { got: usize },
    #[error("no Opus: the first packet is no OpusHead (RFC 7845 §5.1)")]
    NotOpus,
}

/// The audio packets of an Ogg Opus file, without the two header packets.
pub fn opus_packets(file: &[u8]) -> Result<Vec<Vec<u8>>, OggError> {
    let mut packets = packets(file)?;
    if !packets.first().is_some_and(|head| head.starts_with(b"OpusHead")) {
        return Err(OggError::NotOpus);
    }
    packets.drain(..packets.len().min(2));
    Ok(packets)
}

fn packets(file: &[u8]) -> Result<Vec<Vec<u8>>, OggError> {
    let truncated = OggError::Truncated { got: file.len() };
    let (mut packets, mut packet) = (Vec::new(), Vec::new());
    let mut rest = file;
    while !rest.is_empty() {
        if !rest.starts_with(b"OggS") {
            return Err(OggError::Signature { at: file.len() - rest.len() });
        }
        let count = usize::from(*rest.get(SEGMENT_COUNT).ok_or(truncated)?);
        let (lacing, mut body) = rest[SEGMENT_COUNT + 1..].split_at_checked(count).ok_or(truncated)?;
        for &len in lacing {
            let (segment, after) = body.split_at_checked(usize::from(len)).ok_or(truncated)?;
            packet.extend_from_slice(segment);
            if len < 255 {
                packets.push(std::mem::take(&mut packet));
            }
            body = after;
        }
        rest = body;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_cross_segments_and_pages_are_put_together() {
        let long = vec![7; 600];
        let mut file = page(&[8, 3], b"OpusHeadtag");
        file.extend(page(&[255], &long[..255]));
        file.extend(page(&[255, 90, 0], &long[255..]));

        assert_eq!(opus_packets(&file), Ok(vec![long, vec![]]));
    }

    #[test]
    fn file_that_is_cut_off_within_a_page_is_refused() {
        let file = page(&[8, 3, 4], b"OpusHeadtagbody");

        for len in 4..file.len() {
            assert_eq!(opus_packets(&file[..len]), Err(OggError::Truncated { got: len }));
        }
    }

    #[test]
    fn vorbis_and_what_is_no_ogg_are_refused() {
        assert_eq!(opus_packets(&page(&[7], b"\x01vorbis")), Err(OggError::NotOpus));
        assert_eq!(opus_packets(b"RIFF"), Err(OggError::Signature { at: 0 }));
    }

    fn page(lacing: &[u8], body: &[u8]) -> Vec<u8> {
        let mut page = b"OggS".to_vec();
        page.resize(SEGMENT_COUNT, 0);
        page.push(lacing.len() as u8);
        page.extend(lacing);
        page.extend(body);
        page
    }
}
