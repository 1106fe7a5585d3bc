// What a person does on the page of a room, and what can be seen there.

import { open, until } from "./browser.mjs";

/** Little to encode and to show, as five encoders share the machine with all decoders. */
export const SLOW_CAMERA = "--use-fake-device-for-media-stream=fps=4";
/** Seconds within which what is to happen happens, also where all of them share two cores with other programs. Nothing waits for it to pass. */
export const PATIENCE = 120;
const SMALL_WINDOW = { width: 800, height: 600 };

/** Opens the page of a room, and joins by it. */
export async function meet(browser, server, room, name, query = "") {
  const page = await openRoom(browser, server, room, query);
  if (!query) await page.fill("#name", name);
  await page.click("#join-button");
  await until(`${name} is in the room`, PATIENCE, () => page.locator("#meeting").isVisible());
  return page;
}

/** Opens the page of a room, and waits until it has found camera and microphone. */
export async function openRoom(browser, server, room, query = "") {
  const page = await open(browser.context, `${server.url}/room/${room}${query}`);
  page.setDefaultTimeout(PATIENCE * 1_000);
  await page.setViewportSize(SMALL_WINDOW);
  await until("camera and microphone", PATIENCE, () =>
    page.evaluate(() => ["camera", "microphone"].every((id) => document.getElementById(id).value !== "")),
  );
  return page;
}

/** The tile of somebody's camera or screen. */
export function tile(page, name, source = "camera") {
  return page.locator(`.tile[data-source=${source}]`, { has: page.locator(".who", { hasText: name }) });
}

/** Waits for an attribute of somebody's tile. */
export function shows(page, name, attribute, value, source = "camera") {
  const element = tile(page, name, source);
  return until(`${attribute} of ${name} is ${value}`, PATIENCE, async () => (await element.count()) === 1 && (await element.getAttribute(attribute)) === value);
}

/** Frames decoded and audio packets received of everybody else, by name and source. */
export function flowing(page) {
  return page.evaluate(async () => {
    const found = {};
    for (const person of window.meeting.room.remoteParticipants.values()) {
      for (const { source, track } of person.trackPublications.values()) {
        const report = [...((await track?.receiver?.getStats())?.values() ?? [])];
        const entry = report.find((entry) => entry.type === "inbound-rtp") ?? {};
        found[`${person.name}/${source}`] = entry.kind === "video" ? (entry.framesDecoded ?? 0) : (entry.packetsReceived ?? 0);
      }
    }
    return found;
  });
}

/** Waits until of each of these (`name/source`) something more has come. */
export async function allFlow(page, wanted, more = 3) {
  const before = await flowing(page);
  await until(`${wanted.join(", ")} flow`, PATIENCE, async () => {
    const now = await flowing(page);
    return wanted.every((name) => (now[name] ?? 0) >= (before[name] ?? 0) + more);
  });
}
