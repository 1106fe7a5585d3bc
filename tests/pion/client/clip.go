// Package client is what the tests and peer have in common: the demo clip, and how it and sessions come to the server.
package client

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/ivfreader"
)

// How long a frame of the clip is shown, and an Opus packet heard.
const (
	FrameDuration = time.Second / 30
	AudioDuration = 20 * time.Millisecond
)

// Clip is the demo clip: VP8 frames and Opus packets.
type Clip struct {
	Frames, Audio [][]byte
}

// ReadClip reads it from the folder assets.
func ReadClip(assets string) (*Clip, error) {
	video, err := os.ReadFile(filepath.Join(assets, "demo.ivf"))
	if err != nil {
		return nil, err
	}
	frames, err := ivfFrames(video)
	if err != nil {
		return nil, err
	}
	audio, err := os.ReadFile(filepath.Join(assets, "demo.ogg"))
	if err != nil {
		return nil, err
	}
	return &Clip{Frames: frames, Audio: oggPackets(audio)}, nil
}

func ivfFrames(file []byte) ([][]byte, error) {
	reader, _, err := ivfreader.NewWith(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	var frames [][]byte
	for {
		frame, _, err := reader.ParseNextFrame()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return nil, err
		}
		frames = append(frames, frame)
	}
}

// oggPackets reads the packets of a file (RFC 3533 §6), behind Opus's two headers (RFC 7845 §3), by the lacing values of
// each page: pion's reader gives a page as one payload.
func oggPackets(file []byte) [][]byte {
	var packets [][]byte
	var packet []byte
	for len(file) > 0 {
		count := int(file[26])
		lacing, body := file[27:27+count], file[27+count:]
		for _, size := range lacing {
			packet = append(packet, body[:size]...)
			body = body[size:]
			if size < 255 {
				packets = append(packets, packet)
				packet = nil
			}
		}
		file = body
	}
	return packets[2:]
}

// AddTrack adds a track of a stream. pion answers NACKs while somebody reads the sender's RTCP.
func AddTrack(pc *webrtc.PeerConnection, mime, id, stream string) (*webrtc.TrackLocalStaticSample, *webrtc.RTPSender, error) {
	track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: mime}, id, stream)
	if err != nil {
		return nil, nil, err
	}
	sender, err := pc.AddTrack(track)
	return track, sender, err
}

// Play sends the units over and over, each when it is due, until stop is closed or the track ends.
func Play(track *webrtc.TrackLocalStaticSample, units [][]byte, duration time.Duration, stop <-chan struct{}) {
	ticker := time.NewTicker(duration)
	defer ticker.Stop()
	for index := 0; ; index++ {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		if track.WriteSample(media.Sample{Data: units[index%len(units)], Duration: duration}) != nil {
			return
		}
	}
}
