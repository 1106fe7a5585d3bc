//! What an operator may choose. The doc comments in here are the reference that `millrace check --reference` prints.
//!
//! In: a TOML file, `MILLRACE_SECTION_KEY` in the environment over it, `--set section.key=value` over both.
//! Out: a `Config`, or a `ConfigError` that names the place, the key and what is allowed there.
//! Source: TOML 1.1; each setting is a line of the tables below and exists because something reads it.

mod acme;
mod certificate;
mod compare;
mod live;
mod livekit;
mod load;
mod output;
mod print;
mod reflect;
mod relay;
mod section;
mod source;
mod tables;
mod traces;
mod value;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use titles::Url;
use wire::{Bitrate, ListenOptions, UdpOptions};

pub use self::acme::Acme;
pub use self::reflect::{Reflect, ReflectStream, StreamFormat, StreamJoin, StreamLag, StreamPace};
pub use self::relay::{PortRange, Relay, RelayAddress, RelayUri, RelayUser, UserSecret};
pub use certificate::CertificateFiles;
pub use live::LiveInput;
pub use livekit::{ApiKey, Livekit};
pub use load::{ConfigError, SetIn};
pub use output::OutputConfig;
use section::{Table, section};
pub use source::{NoSource, PullSource, ReflectSource};
pub use traces::{Header, Traces};
pub use value::{Bytes, ForwardedBy, IceServer, LogFormat, Origin, Secret, duration, network};
use value::{any, between};

/// All settings. `Config::default()` is what an empty file gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[http]`
    pub http: Http,
    /// `[tls]`
    pub tls: Tls,
    /// `[acme]`
    pub acme: Acme,
    /// `[auth]`
    pub auth: Auth,
    /// `[workers]`
    pub workers: Workers,
    /// `[rtc]`
    pub rtc: Rtc,
    /// `[rooms]`
    pub rooms: Rooms,
    /// `[livekit]`
    pub livekit: Livekit,
    /// `[log]`
    pub log: Log,
    /// `[traces]`
    pub traces: Traces,
    /// `[pump]`
    pub pump: Pump,
    /// `[relay]`
    pub relay: Relay,
    /// `[reflect]`
    pub reflect: Reflect,
}

section! {
    /// Where WHIP, WHEP, the API and the pages are served.
    Http as "http" {
        /// Address and port that the HTTP server listens on. Elsewhere than on loopback, use `tls_listen` or put a TLS proxy in
        /// front: browsers give out camera and microphone on https and on localhost only.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), any;
        /// Address and port of the same under TLS (https), such as "0.0.0.0:443", with the certificates of `[tls]`.
        tls_listen: Option<SocketAddr> = None, any;
        /// There, browsers may speak HTTP/2.
        http2: bool = true, any;
        /// Load balancers that say whose a connection is before they pass it on (PROXY protocol, version 1 or 2): all from
        /// there to `listen` and `tls_listen` begin with it, and what others send is not read like that.
        proxy_protocol_from: Vec<IpNet> = Vec::new(), any;
        /// Origins whose pages may call this server (CORS), such as "https://example.org"; "*" is everyone. Where no token
        /// is needed (`auth.dev`), "*" does not count for `/api` and `/pump`: these are for pages of this server, of the
        /// browser's own machine, and of origins that are named here.
        cors_origins: Vec<Origin> = vec![Origin::any()], any;
        /// After SIGTERM, running sessions may go on for this long. New ones are refused meanwhile.
        drain_timeout: Duration = secs(10), between(secs(0), secs(86_400));
        /// HTTP connections at a time. Further ones wait until one ends; media is not affected.
        connections_max: usize = 10_000, between(1, 1_000_000);
        /// HTTP connections of one address (of one /64 of IPv6) at a time. Further ones are closed. Those of
        /// `trusted_proxies` are not counted.
        connections_per_client: usize = 1_000, between(1, 1_000_000);
        /// Reverse proxies in front of this server. They alone are believed when a request says whose it is
        /// (`forwarded_by`); limits per client go by that.
        trusted_proxies: Vec<IpNet> = loopback(), any;
        /// The header by which these proxies say it; they must add to it, or set it, themselves.
        forwarded_by: ForwardedBy = ForwardedBy::XForwardedFor, any;
        /// Address and port on which `/metrics` is served, such as "127.0.0.1:9100"; it is not at `listen` then.
        metrics_listen: Option<SocketAddr> = None, any;
        /// Who reads `/metrics` has to send this ("Authorization: Bearer …"). Not set: whoever reaches it may read it.
        metrics_token: Option<Secret> = None, any;
        /// `/metrics` is made anew when the last one is older than this.
        metrics_age_max: Duration = secs(1), between(secs(0), secs(60));
        /// A request's header must be here within this time, and its body as well; a connection without a request is
        /// closed after it. Behind a proxy that keeps connections open, make it longer than the proxy does.
        request_timeout: Duration = secs(30), between(secs(1), secs(3_600));
    }
}

