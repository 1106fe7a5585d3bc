// WHIP and WHEP in front of Janus, at 10.250.0.1:7090, for bench/peers/janus/start.
//
// In: POST /whip/NAME with an offer. Out: Janus' answer; the publisher's packets go from a VideoRoom by RTP into a
// Streaming mountpoint, and janus-whep-server offers that at /whep/endpoint/NAME.

import express from "express";
import Janode from "janode";
import VideoRoom from "janode/plugins/videoroom";
import Streaming from "janode/plugins/streaming";
import { JanusWhepServer } from "janus-whep-server";

const address = `file://${process.env.MILLRACE_BENCH_JANUS_SOCKET}`;
const connection = await Janode.connect({ is_admin: false, address: { url: address } });
const session = await connection.create();

const app = express();
app.use(express.text({ type: "application/sdp", limit: "256kb" }));
const whep = new JanusWhepServer({ janus: { address }, rest: { app, basePath: "/whep" }, allowTrickle: false });

let published = 0;

/** Connects a publisher with a mountpoint of its own. */
async function publish(name, offer) {
  const number = ++published;
  const port = 33000 + number * 2;
  const payloadType = Number(/a=rtpmap:(\d+) VP8\/90000/i.exec(offer)?.[1] ?? 96);
  const streaming = await session.attach(Streaming);
  await streaming.createRtpMountpoint({
    id: number,
    name,
    media: [{ type: "video", mid: "0", pt: payloadType, codec: "vp8", port, rtcpport: port + 1 }],
  });
  const room = await session.attach(VideoRoom);
  await room.create({ room: number, max_publishers: 1, videocodec: "vp8", bitrate: 0, fir_freq: 0 });
  await room.joinPublisher({ room: number, feed: number });
  const { jsep } = await room.publish({ video: true, audio: false, jsep: { type: "offer", sdp: offer } });
  const streams = [{ mid: "0", host: "127.0.0.1", port, rtcp_port: port + 1, pt: payloadType }];
  await room.startForward({ room: number, feed: number, host: "127.0.0.1", streams });
  whep.createEndpoint({ id: name, mountpoint: number });
  return { room, answer: jsep.sdp };
}

const publishers = new Map();

app.post("/whip/:name", async (request, response) => {
  const { name } = request.params;
  try {
    const { room, answer } = await publish(name, request.body);
    publishers.set(name, room);
    response.status(201).type("application/sdp").set("Location", `/whip/${name}`).send(answer);
  } catch (error) {
    response.status(500).send(String(error?.message ?? error));
  }
});

app.delete("/whip/:name", async (request, response) => {
  const room = publishers.get(request.params.name);
  publishers.delete(request.params.name);
  await room?.hangup().catch(() => {});
  response.status(200).end();
});

await whep.start();
const server = app.listen(7090, "10.250.0.1", () => console.log("front end ready"));
process.on("SIGTERM", () => {
  server.close();
  process.exit(0);
});
