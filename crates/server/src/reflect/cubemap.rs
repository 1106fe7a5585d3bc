//! A configuration of Cubemap (`cubemap.config`) as one of ours, and what of it has no counterpart.
//!
//! In: the text of the file. Out: TOML that `Config::load` takes, and a note for each thing that means something else here,
//! or nothing, with the reason. Nothing is left out in silence.
//! Source: the options of Cubemap 1.4.3, as the sample that comes with it explains them.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use crate::config::Config;
use crate::import::{Imported, Note, Settings, number, quoted};

/// What ours begins with.
const BEGINNING: &str =
    "# Made of a cubemap.config by `millrace import cubemap`.\n# millrace serve --config FILE runs it.\n";

const STATISTICS: &str = "each stream's and each viewer's numbers are at /metrics and in the API";
const LOGS: &str = "logs go to the standard error, from where the system takes them (log.filter, log.format)";
const PROCESS: &str = "the system's service manager does this";
const PING: &str = "what answers 204 and nothing else is at /ping";
const PLAYLIST: &str =
    "the playlist lists a third of the backlog, and what is taken off the list is there for as long again";
const PREBUFFER: &str = "a viewer begins at the newest start point, and has something to show at once; join = \"5s\" in the stream's \
                         table begins so far back";
const UDP_OUT: &str =
    "the pump sends streams by UDP: its source is a [[pump.live]], and POST /pump/sessions says where to";

/// Reads a file of Cubemap.
pub fn import(text: &str) -> Imported {
    let mut importer = Importer::default();
    for (number, line) in (1..).zip(text.lines()) {
        importer.read(number, line);
    }
    importer.finish()
}

/// What the path of a stream in Cubemap's framing ends with.
const FRAMED: &str = ".metacube";

/// What was read so far.
#[derive(Default)]
struct Importer {
    settings: Settings,
    streams: Vec<Stream>,
    /// Pages of which others may read streams; Cubemap has this for each stream.
    origins: Vec<String>,
    notes: Vec<Note>,
}

