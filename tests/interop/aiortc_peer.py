"""aiortc, by its defaults.

    python3 aiortc_peer.py publish URL CODEC        until its input ends
    python3 aiortc_peer.py watch FRAMES URL...      until each has so many frames, or its input ends
"""

import asyncio
import sys

from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError, VideoStreamTrack
from av import VideoFrame

import whip


class Picture(VideoStreamTrack):
    """A small grey picture that grows brighter and darker."""

    async def recv(self):
        pts, time_base = await self.next_timestamp()
        frame = VideoFrame(width=320, height=180)
        for plane in frame.planes:
            plane.update(bytes([pts // 3000 % 256]) * plane.buffer_size)
        frame.pts, frame.time_base = pts, time_base
        return frame


async def connect(pc, url):
    """Exchanges offer and answer; returns the session's address."""
    await pc.setLocalDescription(await pc.createOffer())
    answer, location = await asyncio.to_thread(whip.exchange, url, pc.localDescription.sdp)
    await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    return location


async def publish(url, codec):
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    connected = asyncio.Event()
    pc.on("connectionstatechange", lambda: pc.connectionState == "connected" and connected.set())
    video = pc.addTransceiver(Picture(), "sendonly")
    codecs = RTCRtpSender.getCapabilities("video").codecs
    wanted = (f"video/{codec}".lower(), "video/rtx")
    video.setCodecPreferences([entry for entry in codecs if entry.mimeType.lower() in wanted])
    pc.addTransceiver(AudioStreamTrack(), "sendonly")
    location = await connect(pc, url)
    await asyncio.wait_for(connected.wait(), 15)
    whip.say({"publishing": url})
    await asyncio.to_thread(whip.wait_for_end_of_input)
    await asyncio.to_thread(whip.close, location)
    await pc.close()


class Viewer:
    """One stream that is watched."""

    def __init__(self, url):
        self.url = url
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.location = None
        self.frames = 0
        self.refused = None

    async def start(self):
        self.pc.addTransceiver("video", "recvonly")
        self.pc.addTransceiver("audio", "recvonly")
        self.pc.on("track", lambda track: asyncio.ensure_future(self.consume(track)))
        try:
            self.location = await connect(self.pc, self.url)
        except whip.Refused as error:
            self.refused = error.status

    async def consume(self, track):
        try:
            while True:
                await track.recv()
                self.frames += track.kind == "video"
        except MediaStreamError:
            pass

    async def received(self):
        one = {"url": self.url, "video": {"packets": 0, "lost": 0, "frames": self.frames}, "audio": {"packets": 0, "lost": 0}}
        if self.refused:
            one["refused"] = self.refused
        for transceiver in self.pc.getTransceivers():
            for entry in (await transceiver.receiver.getStats()).values():
                if entry.type == "inbound-rtp" and entry.kind == transceiver.kind:
                    one[entry.kind]["packets"] += entry.packetsReceived
                    one[entry.kind]["lost"] += entry.packetsLost
        return one


async def watch(frames, urls):
    viewers = [Viewer(url) for url in urls]
    for viewer in viewers:
        await viewer.start()
    ended = asyncio.ensure_future(asyncio.to_thread(whip.wait_for_end_of_input))
    while True:
        received = [await viewer.received() for viewer in viewers]
        if ended.done() or all(whip.enough(one, frames) for one in received):
            break
        await asyncio.wait([ended], timeout=0.1)
    whip.say({"received": received})
    for viewer in viewers:
        if viewer.location:
            await asyncio.to_thread(whip.close, viewer.location)
        await viewer.pc.close()


async def main():
    if sys.argv[1] == "publish":
        await publish(*sys.argv[2:4])
    else:
        await watch(int(sys.argv[2]), sys.argv[3:])


asyncio.run(main())
