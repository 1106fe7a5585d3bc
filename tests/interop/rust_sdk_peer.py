"""Two participants by LiveKit's SDK for Rust, as its package for Python brings it: publishing, watching, data.

    python3 rust_sdk_peer.py SERVER        https or http, which gives tokens to whoever asks
    python3 rust_sdk_peer.py SERVER stay   joins, publishes, and stays until its input ends
"""

import asyncio
import json
import sys
import time
import urllib.request

from livekit import rtc

WAIT = 30
SIZE = (640, 360)


def token(server, room, identity):
    body = json.dumps({"room": room, "identity": identity}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{server}/api/livekit/tokens", body, headers)
    return json.load(urllib.request.urlopen(request, timeout=WAIT))["token"]


def pictures(server):
    """How many the server gives to anybody."""
    page = urllib.request.urlopen(f"{server}/metrics", timeout=WAIT).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("millrace_rooms_pictures{"))


async def until(what, holds):
    """Waits for something that is seen."""
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT} s: {what}"
        await asyncio.sleep(0.02)


class Person:
    def __init__(self):
        self.room = rtc.Room()
        self.frames = {rtc.TrackKind.KIND_VIDEO: 0, rtc.TrackKind.KIND_AUDIO: 0}
        self.size = None
        self.heard = []
        self.tasks = set()
        self.room.on("track_subscribed", lambda track, *_: self.start(self.read(track)))
        self.room.on("data_received", lambda packet: self.heard.append(bytes(packet.data)))
        for event in ["track_muted", "track_unmuted", "track_unpublished", "participant_disconnected"]:
            self.room.on(event, lambda *_, event=event: self.heard.append(event))
        self.room.on("connection_quality_changed", lambda who, quality: self.heard.append((who.identity, quality)))

    def start(self, work):
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def join(self, server, room, identity):
        await self.room.connect(server.replace("http", "ws", 1), token(server, room, identity))
        self.room.register_text_stream_handler("chat", lambda reader, _: self.start(self.read_text(reader)))

    async def read(self, track):
        stream = rtc.VideoStream(track) if track.kind == rtc.TrackKind.KIND_VIDEO else rtc.AudioStream(track)
        async for event in stream:
            self.frames[track.kind] += 1
            if track.kind == rtc.TrackKind.KIND_VIDEO:
                self.size = (event.frame.width, event.frame.height)

    async def read_text(self, reader):
        self.heard.append(await reader.read_all())

    async def hears(self, what):
        await until(f"to hear {what!r:.60}", lambda: what in self.heard)

    async def sees_more(self):
        before = dict(self.frames)
        await until("pictures and sound", lambda: all(self.frames[kind] > before[kind] + 5 for kind in before))

    def publications(self):
        return [publication for who in self.room.remote_participants.values() for publication in who.track_publications.values()]

    async def publish(self, codec):
        """A camera and a microphone; their publications."""
        video, audio = rtc.VideoSource(*SIZE), rtc.AudioSource(48_000, 1)
        camera = rtc.LocalVideoTrack.create_video_track("camera", video)
        microphone = rtc.LocalAudioTrack.create_audio_track("microphone", audio)
        self.start(show(video))
        self.start(sound(audio))
        me, sources = self.room.local_participant, rtc.TrackSource
        options = rtc.TrackPublishOptions(source=sources.SOURCE_CAMERA, simulcast=True, video_codec=codec)
        return (
            await me.publish_track(camera, options),
            await me.publish_track(microphone, rtc.TrackPublishOptions(source=sources.SOURCE_MICROPHONE)),
        )


async def show(source):
    """A picture that changes, 15 times a second."""
    width, height = SIZE
    for number in range(1_000_000):
        line = bytes([number * 8 % 256, 90, 90, 255]) * width
        source.capture_frame(rtc.VideoFrame(width, height, rtc.VideoBufferType.RGBA, line * height))
        await asyncio.sleep(1 / 15)


async def sound(source):
    """A tone."""
    period = b"".join(round(8_000 * (abs(at - 60) / 30 - 1)).to_bytes(2, "little", signed=True) for at in range(120))
    while True:
        await source.capture_frame(rtc.AudioFrame(period * 4, 48_000, 1, 480))


async def tell(speaker, hearer, what, reliable):
    """Says it until it is heard, as it may be lost where it is not reliable."""
    while what not in hearer.heard:
        await speaker.room.local_participant.publish_data(what, reliable=reliable)
        await (hearer.hears(what) if reliable else asyncio.sleep(0.2))


async def meet(server, name, codec):
    room = f"rust-{name}"
    adam, eve = Person(), Person()
    await adam.join(server, room, "adam")
    await eve.join(server, room, "eve")

    camera, _ = await eve.publish(codec)
    await adam.sees_more()
    await until("the whole picture", lambda: adam.size == SIZE)
    say("sees and hears", adam.size)

    # The SDK's requests may overtake each other, so the first has arrived before the second is made.
    [picture] = [one for one in adam.publications() if one.kind == rtc.TrackKind.KIND_VIDEO]
    await until("that a picture counts", lambda: pictures(server) == 1)
    picture.set_subscribed(False)
    await until("no picture", lambda: picture.track is None and pictures(server) == 0)
    picture.set_subscribed(True)
    await until("a picture", lambda: picture.track is not None)
    await adam.sees_more()
    say("takes what it gave up")

    camera.track.mute()
    await adam.hears("track_muted")
    camera.track.unmute()
    await adam.hears("track_unmuted")
    await adam.sees_more()
    say("hears of muting")

    for reliable in [True, False]:
        await tell(eve, adam, b"from eve, %d" % reliable, reliable)
        await tell(adam, eve, b"from adam, %d" % reliable, reliable)
    await eve.room.local_participant.send_text("x" * 50_000, topic="chat")
    await adam.hears("x" * 50_000)

    async def turned_around(call):
        return call.payload[::-1]

    adam.room.local_participant.register_rpc_method("turn", turned_around)
    answer = await eve.room.local_participant.perform_rpc(destination_identity="adam", method="turn", payload="abc")
    assert answer == "cba", answer
    say("reads and answers")

    await eve.room.local_participant.unpublish_track(camera.sid)
    await adam.hears("track_unpublished")
    await eve.room.disconnect()
    await adam.hears("participant_disconnected")
    await adam.room.disconnect()
    for task in [*adam.tasks, *eve.tasks]:
        task.cancel()
    say("is told who left")


async def lose(server):
    """Somebody's process is killed while others watch."""
    adam = Person()
    await adam.join(server, "rust-lost", "adam")
    # It ends with us, however that comes.
    cain = await asyncio.create_subprocess_exec(sys.executable, __file__, server, "stay", stdin=asyncio.subprocess.PIPE)
    await adam.sees_more()
    cain.kill()
    await cain.wait()
    await adam.hears(("cain", rtc.ConnectionQuality.QUALITY_LOST))
    await adam.hears("participant_disconnected")
    await adam.room.disconnect()
    say("hears who is lost")


async def stay(server):
    cain = Person()
    await cain.join(server, "rust-lost", "cain")
    await cain.publish(rtc.VideoCodec.VP8)
    await asyncio.to_thread(sys.stdin.read)


def say(*what):
    print(*what, file=sys.stderr)


async def main(server, *stays):
    if stays:
        return await stay(server)
    for name in ["VP8", "H264"]:
        say(name)
        await meet(server, name, getattr(rtc.VideoCodec, name))
    await lose(server)


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 8 * WAIT))
print("{}")
