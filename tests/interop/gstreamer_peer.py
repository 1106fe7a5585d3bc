"""GStreamer's webrtcbin, by its defaults but for what it waits for late packets; with the system's Python, for which Debian packs
the bindings.

    /usr/bin/python3 gstreamer_peer.py publish URL CODEC        until its input ends
    /usr/bin/python3 gstreamer_peer.py watch FRAMES URL...      until each has so many frames, or its input ends
"""

import sys
import threading

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstSdp", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import GLib, Gst, GstSdp, GstWebRTC  # noqa: E402

import whip  # noqa: E402

# A class is filled, and an enumeration registered, by who names it first; threads that do so at the same moment find it half empty,
# or registered.
for namespace in (Gst, GstSdp, GstWebRTC):
    for name in dir(namespace):
        getattr(namespace, name, None)

ENCODERS = {
    "VP8": "vp8enc deadline=1 cpu-used=8 keyframe-max-dist=30 target-bitrate=500000 ! rtpvp8pay picture-id-mode=15-bit",
    "H264": "openh264enc bitrate=500000 gop-size=30 complexity=low ! video/x-h264,profile=constrained-baseline "
    "! rtph264pay config-interval=-1 aggregate-mode=zero-latency",
}
DEPAYLOADERS = {"VP8": "rtpvp8depay ! vp8dec", "H264": "rtph264depay ! h264parse ! openh264dec", "OPUS": "rtpopusdepay ! opusdec"}
RECEIVED = {
    "video": "application/x-rtp,media=video,encoding-name=VP8,payload=96,clock-rate=90000;"
    "application/x-rtp,media=video,encoding-name=H264,payload=102,clock-rate=90000,packetization-mode=(string)1,"
    "profile-level-id=(string)42e01f",
    "audio": "application/x-rtp,media=audio,encoding-name=OPUS,payload=111,clock-rate=48000",
}


class Peer:
    """A pipeline with one webrtcbin."""

    def __init__(self, url, pipeline):
        self.url = url
        self.pipeline = pipeline
        self.location = None
        self.refused = None
        self.connected = threading.Event()
        self.bin = pipeline.get_by_name("peer")
        self.bin.connect("on-negotiation-needed", lambda _: self.bin.emit("create-offer", None, Gst.Promise.new_with_change_func(self.on_offer)))
        self.bin.connect("notify::connection-state", self.on_connection_state)

    def on_offer(self, promise):
        # The offer lies in the reply, which has to live as long.
        reply = promise.get_reply()
        offer = reply.get_value("offer")
        self.bin.emit("set-local-description", offer, None)
        threading.Thread(target=self.exchange, args=(offer.sdp.as_text(),), daemon=True).start()

    def exchange(self, offer):
        try:
            text, self.location = whip.exchange(self.url, offer)
        except whip.Refused as error:
            self.refused = error.status
            return
        _, sdp = GstSdp.SDPMessage.new_from_text(text)
        answer = GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.ANSWER, sdp)
        self.bin.emit("set-remote-description", answer, None)

    def on_connection_state(self, *_):
        if self.bin.get_property("connection-state") == GstWebRTC.WebRTCPeerConnectionState.CONNECTED:
            self.connected.set()

    def close(self):
        if self.location:
            whip.close(self.location)
        self.pipeline.set_state(Gst.State.NULL)


def publish(url, codec):
    pipeline = Gst.parse_launch(
        "webrtcbin name=peer bundle-policy=max-bundle "
        "videotestsrc is-live=true ! video/x-raw,width=320,height=180,framerate=30/1 ! videoconvert ! queue "
        f"! {ENCODERS[codec]} ! application/x-rtp,media=video,encoding-name={codec},payload=96 ! peer. "
        "audiotestsrc is-live=true ! audioconvert ! queue ! opusenc ! rtpopuspay "
        "! application/x-rtp,media=audio,encoding-name=OPUS,payload=111 ! peer."
    )
    peer = Peer(url, pipeline)
    for index in range(2):
        transceiver = peer.bin.emit("get-transceiver", index)
        transceiver.set_property("direction", GstWebRTC.WebRTCRTPTransceiverDirection.SENDONLY)
    pipeline.set_state(Gst.State.PLAYING)
    if not peer.connected.wait(15):
        sys.exit(f"no connection to {url} within 15 s, status {peer.refused}")
    whip.say({"publishing": url})
    whip.wait_for_end_of_input()
    peer.close()


class Viewer(Peer):
    """One stream that is watched."""

    def __init__(self, url):
        pipeline = Gst.Pipeline.new()
        peer = Gst.ElementFactory.make("webrtcbin", "peer")
        peer.set_property("bundle-policy", GstWebRTC.WebRTCBundlePolicy.MAX_BUNDLE)
        # In milliseconds. A packet that comes later counts as lost, and beside other stacks' encoders many do within the usual 200.
        peer.set_property("latency", 2000)
        pipeline.add(peer)
        super().__init__(url, pipeline)
        self.counts = {kind: {"packets": 0, "lost": 0, "frames": 0} for kind in RECEIVED}
        self.last = {}
        peer.connect("pad-added", self.on_pad)
        for caps in RECEIVED.values():
            direction = GstWebRTC.WebRTCRTPTransceiverDirection.RECVONLY
            transceiver = peer.emit("add-transceiver", direction, Gst.Caps.from_string(caps))
            transceiver.set_property("do-nack", True)
        pipeline.set_state(Gst.State.PLAYING)

    def on_pad(self, _, pad):
        if pad.get_direction() != Gst.PadDirection.SRC:
            return
        caps = pad.get_current_caps().get_structure(0)
        kind, codec = caps.get_string("media"), caps.get_string("encoding-name")
        self.counts[kind]["codec"] = codec
        decoder = Gst.parse_bin_from_description(f"{DEPAYLOADERS[codec]} ! fakesink name=sink sync=false", True)
        decoder.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, self.on_frame, kind)
        pad.add_probe(Gst.PadProbeType.BUFFER, self.on_packet, kind)
        self.pipeline.add(decoder)
        decoder.sync_state_with_parent()
        pad.link(decoder.get_static_pad("sink"))

    def on_frame(self, _, __, kind):
        self.counts[kind]["frames"] += 1
        return Gst.PadProbeReturn.OK

    def on_packet(self, _, info, kind):
        seq = int.from_bytes(info.get_buffer().extract_dup(2, 2), "big")
        gap = (seq - self.last.get(kind, seq - 1) - 1) & 0xFFFF
        if gap < 1 << 15:
            self.counts[kind]["lost"] += gap
            self.last[kind] = seq
        self.counts[kind]["packets"] += 1
        return Gst.PadProbeReturn.OK

    def received(self):
        one = {"url": self.url, **self.counts}
        if self.refused:
            one["refused"] = self.refused
        return one


def watch(frames, urls):
    viewers = [Viewer(url) for url in urls]
    ended = threading.Event()
    threading.Thread(target=lambda: (whip.wait_for_end_of_input(), ended.set()), daemon=True).start()
    while not ended.is_set() and not all(whip.enough(viewer.received(), frames) for viewer in viewers):
        ended.wait(0.1)
    whip.say({"received": [viewer.received() for viewer in viewers]})
    for viewer in viewers:
        viewer.close()


Gst.init(None)
threading.Thread(target=GLib.MainLoop().run, daemon=True).start()
if sys.argv[1] == "publish":
    publish(*sys.argv[2:4])
else:
    watch(int(sys.argv[2]), sys.argv[3:])
