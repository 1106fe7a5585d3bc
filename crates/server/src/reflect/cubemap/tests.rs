use proptest::prelude::*;

use super::*;
use crate::config::{ReflectStream, StreamPace};

/// What ours has after it.
fn read(text: &str) -> (Config, Vec<Note>) {
    let Imported { toml, notes } = import(text);
    let mut config = Config::default();
    if let Err(error) = config.apply_toml("imported", &toml) {
        panic!("{error}\n{toml}");
    }
    (config, notes)
}

fn said<'a>(notes: &'a [Note], option: &str) -> &'a str {
    notes.iter().find(|note| note.option == option).map_or("", |note| &note.says)
}

/// With a port, so that nothing is missing.
fn stream(parameters: &str) -> (ReflectStream, Vec<Note>) {
    let (mut config, notes) = read(&format!("port 9094\nstream /a.ts {parameters}\n"));
    assert_eq!(config.reflect.streams.len(), 1, "{notes:?}");
    (config.reflect.streams.remove(0), notes)
}

#[test]
fn a_reflector_goes_on_where_it_was() {
    let (config, notes) = read(
        "# A comment.
        num_servers 4
        port 9094                      # all addresses
        error_log type=console
        gen204 /ping allow_origin=*
        stream /news.flv src=http://encoder.example:4013/news.flv
        stream /sport.ts src=udp://@239.1.1.1:1234 backlog_size=1048576 pacing_rate_kbit=2000
        stream /old/a+b.ts src=http://encoder.example/a.ts src_encoding=raw allow_origin=*
        ",
    );
    assert!(
        notes.len() == 1 && said(&notes, "stream").contains("/old/a+b.ts"),
        "a path has plain characters: {notes:?}"
    );
    assert_eq!((config.workers.count, config.http.listen), (4, "[::]:9094".parse().expect("an address")));
    let streams = &config.reflect.streams;
    let places: Vec<_> = streams.iter().map(|stream| (&*stream.name, stream.path())).collect();
    let place = |name, path: &str| (name, path.to_owned());
    assert_eq!(places[..2], [place("news.flv", "/news.flv"), place("sport.ts", "/sport.ts")]);
    assert_eq!(
        (streams[1].backlog.0, streams[1].pace),
        (1 << 20, StreamPace::Rate("2000kbps".parse().expect("a rate")))
    );
    assert_eq!(streams.len(), 2);
}

#[test]
fn tls_has_its_address_and_its_certificates() {
    let tls = "tls_cert=/etc/fullchain.pem tls_key=/etc/key.pem";
    let (config, notes) =
        read(&format!("listen [::]:443 {tls}\nlisten 127.0.0.1:9095\nport 8080\nlisten [::]:444 {tls}\n"));
    assert_eq!(config.http.tls_listen, "[::]:443".parse().ok());
    assert_eq!(config.http.listen, "127.0.0.1:9095".parse().expect("an address"));
    assert_eq!(config.tls.certificates.len(), 2);
    let lines: Vec<_> = notes.iter().filter_map(|note| Some((note.line?, &*note.option))).collect();
    assert_eq!(lines, [(3, "port"), (4, "listen")]);
    assert!(said(&read(&format!("listen [::]:443 {tls}\n")).1, "port").contains("127.0.0.1:8080"));
}

#[test]
fn playlists_move_and_keep_their_segments() {
    let parameters = "src=http://a.example/a.mp4 hls_playlist=/a.m3u8 hls_frag_duration=6 hls_backlog_margin=1048576";
    let (stream, notes) = stream(parameters);
    assert!(stream.hls && stream.hls_segment.as_secs() == 6);
    assert_eq!(said(&notes, "stream /a.ts hls_playlist"), "the playlist is at /a.ts/index.m3u8");
    assert!(said(&notes, "stream /a.ts hls_backlog_margin").contains("a third of the backlog"));
    assert_eq!(notes.len(), 2);
}