section! {
    /// Certificates, and what whoever connects by TCP may take until it is known what he wants.
    Tls as "tls" {
        /// PEM files: a certificate with those above it, and its key. Of several the first is used that fits the name asked
        /// for, or else the first of all. They are read again when they change.
        certificates: Vec<CertificateFiles> = Vec::new(), any;
        /// Without `certificates`, make one for this host at each start. Browsers warn of it. For development.
        self_signed: bool = false, any;
        /// A newcomer has to have shown what he wants within this time: handshake and first request.
        handshake_timeout: Duration = newcomers().time, between(secs(1), secs(300));
        /// Newcomers at a time. When there are so many, one makes room for the next: of the address that has most the one
        /// that came first.
        newcomers_max: usize = newcomers().newcomers_max, between(1, 1_000_000);
        /// Newcomers of one address (of one /64 of IPv6) at a time. Further ones are closed.
        newcomers_per_client: usize = newcomers().newcomers_per_client, between(1, 1_000_000);
        /// TLS handshakes that one address (one /64 of IPv6) may begin in a second, and four times as many at once; up to
        /// twice that, as addresses share what they have by chance. Further connections are closed.
        handshakes_per_client: u16 = newcomers().handshakes_per_client, between(1, 10_000);
    }
}

section! {
    /// Who may publish and watch: bearers of a JSON Web Token (RFC 7519), signed with one of these keys.
    Auth as "auth" {
        /// Everyone may do everything, without a token. For development.
        dev: bool = false, any;
        /// Shared secret for tokens signed with HS256. At least 32 bytes (RFC 7518 §3.2).
        hs256_secret: Option<Secret> = None, value::long_enough;
        /// Public key for tokens signed with EdDSA (Ed25519), as PEM ("-----BEGIN PUBLIC KEY-----").
        eddsa_public_key: Option<String> = None, any;
        /// Tokens must carry this `iss` claim.
        issuer: Option<String> = None, any;
        /// Tokens must carry this `aud` claim.
        audience: Option<String> = None, any;
        /// A session ends this long after its token's `exp`, unless a request for it (such as GET …/stats) has shown a newer
        /// token. Not set: a token is asked for when a session begins, which then goes on for as long as its client likes.
        session_grace: Option<Duration> = None, any;
    }
}

