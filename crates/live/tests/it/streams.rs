//! Streams as live encoders write them, made by ffmpeg, and what the reader says of them.

use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use live::{Event, Format, Header, Reader, Start};

/// A kind of stream: how ffmpeg makes it, and what is to be found.
pub struct Case {
    pub name: &'static str,
    pub format: Format,
    /// Encoders and the muxer.
    pub flags: &'static str,
    pub content_type: &'static str,
    pub codecs: &'static [&'static str],
}

/// Three seconds with a key frame every 12 pictures of 40 ms; all with sound. ffmpeg begins a cluster of
/// Matroska with a key frame when the one before has 4 KiB, which the rates provide for.
pub const CASES: &[Case] = &[
    Case {
        name: "H.264 in TS",
        format: Format::Ts,
        flags: "-c:v libx264 -preset veryfast -g 12 -sc_threshold 0 -bf 2 -c:a aac -f mpegts",
        content_type: "video/mp2t",
        codecs: &[],
    },
    Case {
        name: "H.265 in TS",
        format: Format::Ts,
        flags: "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=12:scenecut=0:open-gop=0 -c:a aac -f mpegts",
        content_type: "video/mp2t",
        codecs: &[],
    },
    Case {
        name: "MPEG-2 in TS",
        format: Format::Ts,
        flags: "-c:v mpeg2video -g 12 -sc_threshold 1000000000 -flags +cgop -b:v 300k -c:a mp2 -f mpegts",
        content_type: "video/mp2t",
        codecs: &[],
    },
    Case {
        name: "AAC in TS",
        format: Format::Ts,
        flags: "-vn -c:a aac -f mpegts",
        content_type: "video/mp2t",
        codecs: &[],
    },
    Case {
        name: "H.264 in FLV",
        format: Format::Flv,
        flags: "-c:v libx264 -preset veryfast -profile:v high -level 3 -g 12 -sc_threshold 0 -bf 2 -c:a aac -f flv",
        content_type: "video/x-flv",
        codecs: &["avc1.64001e", "mp4a.40.2"],
    },
    Case {
        name: "AAC in FLV",
        format: Format::Flv,
        flags: "-vn -c:a aac -f flv",
        content_type: "video/x-flv",
        codecs: &["mp4a.40.2"],
    },
    Case {
        name: "VP9 in WebM",
        format: Format::Matroska,
        flags: "-c:v libvpx-vp9 -b:v 400k -deadline realtime -cpu-used 8 -g 12 -keyint_min 12 -c:a libopus -f webm -live 1",
        content_type: "video/webm",
        codecs: &["vp9", "opus"],
    },
    Case {
        name: "AV1 in WebM",
        format: Format::Matroska,
        flags: "-c:v libsvtav1 -b:v 400k -preset 12 -g 12 -c:a libopus -f webm -live 1",
        content_type: "video/webm",
        codecs: &["av01.0.00M.08", "opus"],
    },
    Case {
        name: "Opus in WebM",
        format: Format::Matroska,
        flags: "-vn -c:a libopus -f webm -live 1 -cluster_time_limit 200",
        content_type: "audio/webm",
        codecs: &["opus"],
    },
    Case {
        name: "H.264 in Matroska",
        format: Format::Matroska,
        flags: "-c:v libx264 -preset veryfast -profile:v high -level 3 -g 12 -sc_threshold 0 -bf 0 -b:v 400k -c:a aac -f matroska -live 1",
        content_type: "video/x-matroska",
        codecs: &["avc1.64001e", "mp4a.40.2"],
    },
    Case {
        name: "H.264 in MP4",
        format: Format::Mp4,
        flags: "-c:v libx264 -preset veryfast -profile:v high -level 3 -g 12 -sc_threshold 0 -bf 2 -c:a aac -f mp4 -movflags frag_keyframe+empty_moov+default_base_moof",
        content_type: "video/mp4",
        codecs: &["avc1.64001e", "mp4a.40.2"],
    },
    Case {
        name: "H.265 in CMAF",
        format: Format::Mp4,
        flags: "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=12:scenecut=0:open-gop=0 -tag:v hvc1 -an -f mp4 -movflags frag_keyframe+empty_moov+cmaf+dash+delay_moov",
        content_type: "video/mp4",
        codecs: &["hvc1.1.6.L30.90"],
    },
    Case {
        name: "AAC in MP4",
        format: Format::Mp4,
        flags: "-vn -c:a aac -f mp4 -frag_duration 300000 -movflags empty_moov+default_base_moof",
        content_type: "audio/mp4",
        codecs: &["mp4a.40.2"],
    },
];

/// What a reader says of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    pub header: Option<Arc<Header>>,
    pub header_count: usize,
    pub starts: Vec<Start>,
}

/// Gives a reader the stream in pieces that end where `cuts` says, and at the end.
pub fn read(format: Format, stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> Told {
    let (mut reader, mut told, mut from) = (Reader::new(format), Told::default(), 0);
    for end in cuts.into_iter().chain([stream.len()]) {
        let (mut bytes, decided) = (&stream[from..end], reader.decided());
        from = end;
        while let Some(event) = reader.read(&mut bytes).expect("what ffmpeg writes") {
            match event {
                Event::Header(header) => {
                    (told.header, told.header_count) = (Some(header), told.header_count + 1);
                }
                Event::Start(start) => {
                    assert!(start.at >= decided, "{start:?}, decided up to {decided}");
                    told.starts.push(start);
                }
            }
        }
        assert!(bytes.is_empty());
        assert!(reader.boundary() <= reader.taken() && reader.taken() <= end as u64);
    }
    told
}

/// Streams of all cases; `None` without ffmpeg and all encoders.
pub fn streams() -> Option<&'static [Vec<u8>]> {
    static STREAMS: OnceLock<Option<Vec<Vec<u8>>>> = OnceLock::new();
    STREAMS.get_or_init(|| CASES.iter().map(|case| make(case.flags)).collect()).as_deref()
}

fn make(flags: &str) -> Option<Vec<u8>> {
    let source = "-v error -f lavfi -i testsrc2=size=160x120:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000 \
                  -t 3 -threads 1 -pix_fmt yuv420p";
    let flags: Vec<_> = source.split_whitespace().chain(flags.split_whitespace()).collect();
    let output = Command::new("ffmpeg").args(flags).arg("pipe:1").stdin(Stdio::null()).output().ok()?;
    output.status.success().then_some(output.stdout)
}
