// As much of a TURN client as an allocation takes (RFC 8489, RFC 8656), by UDP.

import { createHash, createHmac, randomBytes } from "node:crypto";
import { createSocket } from "node:dgram";
import { once } from "node:events";

const COOKIE = Buffer.from([0x21, 0x12, 0xa4, 0x42]);
const ALLOCATE = 0x0003;
const [USERNAME, MESSAGE_INTEGRITY, REALM, NONCE, REQUESTED_TRANSPORT] = [0x0006, 0x0008, 0x0014, 0x0015, 0x0019];

/** Allocates at a relay; `close` lets go of the socket alone, and the allocation stays. */
export async function allocate(port, user, password) {
  const socket = createSocket("udp4").bind(0, "127.0.0.1");
  await once(socket, "listening");
  const ask = async (attributes, key) => {
    const request = message(attributes, key);
    for (;;) {
      socket.send(request, port, "127.0.0.1");
      const answered = once(socket, "message").then(([data]) => data);
      // A datagram may be lost.
      const answer = await Promise.race([answered, new Promise((resolve) => setTimeout(resolve, 2000))]);
      if (answer) return answer;
    }
  };
  const transport = [REQUESTED_TRANSPORT, Buffer.from([17, 0, 0, 0])];
  const asked = read(await ask([transport]));
  const [realm, nonce] = [asked.get(REALM), asked.get(NONCE)];
  const key = createHash("md5").update(`${user}:${realm}:${password}`).digest();
  const answer = await ask([transport, [USERNAME, Buffer.from(user)], [REALM, realm], [NONCE, nonce]], key);
  if (answer.readUInt16BE(0) !== 0x0103) throw new Error(`no allocation: ${answer.toString("hex")}`);
  return { close: () => socket.close() };
}

function message(attributes, key) {
  const body = Buffer.concat(attributes.map(([type, value]) => attribute(type, value)));
  const head = (length) => {
    const made = Buffer.alloc(4);
    made.writeUInt16BE(ALLOCATE, 0);
    made.writeUInt16BE(length, 2);
    return made;
  };
  const id = Buffer.concat([COOKIE, randomBytes(12)]);
  if (!key) return Buffer.concat([head(body.length), id, body]);
  const proved = Buffer.concat([head(body.length + 24), id, body]);
  return Buffer.concat([proved, attribute(MESSAGE_INTEGRITY, createHmac("sha1", key).update(proved).digest())]);
}

function attribute(type, value) {
  const head = Buffer.alloc(4);
  head.writeUInt16BE(type, 0);
  head.writeUInt16BE(value.length, 2);
  return Buffer.concat([head, value, Buffer.alloc(-value.length & 3)]);
}

function read(data) {
  const found = new Map();
  for (let at = 20; at + 4 <= data.length; ) {
    const length = data.readUInt16BE(at + 2);
    found.set(data.readUInt16BE(at), data.subarray(at + 4, at + 4 + length));
    at += 4 + length + (-length & 3);
  }
  return found;
}