section! {
    /// The threads that forward media. Each has a UDP port and a TCP port of its own.
    Workers as "workers" {
        /// Number of workers; 0 is one for each core.
        count: u16 = 0, between(0, 256);
        /// Binds each worker to a core of its own. Useful where nothing else runs on the machine.
        pin: bool = false, any;
        /// New publishers, viewers and participants are refused (503, to be tried again) while every worker is at work for a larger
        /// share of its time than this, so that those who are there are served on time. 1 refuses nobody.
        busy_max: f64 = 0.9, between(0.1, 1.0);
        /// Where datagrams come more often than this, a worker looks at what came once in this time: many share a wake-up, and each
        /// waits for half as long on average. So do reports and the rest of a burst. Not where the relay listens. 0: each is
        /// looked at when it comes.
        coalesce: Duration = ms(5), between(ms(0), ms(10));
        /// For how long ICE checks and receivers' reports may wait for something else that wakes a worker, where they come more often
        /// than that. Media does not, nor what asks for packets or pictures, unless it stands behind a report (RFC 5506 has it
        /// alone). On kernels that can tell them apart (Linux 4.5); a change takes a restart. 0: each is looked at when it comes.
        patience: Duration = ms(40), between(ms(0), ms(100));
        /// Addresses that workers listen on for publishers and viewers. IPv6 is left out where the machine has none. Empty: there
        /// are no rooms, as on a server that only relays.
        bind: Vec<IpAddr> = vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()], any;
        /// UDP port of the first worker; the second has the next one, and so on. 0 takes any free ports.
        udp_port: u16 = 20_000, any;
        /// ICE over TCP, for viewers whose network lets no UDP through: each worker listens on TCP too, on the
        /// number of its UDP port.
        tcp: bool = true, any;
        /// TCP connections at one address of one worker at most; fewer where the system's limit of open files, less what
        /// HTTP and RTSP may take, leaves fewer.
        tcp_links_max: usize = ListenOptions::default().links_max, between(1, 1_000_000);
        /// TCP connections from one address (of IPv6: one network of 64 bits) to one worker's address at most that have not
        /// shown yet, by an ICE check, that they belong to a session. They have ten seconds for it, and the oldest makes room for
        /// a newcomer. It is to hold all who join at once from one office. Behind a TCP load balancer, where all come from its
        /// address, make it larger.
        tcp_strangers_max: usize = 256, between(1, 1_000_000);
        /// Several packets for one receiver in one system call (UDP GSO), where the kernel can.
        gso: bool = socket().gso, any;
        /// Several packets from one sender in one system call (UDP GRO), where the kernel can.
        gro: bool = socket().gro, any;
        /// Kernel buffer of each socket and direction. More is limited by net.core.rmem_max and wmem_max.
        socket_buffer: Bytes = Bytes::mib(8), between(Bytes::kib(64), Bytes::mib(1024));
    }
}

section! {
    /// How browsers find the workers.
    Rtc as "rtc" {
        /// Addresses under which the workers are reached from outside, for the ICE candidates. Needed behind NAT and
        /// in clouds. Empty: the addresses that this machine has towards its default routes (those of its interfaces where
        /// there is none), and loopback when http.listen is loopback.
        public_addresses: Vec<IpAddr> = vec![], any;
        /// STUN and TURN servers that clients are told to use (Link header, RFC 9725 §4.6): a URL, and for TURN a
        /// user name and a credential after it: "turn:turn.example.org:3478?transport=udp user secret".
        ice_servers: Vec<IceServer> = vec![], any;
    }
}

