package livekit

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
)

// exchange sends an offer by WHIP or WHEP, and takes the answer.
func exchange(t *testing.T, pc *webrtc.PeerConnection, path string) {
	t.Helper()
	t.Cleanup(func() { pc.Close() })
	gathered := webrtc.GatheringCompletePromise(pc)
	offer, err := pc.CreateOffer(nil)
	if err == nil {
		err = pc.SetLocalDescription(offer)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-gathered
	response, err := http.Post("http://"+address+path, "application/sdp", strings.NewReader(pc.LocalDescription().SDP))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s %v", response.StatusCode, body, err)
	}
	if err := pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(body)}); err != nil {
		t.Fatal(err)
	}
}

func newPeer(t *testing.T) *webrtc.PeerConnection {
	t.Helper()
	pc, err := webrtc.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	return pc
}

// publishByWhip sends a picture and sound until the test ends.
func publishByWhip(t *testing.T, path string) *webrtc.PeerConnection {
	t.Helper()
	pc, stop := newPeer(t), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	for mime, duration := range map[string]time.Duration{
		webrtc.MimeTypeVP8: time.Second / 30, webrtc.MimeTypeOpus: 20 * time.Millisecond,
	} {
		track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: mime}, mime[:5], "clip")
		if err == nil {
			_, err = pc.AddTrack(track)
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			ticker := time.NewTicker(duration)
			defer ticker.Stop()
			for index := 0; ; index++ {
				select {
				case <-stop:
					return
				case <-ticker.C:
				}
				track.WriteSample(media.Sample{Data: frame(mime, index%30 == 0), Duration: duration})
			}
		}()
	}
	exchange(t, pc, path)
	return pc
}

func TestAPublisherByWhipIsAParticipantLikeAnyOther(t *testing.T) {
	alice := join(t, t.Name(), "alice")
	pc := publishByWhip(t, fmt.Sprintf("/whip/%s/camera", t.Name()))
	bob := join(t, t.Name(), "bob")
	for _, member := range []*member{alice, bob} {
		until(t, "two tracks", func() bool { tracks, packets, _ := member.counts(); return tracks == 2 && packets > 300 })
		until(t, "none is missing", func() bool { _, _, missing := member.counts(); return missing == 0 })
	}
	remotes := bob.room.GetRemoteParticipants()
	for _, remote := range remotes {
		if remote.Identity() != "camera" {
			continue
		}
		if remote.Kind() != lksdk.ParticipantIngress {
			t.Errorf("it is of the kind %v", remote.Kind())
		}
		for _, source := range []livekit.TrackSource{livekit.TrackSource_CAMERA, livekit.TrackSource_MICROPHONE} {
			if remote.GetTrackPublication(source) == nil {
				t.Errorf("it has no %v", source)
			}
		}
	}
	service := lksdk.NewRoomServiceClient("http://"+address, "devkey", "secret")
	identity := &livekit.RoomParticipantIdentity{Room: t.Name(), Identity: "camera"}
	if _, err := service.RemoveParticipant(t.Context(), identity); err != nil {
		t.Fatal(err)
	}
	until(t, "its tracks are gone", func() bool { tracks, _, _ := bob.counts(); return tracks == 0 })
	until(t, "it is told", func() bool { return pc.ConnectionState() >= webrtc.PeerConnectionStateDisconnected })
}

func TestAViewerByWhepGetsWhatAParticipantPublishes(t *testing.T) {
	alice := join(t, t.Name(), "alice")
	alice.publish(t, webrtc.MimeTypeVP8, &lksdk.TrackPublicationOptions{Name: "picture", Source: livekit.TrackSource_CAMERA})
	alice.publish(t, webrtc.MimeTypeOpus, &lksdk.TrackPublicationOptions{Name: "sound", Source: livekit.TrackSource_MICROPHONE})
	service := lksdk.NewRoomServiceClient("http://"+address, "devkey", "secret")
	identity := &livekit.RoomParticipantIdentity{Room: t.Name(), Identity: "alice"}
	until(t, "two tracks", func() bool {
		info, err := service.GetParticipant(t.Context(), identity)
		return err == nil && len(info.Tracks) == 2
	})
	pc, tracks := newPeer(t), make(chan *watched, 2)
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		w := &watched{}
		tracks <- w
		for {
			packet, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			w.take(packet.SequenceNumber)
		}
	})
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeAudio, webrtc.RTPCodecTypeVideo} {
		only := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
		if _, err := pc.AddTransceiverFromKind(kind, only); err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, pc, fmt.Sprintf("/whep/%s/alice", t.Name()))
	for range 2 {
		select {
		case track := <-tracks:
			until(t, "packets", func() bool { return track.packets.Load() > 100 })
			until(t, "none is missing", func() bool { return track.missing() == 0 })
		case <-time.After(20 * time.Second):
			t.Fatal("there is no track")
		}
	}
	if others := len(alice.room.GetRemoteParticipants()); others != 0 {
		t.Errorf("alice sees %d others", others)
	}
	alice.room.Disconnect()
	until(t, "it is told", func() bool { return pc.ConnectionState() >= webrtc.PeerConnectionStateDisconnected })
}
