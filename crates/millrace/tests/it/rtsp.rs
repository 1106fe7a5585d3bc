//! RTSP by the binary itself, with ffmpeg as the player: what it decodes is what is in the title.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use crate::common::{Server, free_addr};
use crate::skip::skip;

/// A constant rate, filled up with null packets; and what comes from an encoder that has a quality to keep.
const TITLES: [(&str, &str); 2] = [
    ("cbr.ts", "-c:v mpeg2video -b:v 2M -minrate 2M -maxrate 2M -bufsize 800k -g 12 -c:a mp2 -muxrate 2600k"),
    ("vbr.ts", "-c:v libx264 -preset ultrafast -g 25 -c:a aac"),
];

#[test]
fn ffmpeg_plays_titles_by_rtsp_without_an_error_and_gets_every_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(titles) = make(folder.path()) else {
        skip("ffmpeg as a player of RTSP: it is not installed, or has no libx264 or mpeg2video");
        return;
    };
    let listen = free_addr();
    let media = format!("pump.media={}", folder.path().display());
    let rtsp = format!("pump.rtsp_listen={listen}");
    let server = Server::start(&[&media, "pump.destinations=127.0.0.0/8", &rtsp]);

    let plays: Vec<_> =
        ["udp", "tcp"].into_iter().flat_map(|way| titles.iter().map(move |title| (way, title))).collect();
    thread::scope(|scope| {
        for (way, title) in plays {
            let uri = format!("rtsp://{listen}/{}", title.file_name().and_then(|name| name.to_str()).expect("a name"));
            scope.spawn(move || {
                let flags = ["-rtsp_transport", way];
                let (received, expected) = (pictures(&flags, &uri), pictures(&[], &title.display().to_string()));
                // Without a packet behind it, ffmpeg's reader of streams in RTP keeps the last picture to itself.
                let expected = &expected[..expected.len() - 1];
                assert_eq!(received, expected, "{uri} by {way}");
                // It seeks by the title's clock, and shows only what that says is not before. What it had read when it
                // sought may spoil the first pictures, up to the next that stands alone.
                let later = pictures(&[&flags[..], &["-ss", "1"]].concat(), &uri);
                let last = later.len().checked_sub(20).map(|from| &later[from..]);
                assert!(last.is_some_and(|last| expected.ends_with(last)), "{uri} by {way}: {}", later.len());
            });
        }
    });
    assert!(server.metric("millrace_pump_datagrams_total") > 0.0);
}

/// Makes the titles, of four seconds each.
fn make(folder: &Path) -> Option<Vec<PathBuf>> {
    let make = |(name, codecs): (&str, &str)| {
        let path = folder.join(name);
        let sources = "-f lavfi -i testsrc2=size=320x240:rate=25 -f lavfi -i sine=sample_rate=48000 -t 4";
        let mut command = ffmpeg(&sources.split(' ').chain(codecs.split(' ')).collect::<Vec<_>>());
        let output = command.args(["-f", "mpegts"]).arg(&path).output().ok()?;
        output.status.success().then_some(path)
    };
    TITLES.into_iter().map(make).collect()
}

/// A digest of each picture, in order. ffmpeg ends at the first error that it sees; but what it had read when it sought is
/// cut off in a picture.
fn pictures(flags: &[&str], input: &str) -> Vec<String> {
    let is_strict = !flags.contains(&"-ss");
    let strict: &[&str] = if is_strict { &["-xerror", "-err_detect", "explode"] } else { &[] };
    let mut command = ffmpeg(&[flags, strict, &["-i", input]].concat());
    // Each picture once, whatever its time.
    let output = command.args(["-map", "0:v", "-map", "0:a", "-fps_mode", "passthrough", "-f", "framemd5", "-"]);
    let Output { status, stdout, stderr } = output.output().expect("ffmpeg runs");
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success() && (said.is_empty() || !is_strict), "{input}: {status}, {said}");
    let text = String::from_utf8(stdout).expect("text");
    let of_video = text.lines().filter(|line| line.starts_with("0,"));
    of_video.filter_map(|line| line.rsplit(',').next()).map(|digest| digest.trim().to_owned()).collect()
}

fn ffmpeg(flags: &[&str]) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-nostdin", "-loglevel", "warning"]).args(flags);
    command
}