section! {
    /// Streams and those who watch them.
    Rooms as "rooms" {
        /// A session from which nothing authentic came for this long is removed. 30s is what RFC 7675 gives a peer to
        /// prove that it still wants to be sent to. A peer that has nothing else to say proves it every 4 to 6 seconds,
        /// so below 12s one lost packet may end its session, and below 6s none need be lost.
        idle_timeout: Duration = rooms().idle_timeout, between(secs(5), secs(3_600));
        /// A stream whose publisher is gone is kept for this long; when the publisher returns, viewers go on watching.
        reconnect_grace: Duration = secs(10), between(secs(0), secs(3_600));
        /// Offers of one client that wait for it to connect, by its address (its /64 of IPv6), and a quarter as many by its token's
        /// `sub`. Further ones are refused (429, to be tried again). Who has one token for many clients leaves `sub` out.
        /// Publishers and viewers are counted apart.
        waiting_per_client: usize = directory().waiting_per_client, between(1, 1_000_000);
        /// Sessions of one client that are connected, by its address and by its token's `sub`. Further ones are refused (429, to
        /// be tried again). Addresses of `http.trusted_proxies` that do not say for whom they ask are not counted.
        sessions_per_client: usize = directory().sessions_per_client, between(1, 1_000_000);
        /// Sessions of one token without a `sub` that are connected. Further ones are refused (429, to be tried again).
        sessions_per_token: usize = directory().sessions_per_token, between(1, 1_000_000);
        /// Viewers of one stream. Further ones are refused (503, to be tried again).
        viewers_per_stream: usize = directory().viewers_per_stream, between(1, 1_000_000);
        /// A viewer goes to the worker of its stream's publisher while that is loaded no more than this, so that packets need
        /// not be copied to another worker. 0: to the one with the least to do, always.
        near_max: f64 = 0.5, between(0.0, 1.0);
        /// At most one keyframe request for each layer goes up to a publisher in this time.
        keyframe_interval_min: Duration = rooms().keyframe_interval_min, between(ms(50), secs(60));
        /// A new viewer starts with a stored keyframe that is no older than this, else a keyframe is asked for.
        keyframe_age_max: Duration = rooms().keyframe_age_max, between(ms(0), secs(60));
        /// Memory that each worker keeps of one layer's recent packets at most, for who is slow and for retransmissions.
        /// It takes as much as comes in two seconds; a layer of a higher rate than this holds in that time has less.
        log_max: Bytes = Bytes(rooms().log_bytes_max), between(Bytes::kib(256), Bytes::mib(1024));
        /// What came of a frame waits so long at most for the rest of it, so that it goes out in one send. Nothing waits where all
        /// viewers of a stream are on one worker, and fewer than eight. 0: never.
        gather: Duration = rooms().gather, between(ms(0), ms(50));
        /// Sound waits so long at most for the next picture of its stream, behind which it goes out at little cost; for nothing
        /// where pictures are more than 100 ms apart or have several layers, or `gather` lets nothing wait. 0: never.
        gather_sound: Duration = rooms().gather_sound, between(ms(0), ms(200));
        /// Sound where no picture is to be expected soon, as in rooms of LiveKit's protocol, waits so long at most for that of others
        /// whom its listeners hear, to go out with it; for nothing where they hear no other or are fewer than eight on a worker, or
        /// `gather` lets nothing wait. 0: never.
        gather_speakers: Duration = rooms().gather_speakers, between(ms(0), ms(50));
        /// Pads the packets of a frame to one size, so that they go out in one GSO send.
        equal_size_padding: bool = rooms().equal_size_padding, any;
        /// Packets for one viewer in one send at most. More costs less CPU, fewer is gentler to small router buffers.
        burst_packets: usize = rooms().burst.packets, between(1, 64);
        /// What a viewer is sent beyond a burst goes out at two and a half times the estimate of its path (20 Mbit/s where there
        /// is none), and at no less than this rate.
        burst_rate_min: Bitrate = rooms().burst.rate_min, between(kbps(100), kbps(10_000_000));
        /// How long players hold pictures back at least, up to 40 s: 0 shows each as soon as it is there, more evens out
        /// what the network does. Not set, it is as publishers say, and else as players choose.
        playout_delay: Option<Duration> = None, any;
        /// Share of a viewer's rate that retransmissions may take.
        resend_share: f64 = rooms().resend_share, between(0.0, 1.0);
        /// A viewer whose path has not carried half of the smallest picture for 3 s, with as few frames as can be, gets sound alone,
        /// until it does, or a try every 5 to 40 s goes well.
        pause: bool = rooms().pause, any;
        /// Viewers by WHEP report when each packet came (transport-wide feedback, some ten reports a second) only where they have
        /// layers to choose from. Of one layer they say about once a second what they take (REMB), which costs less here, and tells
        /// later of a narrow path: until it does they are paced at 20 Mbit/s, and sound has all the redundancy that loss asks for.
        /// false: all of them report, whose clients can.
        transport_cc_for_layers: bool = true, any;
        /// Bandwidth estimate of a new viewer.
        estimate_start: Bitrate = rooms().estimate_start, between(kbps(50), kbps(1_000_000));
        /// Highest bandwidth estimate of a viewer.
        estimate_max: Bitrate = rooms().estimate_max, between(kbps(50), kbps(10_000_000));
        /// Sessions of one worker at most, of which one in sixteen is for publishers; newcomers over that are refused.
        sessions_max: usize = rooms().sessions_max, between(1, 1_000_000);
    }
}

