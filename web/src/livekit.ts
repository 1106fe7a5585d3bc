// What the meeting has of livekit-client, in a file of its own.

export {
  DisconnectReason,
  Room,
  RoomEvent,
  Track,
  VideoPresets,
  createAudioAnalyser,
  createLocalAudioTrack,
  createLocalVideoTrack,
} from "livekit-client";
