// What the server itself loses of the media that it forwards.

/** Reasons for which a worker drops media that it should have forwarded. */
const LOSSES = /^millrace_(?:worker_dropped_(?:queue|socket)_full_total|rooms_dropped_total)\{worker="\d+"(?:,reason="(.*)")?\} (\d+)$/;
const REASONS = [undefined, "not_authentic", "malformed_srtp", "malformed_rtp", "behind_history", "datagram_too_large", "mailbox_full"];

/** How many packets of media the server itself has lost. */
export async function lossesOf(url) {
  const page = await fetch(`${url}/metrics`).then((answer) => answer.text());
  const rows = page.split("\n").map((line) => LOSSES.exec(line)).filter(Boolean);
  if (rows.length < REASONS.length) throw new Error("the server's metrics have other names");
  return rows.filter(([, reason]) => REASONS.includes(reason)).reduce((sum, [, , count]) => sum + Number(count), 0);
}