section! {
    /// What is written to standard error.
    Log as "log" {
        /// Levels: error, warn, info, debug, trace; for one part with its name, as in "error,server=debug".
        /// Libraries write a line for whatever a peer sends them wrongly, so the default has none of it but errors; what comes is
        /// counted.
        filter: String = "error,millrace=info,server=info,engine=info,titles=info,acme=info,audit=info".to_owned(), any;
        /// "text" for people, "json" for machines.
        format: LogFormat = LogFormat::Text, any;
    }
}

section! {
    /// Titles that are played to UDP destinations (MPEG-TS).
    Pump as "pump" {
        /// Folder of titles. They are named by their path from here.
        media: Option<String> = None, any;
        /// HTTP servers with range requests that have the titles which the folder has not: a URL each, to which a
        /// title's name is added. They are copies of each other, asked in this order.
        origins: Vec<Url> = vec![], any;
        /// Clients may name titles by any http or https URL. They can then make this server ask any host it reaches.
        allow_urls: bool = titles().allow_urls, any;
        /// Certificates (PEM) that are trusted beside the system's, for origins with private ones.
        ca_file: Option<String> = None, any;
        /// Memory for parts of titles, shared by all sessions.
        cache: Bytes = Bytes(titles().cache_bytes), between(Bytes::mib(8), Bytes::mib(1 << 20));
        /// Folder for parts of titles from origins.
        disk_cache: Option<String> = None, any;
        /// Most that the folder may take.
        disk_cache_size: Bytes = Bytes(titles().disk_cache_bytes as usize), between(Bytes::mib(16), Bytes::mib(1 << 26));
        /// Networks that sessions may send to. An empty list allows nothing. Loopback, private and link-local networks
        /// and groups (multicast) are only allowed by a network within them, such as "10.0.0.0/8" or "239.0.0.0/8".
        destinations: Vec<IpNet> = vec![], any;
        /// Most that all sessions together may take, by the titles' average rates and with packet headers. New ones are
        /// refused over that (503, to be tried again).
        bandwidth_max: Bitrate = kbps(10_000_000), between(kbps(100), kbps(10_000_000_000));
        /// Sessions of one worker at most; newcomers over that are refused.
        sessions_max: usize = pump().sessions_max, between(1, 1_000_000);
        /// Datagrams per send of sessions that do not say: more cost less CPU, fewer are smoother. At low rates there are
        /// fewer, so that a send is no more than 10 ms of the stream, or one datagram.
        burst: u8 = pump().burst, between(1, 7);
        /// Deadlines are kept to 50 µs instead of 500 µs, for receivers with tiny buffers. Costs CPU.
        strict: bool = false, any;
        /// A session that is later than this goes on from there; up to this it catches up.
        late_max: Duration = pump().late_max, between(ms(10), secs(10));
        /// So much of its title a session holds or has asked for, behind the part of half a megabyte that it sends: one
        /// part at least, 64 at most. What an origin may be late by without anybody seeing it.
        read_ahead: Duration = pump().read_ahead, between(ms(100), secs(60));
        /// A session whose next part is later than this ends, where the session does not say otherwise. Until then its title
        /// is asked for again and again. A title that is gone, or has changed, ends its sessions before.
        starved_timeout: Duration = pump().starved_timeout, between(secs(1), secs(86_400));
        /// A session ends when its destination says for this long that nobody listens (ICMP).
        refused_timeout: Duration = secs(5), between(secs(0), secs(86_400));
        /// Addresses that workers send from. IPv6 is left out where the machine has none. Empty: there is no pump.
        bind: Vec<IpAddr> = vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()], any;
        /// UDP port that the first worker sends from; the second has the next one, and so on. 0 takes any free ports.
        udp_port: u16 = 0, any;
        /// Routers that datagrams to groups may pass, plus one (TTL, hop limit): 1 stays in the local network.
        multicast_ttl: u8 = 1, between(0, 255);
        /// Interface that datagrams to groups leave by, such as "eth1". Not set: as the routing table says.
        multicast_interface: Option<String> = None, any;
        /// Receivers on this machine get what is sent to groups as well.
        multicast_loop: bool = true, any;
        /// Live inputs: what is received once, and sent evenly to the sessions of the title "live/NAME", a table each:
        /// [[pump.live]] with name and url. Only these are received. `delay` (250ms) is how long after its arrival a
        /// packet leaves; it must last from one clock reference to the next, and for what comes late.
        live: Vec<LiveInput> = vec![], tables::different_names("inputs", |input: &LiveInput| &input.name);
        /// Ways to send that sessions choose by name ("output"), a table each: [[pump.outputs]] with name and, as needed,
        /// source, source_port, ttl, dscp and interface. What is not said is as for other sessions.
        outputs: Vec<OutputConfig> = vec![], tables::different_names("outputs", |output: &OutputConfig| &output.name);
        /// Address and port that the RTSP server listens on, such as "0.0.0.0:554". Not set: there is none. Clients need
        /// no token; each is sent titles at its own address, when `destinations` allows that.
        rtsp_listen: Option<SocketAddr> = None, any;
        /// RTSP sessions of one client's address at most; newcomers over that are refused (503).
        rtsp_sessions_per_client: usize = 100, between(1, 50_000);
        /// Class of service of all that is sent (DSCP, RFC 2474): 34 is AF41, usual for video.
        dscp: u8 = 0, between(0, 63);
    }
}

