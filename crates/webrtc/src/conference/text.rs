//! Writes the sections of a conference's descriptions, which may be both ways.

use crate::media::{Extension, Media};
use crate::sdp::Section;
use crate::select::FEEDBACK;
use crate::write::{Transport, Writer};
use wire::codec::MediaKind;

use crate::channels::MESSAGE_BYTES_MAX;

/// How one codec of a section is described.
pub(super) struct Format<'a> {
    pub media: &'a Media,
    /// Its parameters, as we say them.
    pub fmtp: &'a str,
    pub feedback: Vec<&'a str>,
}

/// Where a section stands.
pub(super) struct Head<'a> {
    pub media: &'a str,
    pub protocol: &'a str,
    pub mid: &'a str,
    pub direction: &'a str,
    pub reduced_size: bool,
}

/// One section with its codecs; those of both ways, each once.
pub(super) fn write_media(writer: &mut Writer, head: &Head<'_>, formats: &[Format<'_>], transport: &Transport<'_>) {
    let mut payload_types: Vec<u8> = Vec::new();
    let mut extensions: Vec<(u8, Extension)> = Vec::new();
    for media in formats.iter().map(|format| format.media) {
        for payload_type in media.payload_types() {
            if !payload_types.contains(&payload_type) {
                payload_types.push(payload_type);
            }
        }
        for extension in &media.extensions {
            if !extensions.contains(extension) {
                extensions.push(*extension);
            }
        }
    }
    let listed: String = payload_types.iter().map(|payload_type| format!(" {payload_type}")).collect();
    writer.line(format_args!("m={} 9 {}{listed}", head.media, head.protocol));
    writer.line("c=IN IP4 0.0.0.0");
    writer.line(format_args!("a=mid:{}", head.mid));
    writer.transport(transport);
    for (id, extension) in extensions {
        writer.line(format_args!("a=extmap:{id} {}", extension.uri()));
    }
    writer.line(format_args!("a={}", head.direction));
    writer.line("a=rtcp-mux");
    if head.reduced_size {
        writer.line("a=rtcp-rsize");
    }
    let mut written: Vec<u8> = Vec::new();
    for Format { media, fmtp, feedback } in formats {
        if !written.contains(&media.payload_type) {
            written.push(media.payload_type);
            writer.codec(media.codec, media.payload_type, media.rtx_payload_type, fmtp, feedback);
        }
        if let Some(red) = media.red.filter(|red| !written.contains(&red.payload_type)) {
            written.push(red.payload_type);
            writer.red(red, media.payload_type);
        }
    }
}

/// The section of the data channels (RFC 8841 §4).
pub(super) fn write_data(writer: &mut Writer, protocol: &str, mid: &str, transport: &Transport<'_>) {
    writer.line(format_args!("m=application 9 {protocol} webrtc-datachannel"));
    writer.line("c=IN IP4 0.0.0.0");
    writer.line(format_args!("a=mid:{mid}"));
    writer.transport(transport);
    writer.line("a=sctp-port:5000");
    writer.line(format_args!("a=max-message-size:{MESSAGE_BYTES_MAX}"));
}

/// The feedback that we offer.
pub(super) fn feedback(kind: MediaKind) -> Vec<&'static str> {
    match kind {
        MediaKind::Audio => vec!["transport-cc"],
        MediaKind::Video => [&FEEDBACK[..], &["goog-remb"]].concat(),
    }
}

/// The longest message that the other side takes (RFC 8841 §6): 64 KiB where it does not say, and 0 is any.
pub(super) fn message_bytes_max(section: &Section<'_>) -> usize {
    match section.max_message_size {
        None => 64 * 1024,
        Some(0) => MESSAGE_BYTES_MAX,
        Some(said) => said as usize,
    }
}
