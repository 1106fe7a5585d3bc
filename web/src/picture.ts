// A test picture and a tone for those without a camera: a mill wheel that turns once in ten seconds, with a clock and
// a frame counter, so that a frozen, late or doubled frame can be seen.

import { everyTick } from "./ticker.js";

export interface TestPicture {
  canvas: HTMLCanvasElement;
  stream: MediaStream;
  stop(): void;
}

const FRAMES_PER_SECOND = 30;

export function testPicture(width: number, height: number): TestPicture {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { alpha: false });
  if (!context) throw new Error("this browser draws no canvas");
  let frame = 0;
  const draw = () => paint(context, width, height, frame++);
  draw();
  const stopTicks = everyTick(1000 / FRAMES_PER_SECOND, draw);
  const stream = canvas.captureStream(FRAMES_PER_SECOND);
  const tone = melody();
  for (const track of tone.stream.getAudioTracks()) stream.addTrack(track);
  const stop = () => {
    stopTicks();
    tone.stop();
    for (const track of stream.getTracks()) track.stop();
  };
  return { canvas, stream, stop };
}

function paint(context: CanvasRenderingContext2D, width: number, height: number, frame: number): void {
  const turn = (2 * Math.PI * frame) / (10 * FRAMES_PER_SECOND);
  const sky = context.createLinearGradient(0, 0, 0, height);
  sky.addColorStop(0, "#1e2c54");
  sky.addColorStop(1, "#5a86cc");
  context.fillStyle = sky;
  context.fillRect(0, 0, width, height);
  wheel(context, width / 2, height * 0.47, height * 0.33, turn);
  water(context, width, height, turn);
  const size = Math.round(height / 15);
  context.fillStyle = "#fff";
  context.font = `bold ${size}px ui-monospace, monospace`;
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText(new Date().toISOString().slice(11, 23), size, height - size);
  context.textAlign = "right";
  context.fillText(`frame ${frame}`, width - size, height - size);
}

function wheel(context: CanvasRenderingContext2D, x: number, y: number, radius: number, turn: number): void {
  context.save();
  context.translate(x, y);
  context.rotate(-turn);
  context.strokeStyle = context.fillStyle = "#ecb25c";
  context.lineWidth = radius * 0.08;
  for (const part of [0.92, 0.52]) {
    context.beginPath();
    context.arc(0, 0, radius * part, 0, 2 * Math.PI);
    context.stroke();
  }
  for (let spoke = 0; spoke < 12; spoke++) {
    context.rotate(Math.PI / 6);
    context.fillRect(0, -radius * 0.025, radius, radius * 0.05);
    context.fillRect(radius * 0.88, -radius * 0.1, radius * 0.18, radius * 0.2);
  }
  context.beginPath();
  context.arc(0, 0, radius * 0.16, 0, 2 * Math.PI);
  context.fill();
  context.restore();
}

function water(context: CanvasRenderingContext2D, width: number, height: number, turn: number): void {
  context.fillStyle = "#12629c";
  context.beginPath();
  context.moveTo(0, height);
  for (let x = 0; x <= width; x += 8) {
    const along = (x / width) * 2 * Math.PI;
    context.lineTo(x, height * (0.73 + 0.017 * Math.sin(3 * along - 6 * turn) + 0.008 * Math.sin(7 * along - 14 * turn)));
  }
  context.lineTo(width, height);
  context.fill();
}

/** Two notes in turn, soft enough to be left on. */
function melody(): { stream: MediaStream; stop(): void } {
  const audio = new AudioContext();
  const out = audio.createMediaStreamDestination();
  const tone = new OscillatorNode(audio, { type: "triangle", frequency: 330 });
  const slow = new OscillatorNode(audio, { type: "square", frequency: 0.5 });
  const step = new GainNode(audio, { gain: 55 });
  const level = new GainNode(audio, { gain: 0.2 });
  slow.connect(step).connect(tone.frequency);
  tone.connect(level).connect(out);
  tone.start();
  slow.start();
  void audio.resume();
  return { stream: out.stream, stop: () => void audio.close() };
}