impl Config {
    fn tables(&mut self) -> [Table<'_>; 13] {
        [
            self.http.table(),
            self.tls.table(),
            self.acme.table(),
            self.auth.table(),
            self.workers.table(),
            self.rtc.table(),
            self.rooms.table(),
            self.livekit.table(),
            self.log.table(),
            self.traces.table(),
            self.pump.table(),
            self.relay.table(),
            self.reflect.table(),
        ]
    }
}

/// What a UDP socket does where nobody says.
fn socket() -> UdpOptions {
    UdpOptions::default()
}

/// What rooms do; neither the seed nor the clock is a setting.
fn rooms() -> rooms::settings::Settings {
    rooms::settings::Settings::new(0, (Instant::now(), 0))
}

/// What the pump does.
fn pump() -> pump::spec::Settings {
    pump::spec::Settings::default()
}

/// What newcomers may take.
fn newcomers() -> crate::door::Limits {
    crate::door::Limits::default()
}

/// What is done about titles.
fn titles() -> titles::Settings {
    titles::Settings::default()
}

/// What the rooms' directory does.
fn directory() -> crate::rooms::directory::Settings {
    crate::rooms::directory::Settings::default()
}

/// This machine.
fn loopback() -> Vec<IpNet> {
    vec![IpNet::new_assert(Ipv4Addr::new(127, 0, 0, 0).into(), 8), IpAddr::from(Ipv6Addr::LOCALHOST).into()]
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn kbps(count: u64) -> Bitrate {
    Bitrate::from_kbps(count)
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
