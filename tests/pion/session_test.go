package pion

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/pion/interceptor"
	"github.com/pion/webrtc/v4"

	"millrace/tests/pion/client"
)

// session is a peer connection and the resource on the server that belongs to it.
type session struct {
	pc  *webrtc.PeerConnection
	url string
}

// peerOptions is what a test may want otherwise than pion has it by default.
type peerOptions struct {
	// nearNetwork stands between the network and pion's own interceptors.
	nearNetwork interceptor.Factory
	// profiles are the only ones to be offered.
	profiles []dtls.SRTPProtectionProfile
	// network is UDP over IPv4 unless said otherwise.
	network webrtc.NetworkType
	// configuration is empty unless said otherwise.
	configuration webrtc.Configuration
}

// newPeer makes a peer connection that reaches the loopback interface.
func newPeer(t *testing.T, options peerOptions) *webrtc.PeerConnection {
	t.Helper()
	media := &webrtc.MediaEngine{}
	check(t, media.RegisterDefaultCodecs())
	registry := &interceptor.Registry{}
	if options.nearNetwork != nil {
		registry.Add(options.nearNetwork)
	}
	check(t, webrtc.RegisterDefaultInterceptors(media, registry))
	settings := webrtc.SettingEngine{}
	settings.SetIncludeLoopbackCandidate(true)
	network := webrtc.NetworkTypeUDP4
	if options.network != 0 {
		network = options.network
	}
	settings.SetNetworkTypes([]webrtc.NetworkType{network})
	if len(options.profiles) > 0 {
		settings.SetSRTPProtectionProfiles(options.profiles...)
	}
	api := webrtc.NewAPI(
		webrtc.WithMediaEngine(media), webrtc.WithInterceptorRegistry(registry), webrtc.WithSettingEngine(settings))
	pc, err := api.NewPeerConnection(options.configuration)
	check(t, err)
	t.Cleanup(func() { pc.Close() })
	return pc
}

// open exchanges SDP with /whip/NAME or /whep/NAME and waits until the connection stands.
func open(t *testing.T, pc *webrtc.PeerConnection, path string) *session {
	t.Helper()
	connected := client.Connected(pc)
	location, err := client.Exchange(pc, baseURL+path)
	check(t, err)
	s := &session{pc: pc, url: location}
	t.Cleanup(func() { s.close(t) })
	select {
	case <-connected:
	case <-time.After(10 * time.Second):
		t.Fatalf("POST %s: no connection within 10 s; answer:\n%s", path, pc.RemoteDescription().SDP)
	}
	return s
}

// waitForStream returns once the server lists the stream as live.
func waitForStream(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(baseURL + "/api/streams")
		check(t, err)
		var streams []struct{ Name, State string }
		err = json.NewDecoder(response.Body).Decode(&streams)
		response.Body.Close()
		check(t, err)
		for _, stream := range streams {
			if stream.Name == name && stream.State == "live" {
				return
			}
		}
	}
	t.Fatalf("stream %s is not live within 5 s", name)
}

// close deletes the resource; a second call does no harm. Returns the status of the DELETE.
func (s *session) close(t *testing.T) int {
	t.Helper()
	status, err := client.End(s.url)
	check(t, err)
	return status
}

// gone waits until the server knows the resource no more.
func (s *session) gone(within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		response, err := http.Get(s.url + "/stats")
		if err != nil {
			return false
		}
		response.Body.Close()
		if response.StatusCode == http.StatusNotFound {
			return true
		}
	}
	return false
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
