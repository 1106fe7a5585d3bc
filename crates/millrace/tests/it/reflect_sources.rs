//! Sources that change: another format, another header, an encoder that breaks off and comes again.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{Server, wait_until};
use crate::reflect::{Pusher, Viewer, pieces, shown, stream};
use crate::skip::skip;

fn until_known(server: &Server, content_type: &str) {
    wait_until(content_type, || shown(server, "x")["content_type"] == content_type);
}

#[test]
fn another_format_ends_the_stream_for_who_watches_and_begins_it_for_who_comes() {
    let server = Server::start(&["reflect.streams=x"]);
    let bytes = stream(2_000, 50);
    let mut pusher = Pusher::begin(&server, "x", &[]);
    pusher.push(&bytes);
    until_known(&server, "video/mp2t");
    let mut before = Viewer::begin(&server, "x", false);
    assert_eq!(pusher.end(), 204);
    let mut other = Pusher::begin(&server, "x", &["Content-Type: audio/mpeg"]);
    let sound = [0xff, 0xfb, 0x90, 0].repeat(5_000);
    other.push(&sound);
    let mut body = Vec::new();
    before.socket().read_to_end(&mut body).expect("it ends");
    let pieces = pieces(&body, &bytes);
    assert!(pieces.len() == 1 && pieces[0].1 == bytes.len(), "{pieces:?}");
    until_known(&server, "audio/mpeg");
    let mut after = Viewer::begin(&server, "x", false);
    assert_eq!(after.header("content-type"), "audio/mpeg");
    other.push(&sound);
    after.socket().read_exact(&mut [0; 10_000]).expect("more of it");
    assert_eq!(other.end(), 204);
}

#[test]
fn a_header_that_has_grown_comes_before_what_is_behind_it() {
    let server = Server::start(&["reflect.streams=x"]);
    let [one, other] = [20, 30_000].map(flv);
    let mut pusher = Pusher::begin(&server, "x", &[]);
    pusher.push(&one);
    until_known(&server, "video/x-flv");
    let mut watches = Viewer::begin(&server, "x", false);
    let read = |viewer: &mut Viewer, len: usize| {
        let mut bytes = vec![0; len];
        viewer.socket().read_exact(&mut bytes).expect("so much");
        bytes
    };
    assert!(read(&mut watches, one.len()) == one);
    assert_eq!(pusher.end(), 204);
    let mut pusher = Pusher::begin(&server, "x", &[]);
    pusher.push(&other);
    // The file's own header is not repeated.
    assert!(read(&mut watches, other.len() - FLV.len()) == other[FLV.len()..]);
    let mut comes = Viewer::begin(&server, "x", false);
    assert!(read(&mut comes, other.len()) == other);
    assert_eq!(pusher.end(), 204);
}

const FLV: &[u8] = b"FLV\x01\x01\0\0\0\x09\0\0\0\0";

/// A decoder's configuration of so many bytes, a key frame, and pictures behind it.
fn flv(header_len: usize) -> Vec<u8> {
    let tag = |data: &[u8]| {
        let len = (data.len() as u32).to_be_bytes();
        [&[9, len[1], len[2], len[3], 0, 0, 0, 0, 0, 0, 0], data, &(data.len() as u32 + 11).to_be_bytes()].concat()
    };
    let header = tag(&[&[0x17, 0, 0, 0, 0, 1, 0x64, 0, 0x1f, 0xff][..], &vec![7; header_len]].concat());
    let picture = |first: u8| tag(&[&[first, 1, 0, 0, 0][..], &[first; 1_000]].concat());
    [FLV, &header, &picture(0x17), &picture(0x27), &picture(0x27)].concat()
}

/// As OBS has it in "Custom Output (FFmpeg)": ffmpeg's libraries write to an address of HTTP.
fn encoder(server: &Server, muxer: &str) -> Option<Child> {
    let picture = "-nostdin -v error -re -f lavfi -i testsrc2=size=160x120:rate=25 -re -f lavfi -i sine=frequency=440";
    let codecs = "-pix_fmt yuv420p -c:v libx264 -preset ultrafast -tune zerolatency -g 12 -c:a aac -method PUT -f";
    let args = picture.split(' ').chain(codecs.split(' ')).chain([muxer]);
    let url = format!("{}/live/x", server.url());
    Command::new("ffmpeg").args(args).arg(url).stdin(Stdio::null()).spawn().ok()
}

/// Pictures that ffmpeg decodes of it.
fn pictures(bytes: &[u8]) -> usize {
    let args = "-v quiet -i pipe:0 -map 0:v -fps_mode passthrough -f framemd5 pipe:1".split(' ');
    let mut child =
        Command::new("ffmpeg").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it ran before");
    let mut input = child.stdin.take().expect("piped");
    let output = thread::scope(|scope| {
        // It may have seen enough.
        scope.spawn(move || input.write_all(bytes).ok());
        child.wait_with_output().expect("it ends")
    });
    output.stdout.split(|byte| *byte == b'\n').filter(|line| line.first().is_some_and(u8::is_ascii_digit)).count()
}

#[test]
fn what_obs_runs_is_watched_and_goes_on_when_it_comes_again() {
    for (muxer, content_type) in [("mpegts", "video/mp2t"), ("flv", "video/x-flv")] {
        let server = Server::start(&["reflect.streams=x"]);
        let Some(mut first) = encoder(&server, muxer) else { return skip("what OBS runs: ffmpeg is not installed") };
        until_known(&server, content_type);
        let mut viewer = Viewer::begin(&server, "x", false);
        let body = Arc::<Mutex<Vec<u8>>>::default();
        let grows = body.clone();
        let reads = thread::spawn(move || {
            let mut piece = [0; 16 * 1_024];
            while let Ok(count @ 1..) = viewer.socket().read(&mut piece) {
                grows.lock().expect("whole").extend_from_slice(&piece[..count]);
            }
        });
        let got = || body.lock().expect("whole").clone();
        wait_until("pictures", || pictures(&got()) > 12);
        first.kill().expect("it runs");
        first.wait().expect("it ends");
        wait_until("it is seen to be gone", || shown(&server, "x")["live"] == false);
        let before = pictures(&got());
        let mut second = encoder(&server, muxer).expect("it ran before");
        wait_until("more pictures", || pictures(&got()) > before + 12);
        second.kill().expect("it runs");
        second.wait().expect("it ends");
        assert_eq!(shown(&server, "x")["viewers"], 1, "he stayed");
        drop(server);
        reads.join().expect("it ends");
    }
}