#[test]
fn another_cubemap_has_its_framing_beside_the_stream() {
    let source = "src=http://a.example/a.ts";
    for lines in [
        format!("stream /a.ts {source}\nstream /a.ts.metacube {source} encoding=metacube\n"),
        format!("stream /a.ts.metacube {source} encoding=metacube\nstream /a.ts {source} encoding=raw\n"),
        format!("stream /a.ts.metacube {source} encoding=metacube\n"),
    ] {
        let (config, notes) = read(&format!("port 1\n{lines}"));
        let [stream] = &config.reflect.streams[..] else { panic!("{lines}") };
        assert!(stream.metacube && stream.path() == "/a.ts" && notes.is_empty(), "{notes:?}");
    }
    let (one, notes) = stream(&format!("{source} encoding=metacube"));
    assert!(one.metacube && said(&notes, "encoding").contains("/a.ts.metacube"));
    let (_, notes) =
        read(&format!("port 1\nstream /a.ts {source}\nstream /a.ts.metacube src=http://b/ encoding=metacube\n"));
    assert!(said(&notes, "stream").contains("already"));
}

#[test]
fn what_has_no_counterpart_is_said_with_its_line() {
    let (config, notes) = read(
        "port 9094
        daemonize
        stats_file /var/lib/cubemap/cubemap.stats
        stats_interval 60
        access_log /var/log/cubemap/access.log
        error_log type=file filename=/var/log/cubemap/cubemap.log
        stream /a.ts src=http://a.example/a.ts force_prebuffer=1500000 colour=red
        stream /a.ts src=http://a.example/b.ts
        stream /gone.ts src=delete
        stream /none.ts
        udpstream 233.252.0.1:5002 src=http://a.example/a.ts ttl=32
        gen204 /alive
        nonsense
        ",
    );
    assert_eq!(config.reflect.access_log.as_deref(), Some("/var/log/cubemap/access.log"));
    assert_eq!(config.reflect.streams.len(), 1);
    let lines: Vec<_> = notes.iter().filter_map(|note| note.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13]);
    assert!(said(&notes, "stream /a.ts force_prebuffer").contains("join = \"5s\""));
    assert!(said(&notes, "gen204").contains("/ping") && said(&notes, "udpstream").contains("/pump/sessions"));
}

#[test]
fn pages_of_the_same_origins_may_read_streams() {
    let origins = |of: &[&str]| {
        let line = |(number, origin): (usize, &&str)| format!("stream /{number} src=http://a/ allow_origin={origin}\n");
        let text: String = of.iter().enumerate().map(line).collect();
        read(&text).0.http.cors_origins.into_iter().map(|origin| origin.0).collect::<Vec<_>>()
    };
    assert_eq!((origins(&[]), origins(&["*"])), (vec!["*".to_owned()], vec!["*".to_owned()]));
    assert_eq!(
        origins(&["https://a.example", "https://b.example", "https://a.example"]),
        ["https://a.example", "https://b.example"]
    );
    assert_eq!(origins(&["https://a.example", "*"]), ["*"]);
}

proptest! {
    #[test]
    fn no_file_makes_ours_none(lines in prop::collection::vec(line(), 0..12)) {
        read(&lines.join("\n"));
    }
}

/// Lines that somebody might write.
fn line() -> impl Strategy<Value = String> {
    let keyword = prop::sample::select(vec![
        "num_servers",
        "port",
        "listen",
        "access_log",
        "stats_file",
        "error_log",
        "gen204",
        "udpstream",
        "stream",
        "stream",
        "",
    ]);
    let argument = prop_oneof!["[0-9]{1,7}", "/[a-z./ ]{0,6}", Just("[::]:80".to_owned()), "[ -~]{0,12}"];
    let parameter = (
        prop::sample::select(vec![
            "src",
            "src",
            "encoding",
            "src_encoding",
            "backlog_size",
            "pacing_rate_kbit",
            "hls_playlist",
            "hls_frag_duration",
            "allow_origin",
            "tls_cert",
            "tls_key",
        ]),
        prop_oneof![
            "[0-9]{1,20}",
            "http://[a-z]{1,3}/",
            "udp://@239\\.1\\.1\\.1:[0-9]{1,5}",
            "[ -~]{0,9}",
            Just("*".to_owned())
        ],
    );
    let parameter = parameter.prop_map(|(key, value)| format!("{key}={value}"));
    (keyword, argument, prop::collection::vec(parameter, 0..4))
        .prop_map(|(keyword, argument, parameters)| format!("{keyword} {argument} {}", parameters.join(" ")))
}
