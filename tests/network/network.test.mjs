// Viewers on bad networks, end to end: what RTX can repair is repaired, and nobody starves.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));
const VIEWERS = 10;
/** What the load generator publishes by default, in kbit/s. */
const BITRATE = 1500;
const SECONDS = 8;

/** The load generator's report of a run in a namespace of its own. */
async function measure(scenario) {
  const namespace = ["--net", ...(process.getuid() === 0 ? [] : ["--map-root-user"])];
  const run = [...namespace, "node", "inside.mjs", JSON.stringify({ simulcast: false, dropSeconds: SECONDS, ...scenario })];
  const { stdout } = await promisify(execFile)("unshare", run, { cwd: FOLDER, timeout: 90_000 });
  const report = JSON.parse(stdout);
  const { viewers, lost, repaired, viewer_kbps: kbps, keyframe_requests: keyframes, dropped } = report;
  const { p99_ms: p99, max_ms: max } = report.latency;
  console.log(JSON.stringify({ ...scenario, viewers, lost, repaired, kbps, keyframes, p99, max, dropped }));
  return report;
}

describe("with all UDP packets dropped at random, both ways", { concurrency: true }, () => {
  for (const [percent, unrepaired] of [
    [5, 0],
    // Of each request and its answer one in three is lost; a viewer asks ten times, for little more than a second.
    [20, 0.01],
  ]) {
    test(`${percent} %`, async () => {
      const report = await measure({ rule: `meta l4proto udp numgen random mod 100 < ${percent} drop` });
      assert.equal(report.viewers, VIEWERS, "all can join");
      assert.equal(report.failed, 0);
      const expected = (report.packets * percent) / 100;
      assert.ok(report.lost > expected / 2, `${report.lost} lost of ${report.packets} shows that the rule held`);
      assert.ok(report.lost - report.repaired <= unrepaired * report.lost, `${report.repaired} of ${report.lost} came again`);
      assert.equal(report.damaged, 0);
      const [slowest] = report.viewer_kbps;
      assert.ok(slowest > 0.9 * BITRATE, `the slowest viewer got ${slowest} kbit/s`);
    });
  }
});

test("a policer of 800 kbit/s for each viewer, of three layers that take twice as much", async () => {
  const rule = "udp sport 5000 add @viewers { ip daddr limit rate over 100 kbytes/second burst 20 kbytes } drop";
  const report = await measure({ rule, simulcast: true, dropSeconds: 2 * SECONDS });
  assert.equal(report.viewers, VIEWERS);
  const [slowest] = report.viewer_kbps;
  assert.ok(slowest > 200, `the slowest viewer got ${slowest} kbit/s`);
  assert.ok(report.lost - report.repaired < 0.05 * report.packets, `${report.lost - report.repaired} of ${report.packets} never came`);
});
