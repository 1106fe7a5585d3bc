//! Offers as browsers make them, as short as they may be.

/// An offer of one video section: `way` is "sendonly" or "recvonly"; layers are sent by `rids`.
pub fn video(way: &str, codec: &str, rids: &[&str]) -> String {
    let layers: String = rids.iter().map(|rid| format!("a=rid:{rid} send\r\n")).collect();
    let simulcast = if rids.is_empty() { String::new() } else { format!("a=simulcast:send {}\r\n", rids.join(";")) };
    format!("{}{layers}{simulcast}", section("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n", "0", way, codec))
}

/// `before`, and a section behind it.
pub fn section(before: &str, mid: &str, way: &str, codec: &str) -> String {
    let fingerprint = ["00"; 32].join(":");
    format!(
        "{before}m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:{mid}\r\na=ice-ufrag:user\r\n\
         a=ice-pwd:0123456789abcdef01234567\r\na=fingerprint:sha-256 {fingerprint}\r\na=setup:actpass\r\na={way}\r\n\
         a=rtcp-mux\r\na=rtpmap:96 {codec}/90000\r\n"
    )
}
