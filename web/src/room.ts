// The page of a room, `/room/NAME`: a lobby, and then the meeting.
//
// `?token=` is a token of LiveKit's protocol for whoever opens the page; without one the server is asked, and then the person.

import { NoToken, askForToken, nameOf, refusal } from "./access.js";
import { Lobby, type Entry } from "./lobby.js";
import { Meeting } from "./meeting.js";
import { byId } from "./page.js";

declare global {
  interface Window {
    /** What tests and the console may look at. */
    meeting: Meeting;
  }
}

const name = decodeURIComponent(location.pathname.split("/")[2] ?? "");
const lobby = new Lobby(join);
const meeting = new Meeting((why) => {
  document.title = `${name} · millrace`;
  lobby.problem(why);
  void lobby.open();
});

async function join(entry: Entry): Promise<void> {
  const token = entry.token || (await tokenFromServer(entry.name));
  try {
    await meeting.enter(location.origin.replace(/^http/, "ws"), token, entry);
  } catch (error) {
    const why = (await refusal(token)) ?? (error instanceof Error ? error.message : String(error));
    if (entry.token) lobby.askForToken();
    throw new Error(`You cannot join: ${why}.`);
  }
}

async function tokenFromServer(who: string): Promise<string> {
  try {
    return await askForToken(name, who);
  } catch (error) {
    if (error instanceof NoToken) lobby.askForToken();
    throw error;
  }
}

window.meeting = meeting;
document.title = `${name} · millrace`;
byId("lobby-room", HTMLElement).textContent = name;
const given = new URLSearchParams(location.search).get("token");
if (given) lobby.give(given, nameOf(given));
void lobby.open();
