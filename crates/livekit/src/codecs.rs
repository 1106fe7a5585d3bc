//! Which codecs a client is not to publish, as what it is known to make of them is of no use to others.
//!
//! Source: the configurations of devices in LiveKit's server, version 1.13.

use livekit_protocol::ClientInfo;

/// Those of `all` that this client may publish.
pub(crate) fn of(client: &ClientInfo, all: &[String]) -> Vec<String> {
    let is_left_out = |mime: &String| bad_ones(client).iter().any(|bad| mime.eq_ignore_ascii_case(bad));
    all.iter().filter(|mime| !is_left_out(mime)).cloned().collect()
}

fn bad_ones(client: &ClientInfo) -> &'static [&'static str] {
    let is = |said: &str, names: &[&str]| names.iter().any(|name| said.eq_ignore_ascii_case(name));
    let is_firefox = is(&client.browser, &["firefox", "firefox mobile"]) && is(&client.os, &["linux", "android"]);
    if is(&client.browser, &["safari"]) {
        return if version(&client.browser_version) > [18, 3, 0] {
            &["video/AV1", "video/VP9"]
        } else {
            &["video/AV1"]
        };
    }
    match is_firefox || (is(&client.device_model, &["xiaomi 2201117ti"]) && is(&client.os, &["android"])) {
        true => &["video/H264"],
        false => &[],
    }
}

/// Major, minor and patch; what is no number is 0.
fn version(text: &str) -> [u32; 3] {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or_default());
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(client: ClientInfo) -> Vec<String> {
        of(&client, &["audio/opus", "video/VP8", "video/H264", "video/VP9", "video/AV1"].map(str::to_owned))
    }

    #[test]
    fn safari_publishes_no_av1_and_behind_18_3_no_vp9() {
        let safari = |version: &str| {
            left(ClientInfo { browser: "Safari".into(), browser_version: version.into(), ..ClientInfo::default() })
        };
        for version in ["", "17.6", "18.3", "18.3.0"] {
            assert_eq!(safari(version), ["audio/opus", "video/VP8", "video/H264", "video/VP9"], "{version}");
        }
        for version in ["18.3.1", "18.4", "26"] {
            assert_eq!(safari(version), ["audio/opus", "video/VP8", "video/H264"], "{version}");
        }
    }

    #[test]
    fn where_h264_is_bad_it_is_not_published() {
        let xiaomi =
            ClientInfo { os: "android".into(), device_model: "Xiaomi 2201117TI".into(), ..ClientInfo::default() };
        let firefox = ClientInfo { os: "Linux".into(), browser: "Firefox".into(), ..ClientInfo::default() };
        for client in [&xiaomi, &firefox] {
            assert_eq!(left(client.clone()), ["audio/opus", "video/VP8", "video/VP9", "video/AV1"]);
        }
        assert_eq!(left(ClientInfo { os: "windows".into(), ..firefox }).len(), 5);
        assert_eq!(left(ClientInfo::default()).len(), 5);
    }
}
