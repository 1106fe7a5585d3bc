//! Every option of coturn that can stand in its file: taken, the same here anyway, or without a counterpart, and why.

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It is read.
    Taken,
    /// It is so here, whatever it is set to.
    Same,
    /// There is no such thing here.
    None(&'static str),
    /// There is not, which matters where it is switched on.
    Switch(&'static str),
}

use Meaning::{None, Same, Switch, Taken};

pub(super) const LIFETIMES: &str =
    "lifetimes of permissions and channels are those of RFC 8656, which clients count on";

const DATABASE: &str = "users are in the settings, in a file of `millrace users`, or in Redis, to which this database can be \
     copied: turn/realm/REALM/user/NAME/key has what stands in turnusers_lt, the set turn/realm/REALM/secret what turn_secret has";
const LOGS: &str = "logs go to the standard error, from where the system takes them (log.filter, log.format)";
const PROCESS: &str = "the system's service manager does this";
const CONSOLE: &str = "the HTTP API lists allocations and users, ends them, and drains (docs/relay.md)";
const DEVICE: &str = "addresses are bound, not devices: set relay.listen and relay.addresses";
const OAUTH: &str = "third-party authorization (RFC 7635) is left out: no client uses it";
pub(super) const DTLS: &str = "coturn speaks DTLS on its ports for TLS, too; for that set relay.dtls_listen, which takes a certificate with an ECDSA key";
const TLS: &str = "rustls chooses: TLS 1.2 and 1.3 with today's ciphers";
const STATISTICS: &str = "counters are at /metrics, and events are logged";
const REALMS: &str = "there is one realm";
const BATCHES: &str = "datagrams are always received and sent in batches, each allocation with a port of its own";
const ALTERNATES: &str = "relay.alternate_servers is for UDP and TCP alike";
const METRICS: &str = "http.metrics_listen has /metrics, without TLS; names of users are no labels";

const ALL: &[(&str, Meaning)] = &[
    // Where it listens and relays.
    ("listening-ip", Taken),
    ("listening-port", Taken),
    ("aux-server", Taken),
    ("relay-ip", Taken),
    ("external-ip", Taken),
    ("min-port", Taken),
    ("max-port", Taken),
    ("no-udp", Taken),
    ("no-tcp", Taken),
    ("no-tls", Taken),
    ("no-dtls", Taken),
    ("tls-listening-port", Taken),
    ("dtls", Switch(DTLS)),
    ("alt-listening-port", Taken),
    ("alt-tls-listening-port", None("behaviour discovery (RFC 5780) is for UDP")),
    ("rfc5780", Taken),
    ("no-rfc5780", Taken),
    ("response-origin-only-with-rfc5780", Same),
    (
        "tcp-proxy-port",
        None("relay.proxy_protocol_from names the load balancers that speak the PROXY protocol, on any port of TCP"),
    ),
    ("listening-device", None(DEVICE)),
    ("relay-device", None(DEVICE)),
    ("keep-address-family", Taken),
    ("allocation-default-address-family", Taken),
    // Who may use it.
    ("lt-cred-mech", Same),
    ("use-auth-secret", Same),
    ("static-auth-secret", Taken),
    ("rest-api-separator", Taken),
    ("realm", Taken),
    ("user", Taken),
    ("redis-userdb", Taken),
    ("userdb", None(DATABASE)),
    ("db", None(DATABASE)),
    ("psql-userdb", None(DATABASE)),
    ("sql-userdb", None(DATABASE)),
    ("mysql-userdb", None(DATABASE)),
    ("mongo-userdb", None(DATABASE)),
    ("secret-key-file", None(DATABASE)),
    ("no-auth", Switch("nobody relays without credentials here; set relay.users or relay.secrets")),
    ("no-auth-pings", Same),
    ("no-dynamic-ip-list", Same),
    ("no-dynamic-realms", Same),
    ("oauth", Switch(OAUTH)),
    ("server-name", None(OAUTH)),
    ("stale-nonce", Taken),
    ("stateless-nonce", Same),
    (
        "stateless-nonce-secret",
        None("nonces are known to the process that made them; after a restart clients get new ones"),
    ),
    (
        "secure-stun",
        Switch(
            "a Binding request is answered without credentials, so often per address, and by no more than its address",
        ),
    ),
    ("check-origin-consistency", Switch(REALMS)),
    // How much.
    ("user-quota", Taken),
    ("total-quota", Taken),
    ("max-bps", Taken),
    ("bps-capacity", Taken),
    ("max-allocate-lifetime", Taken),
    ("max-allocate-timeout", Same),
    ("channel-lifetime", Taken),
    ("permission-lifetime", Taken),
    ("unauthorized-ratelimit", Same),
    (
        "unauthorized-ratelimit-rps",
        None(
            "every address is answered 50 times a second and 200 at once, at most twice that, before it has proved anything",
        ),
    ),
    // Where to.
    ("allowed-peer-ip", Taken),
    ("denied-peer-ip", Taken),
    ("allow-loopback-peers", Taken),
    ("no-multicast-peers", Same),
    ("no-loopback-peers", Same),
    ("server-relay", Switch("nobody reaches a client whom it has not permitted")),
    // What it can do.
    ("no-tcp-relay", Taken),
    ("no-udp-relay", Switch("allocations of UDP cannot be turned off")),
    ("stun-only", Switch("leave relay.listen out, and there is no relay; STUN alone is not to be had")),
    ("no-stun", Switch("Binding requests are always answered")),
    ("mobility", Switch("mobility (RFC 8016) is left out: no client uses it")),
    ("fingerprint", Same),
    ("no-software-attribute", Same),
    ("software-attribute", Switch("an answer has no SOFTWARE: it would only be longer")),
    ("include-reason-string", Switch("an error has its code and no more than its name")),
    (
        "stun-backward-compatibility",
        Switch(
            "an answer has XOR-MAPPED-ADDRESS alone: every client knows it, and more would be more to aim at others",
        ),
    ),
    ("no-stun-backward-compatibility", Same),
    ("rfc3489-compatibility", Switch("classic STUN is left out: no client uses it")),
    ("rfc5766-channel-numbers", Switch("channels are those of RFC 8656, 0x4000 to 0x4fff")),
    ("alternate-server", Taken),
    ("udp-alternate-server", Taken),
    ("tcp-alternate-server", None(ALTERNATES)),
    ("tls-alternate-server", Taken),
    ("udp-self-balance", Switch("workers share each port, and the kernel spreads clients over them")),
    ("drain-min-allocations", None("a drain ends with the last allocation, or after relay.drain_timeout")),
    // TLS.
    ("cert", Taken),
    ("pkey", Taken),
    ("pkey-pwd", None("keys are read as they are: decrypt it (openssl pkey), for its owner alone")),
    ("CA-file", None("certificates of clients are not asked for")),
    ("raw-public-keys", Switch("raw public keys (RFC 7250) are left out: no client uses them")),
    ("cipher-list", None(TLS)),
    ("ec-curve-name", None(TLS)),
    ("dh-file", None(TLS)),
    ("dh566", Switch(TLS)),
    ("dh1066", Switch(TLS)),
    ("dh2066", Switch(TLS)),
    ("tlsv1", Switch(TLS)),
    ("tlsv1_1", Switch(TLS)),
    ("no-sslv2", Same),
    ("no-sslv3", Same),
    ("no-tlsv1", Same),
    ("no-tlsv1_1", Same),
    ("no-tlsv1_2", Switch(TLS)),
    (
        "acme-redirect",
        None("HTTP is ours; whoever makes certificates writes them where [tls] says, and they are read again"),
    ),
    ("respond-http-unsupported", Same),
    // How it runs.
    ("relay-threads", Taken),
    ("cpus", Taken),
    (
        "sock-buf-size",
        None("workers.socket_buffer is for the sockets that clients send to; those of allocations have the system's"),
    ),
    ("ne", None(BATCHES)),
    ("udp-recvmmsg", Same),
    ("udp-gso", Same),
    ("multiplex-peer", Switch(BATCHES)),
    ("multiplex-peer-port", None(BATCHES)),
    ("multiplex-peer-max-peers", None(BATCHES)),
    ("drop-invalid-packets", Same),
    ("daemon", Switch(PROCESS)),
    ("pidfile", None(PROCESS)),
    ("proc-user", None(PROCESS)),
    ("proc-group", None(PROCESS)),
    // What it tells.
    ("prometheus", Taken),
    ("prometheus-port", Taken),
    ("prometheus-address", None(METRICS)),
    ("prometheus-path", None(METRICS)),
    ("prometheus-username-labels", Switch(METRICS)),
    ("prometheus-tls", Switch(METRICS)),
    ("prometheus-cert", None(METRICS)),
    ("prometheus-key", None(METRICS)),
    ("redis-statsdb", None(STATISTICS)),
    ("verbose", Switch(LOGS)),
    ("Verbose", Switch(LOGS)),
    ("log-file", None(LOGS)),
    ("log-min-level", None(LOGS)),
    ("no-stdout-log", Switch(LOGS)),
    ("syslog", Switch(LOGS)),
    ("syslog-facility", None(LOGS)),
    ("simple-log", Switch(LOGS)),
    ("new-log-timestamp", Switch(LOGS)),
    ("new-log-timestamp-format", None(LOGS)),
    ("log-binding", Switch("no datagram is worth a line; Binding requests are counted")),
    ("drop-invalid-packets-log", Switch("no datagram is worth a line; each reason for a drop is counted")),
    ("udp-recvmmsg-log", Switch(STATISTICS)),
    ("udp-sendmmsg-log", Switch(STATISTICS)),
    ("cli", Switch(CONSOLE)),
    ("no-cli", Same),
    ("cli-ip", None(CONSOLE)),
    ("cli-port", None(CONSOLE)),
    ("cli-password", None(CONSOLE)),
    ("cli-max-output-sessions", None(CONSOLE)),
    ("web-admin", Switch(CONSOLE)),
    ("web-admin-ip", None(CONSOLE)),
    ("web-admin-port", None(CONSOLE)),
    ("web-admin-listen-on-workers", Switch(CONSOLE)),
];

/// What becomes of an option; `None` when it is unknown.
pub(super) fn meaning(name: &str) -> Option<Meaning> {
    ALL.iter().find(|(option, _)| *option == name).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_stands_once() {
        for (index, (option, _)) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|(other, _)| other != option), "{option}");
        }
    }
}