/// A table of ours.
#[derive(Default)]
struct Stream {
    path: String,
    source: String,
    name: String,
    /// Keys, and what they are in TOML.
    settings: Vec<(&'static str, String)>,
}

/// A line, apart: what has a `=` in it is a parameter, anything else an argument.
struct Line<'a> {
    number: usize,
    keyword: &'a str,
    arguments: Vec<&'a str>,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    fn parse(number: usize, text: &'a str) -> Option<Self> {
        let mut words = text.split('#').next()?.split_whitespace();
        let keyword = words.next()?;
        let (parameters, arguments): (Vec<_>, Vec<_>) = words.partition(|word| word.contains('='));
        let parameters = parameters.into_iter().filter_map(|word| word.split_once('=')).collect();
        Some(Line { number, keyword, arguments, parameters })
    }

    fn argument(&self) -> Result<&'a str, String> {
        match self.arguments[..] {
            [argument] => Ok(argument),
            _ => Err("left out: it takes one argument".to_owned()),
        }
    }

    fn parameter(&self, key: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

impl Importer {
    fn read(&mut self, number: usize, text: &str) {
        let Some(line) = Line::parse(number, text) else { return };
        if let Err(says) = self.take(&line) {
            self.note(number, line.keyword, says);
        }
    }

    fn note(&mut self, line: usize, option: &str, says: impl Into<String>) {
        self.notes.push(Note { line: Some(line), option: option.to_owned(), says: says.into() });
    }

    /// Takes what has a counterpart. The error says why it was not taken, or what is another way.
    fn take(&mut self, line: &Line<'_>) -> Result<(), String> {
        match line.keyword {
            "num_servers" => self.settings.set("workers", "count", number::<u16>(line.argument()?)?.to_string()),
            "port" => self.listen(line, &format!("[::]:{}", number::<u16>(line.argument()?)?)),
            "listen" => self.listen(line, line.argument()?),
            "access_log" => {
                self.settings.set("reflect", "access_log", quoted(line.argument()?))?;
                Err("its lines have the combined form here, as those of web servers have".to_owned())
            }
            "stats_file" | "stats_interval" | "input_stats_file" | "input_stats_interval" => Err(STATISTICS.to_owned()),
            "error_log" if line.parameter("type") == Some("console") => Ok(()),
            "error_log" => Err(LOGS.to_owned()),
            "daemonize" => Err(PROCESS.to_owned()),
            "gen204" if line.argument()? == "/ping" => Ok(()),
            "gen204" | "ping" => Err(PING.to_owned()),
            "udpstream" => Err(UDP_OUT.to_owned()),
            "stream" => self.stream(line),
            _ => Err("Cubemap has no such option, as far as is known here".to_owned()),
        }
    }

    /// There is one address for HTTP, and one for HTTPS.
    fn listen(&mut self, line: &Line<'_>, addr: &str) -> Result<(), String> {
        let files = line.parameter("tls_cert").zip(line.parameter("tls_key"));
        let key = if files.is_some() { "tls_listen" } else { "listen" };
        if let Some((certificate, its_key)) = files {
            let files = format!("{{ certificate = {}, key = {} }}", quoted(certificate), quoted(its_key));
            self.settings.push("tls", "certificates", files)?;
        }
        if self.settings.has("http", key) {
            return Err(format!("left out: http.{key} is one address; [::] is all of this machine"));
        }
        self.settings.set("http", key, quoted(addr))
    }

    fn stream(&mut self, line: &Line<'_>) -> Result<(), String> {
        let path = line.argument()?;
        let is_framed = line.parameter("encoding") == Some("metacube");
        let Some(source) = line.parameter("src") else {
            return Err(
                "left out: it has no src; here a stream without one is pushed (PUT or POST to its path)".to_owned()
            );
        };
        if source == "delete" {
            return Err("left out: it has src=delete".to_owned());
        }
        // What is framed stands beside what is not.
        let plain = if is_framed { path.strip_suffix(FRAMED).unwrap_or(path) } else { path };
        let mut stream = match self.streams.iter().position(|other| other.path == plain) {
            Some(index) if self.streams[index].source == source => self.streams.remove(index),
            Some(_) => return Err(format!("left out: there is a stream at {plain} already")),
            None => self.new_stream(plain, source)?,
        };
        if is_framed && plain == path {
            self.note(
                line.number,
                "encoding",
                format!("what has the framing is at {path}{FRAMED}, and {path} is without it"),
            );
        }
        for (key, value) in &line.parameters {
            if let Err(says) = self.parameter(&mut stream, key, value) {
                self.note(line.number, &format!("stream {path} {key}"), says);
            }
        }
        self.streams.push(stream);
        Ok(())
    }

    fn new_stream(&self, path: &str, source: &str) -> Result<Stream, String> {
        let (name, settings) = (self.name_for(path), Vec::new());
        let mut stream = Stream { path: path.to_owned(), source: source.to_owned(), name, settings };
        stream.set("path", quoted(path))?;
        stream.set("source", format!("[{}]", quoted(source)))?;
        Ok(stream)
    }

    /// One that no other stream has: of what the path has that a name can have.
    fn name_for(&self, path: &str) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let plain: String = path.trim_matches('/').chars().map(|c| if fits(c) { c } else { '-' }).take(48).collect();
        let plain = if plain.is_empty() { "stream".to_owned() } else { plain };
        let is_free = |name: &String| self.streams.iter().all(|other| other.name != *name);
        let others = (2..).map(|number| format!("{plain}-{number}"));
        std::iter::once(plain.clone()).chain(others).find(is_free).unwrap_or_default()
    }

    fn parameter(&mut self, stream: &mut Stream, key: &str, value: &str) -> Result<(), String> {
        match key {
            "src" => Ok(()),
            // Which it is can be seen.
            "src_encoding" if value == "raw" || value == "metacube" => Ok(()),
            "encoding" if value == "raw" => Ok(()),
            "encoding" if value == "metacube" => stream.set("metacube", "true".to_owned()),
            "backlog_size" => {
                let bytes: u64 = number(value)?;
                stream.set("backlog", quoted(&format!("{}B", bytes.clamp(64 << 10, 4 << 30))))
            }
            "pacing_rate_kbit" => match number::<u64>(value)? {
                0 => stream.set("pace", quoted("free")),
                kbit => stream.set("pace", quoted(&format!("{kbit}kbps"))),
            },
            "force_prebuffer" => Err(PREBUFFER.to_owned()),
            "hls_playlist" => {
                stream.set("hls", "true".to_owned())?;
                let ours = format!("{}/index.m3u8", stream.path);
                if value == ours { Ok(()) } else { Err(format!("the playlist is at {ours}")) }
            }
            "hls_frag_duration" => {
                let seconds: u64 = number(value)?;
                stream.set("hls_segment", quoted(&format!("{}s", seconds.clamp(1, 60))))
            }
            "hls_backlog_margin" => Err(PLAYLIST.to_owned()),
            "allow_origin" => {
                if !self.origins.iter().any(|origin| origin == value) {
                    self.origins.push(value.to_owned());
                }
                Ok(())
            }
            _ => Err("Cubemap has no such parameter, as far as is known here".to_owned()),
        }
    }

    /// Everybody is the default, and there is one list for all streams.
    fn finish_origins(&mut self) {
        if self.origins.iter().any(|origin| origin == "*") {
            return;
        }
        for origin in std::mem::take(&mut self.origins) {
            let says = match self.settings.push("http", "cors_origins", quoted(&origin)) {
                Ok(()) => "http.cors_origins is for all streams, and for the rest of what is served".to_owned(),
                Err(says) => format!("{origin}: {says}"),
            };
            self.notes.push(Note { line: None, option: "allow_origin".to_owned(), says });
        }
    }

    fn finish(mut self) -> Imported {
        self.finish_origins();
        if !self.settings.has("http", "listen") {
            let says = "no port without TLS is in this file; http.listen is 127.0.0.1:8080 unless it is set";
            self.notes.push(Note { line: None, option: "port".to_owned(), says: says.to_owned() });
        }
        let mut toml = BEGINNING.to_owned() + &self.settings.toml(&["http", "tls", "workers", "reflect"]);
        for stream in &self.streams {
            let _ = write!(toml, "\n[[reflect.streams]]\nname = {}\n", quoted(&stream.name));
            for (key, value) in &stream.settings {
                let _ = writeln!(toml, "{key} = {value}");
            }
        }
        Imported { toml, notes: self.notes }
    }
}

impl Stream {
    /// Sets what is not set yet. The error says why it will not do.
    fn set(&mut self, key: &'static str, value: String) -> Result<(), String> {
        let table = format!("[[reflect.streams]]\nname = \"a\"\n{key} = {value}");
        let checked = Config::default().apply_toml("", &table);
        checked.map_err(|error| format!("left out: {key}: {}", error.message))?;
        if !self.settings.iter().any(|(other, _)| *other == key) {
            self.settings.push((key, value));
        }
        Ok(())
    }
}
