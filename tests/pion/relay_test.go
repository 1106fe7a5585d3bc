package pion

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pion/logging"
	"github.com/pion/turn/v4"
	"github.com/pion/webrtc/v4"
)

// credential is what the server makes for clients of its relay.
type credential struct {
	Username, Password string
	URIs               []string
}

func relayCredential(t *testing.T) credential {
	t.Helper()
	response, err := http.Post(baseURL+"/api/relay/credentials", "application/json", strings.NewReader(`{"ttl": 600}`))
	check(t, err)
	defer response.Body.Close()
	var made credential
	check(t, json.NewDecoder(response.Body).Decode(&made))
	if len(made.URIs) != 1 {
		t.Fatalf("one relay is expected, not %v", made.URIs)
	}
	return made
}

// relayOnly is a configuration that leaves pion no other way.
func relayOnly(t *testing.T) webrtc.Configuration {
	made := relayCredential(t)
	server := webrtc.ICEServer{URLs: made.URIs, Username: made.Username, Credential: made.Password}
	return webrtc.Configuration{ICEServers: []webrtc.ICEServer{server}, ICETransportPolicy: webrtc.ICETransportPolicyRelay}
}

// turnClient is pion's, with an allocation.
func turnClient(t *testing.T) net.PacketConn {
	t.Helper()
	made := relayCredential(t)
	server := strings.TrimSuffix(strings.TrimPrefix(made.URIs[0], "turn:"), "?transport=udp")
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	client, err := turn.NewClient(&turn.ClientConfig{
		STUNServerAddr: server, TURNServerAddr: server, Conn: conn, Username: made.Username, Password: made.Password,
		LoggerFactory: logging.NewDefaultLoggerFactory(),
	})
	check(t, err)
	t.Cleanup(client.Close)
	check(t, client.Listen())
	relayed, err := client.Allocate()
	check(t, err)
	t.Cleanup(func() { relayed.Close() })
	return relayed
}

// TestRelayCarriesDatagramsToAPeerAndBack is pion's client, first by indications and then, as it has it, by a channel.
func TestRelayCarriesDatagramsToAPeerAndBack(t *testing.T) {
	relayed := turnClient(t)
	// This is the one host of loopback that the test's server lets clients reach.
	peer, err := net.ListenPacket("udp4", "127.0.0.2:0")
	check(t, err)
	defer peer.Close()
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := peer.ReadFrom(buffer)
			if err != nil {
				return
			}
			peer.WriteTo(buffer[:n], from)
		}
	}()
	buffer := make([]byte, 2000)
	for i := range 100 {
		sent := fmt.Sprintf("message %d", i)
		_, err := relayed.WriteTo([]byte(sent), peer.LocalAddr())
		check(t, err)
		check(t, relayed.SetReadDeadline(time.Now().Add(20*time.Second)))
		n, from, err := relayed.ReadFrom(buffer)
		check(t, err)
		if string(buffer[:n]) != sent || from.String() != peer.LocalAddr().String() {
			t.Fatalf("%q from %v instead of %q", buffer[:n], from, sent)
		}
	}
}

// TestRelayRefusesLoopback: the hosts that nobody has allowed. At 127.0.0.1 the server's rooms are allowed, and no other port.
func TestRelayRefusesLoopback(t *testing.T) {
	relayed := turnClient(t)
	for _, peer := range []*net.UDPAddr{{IP: net.IPv4(127, 0, 0, 3), Port: 53}, {IP: net.IPv4(10, 0, 0, 1), Port: 53}} {
		if _, err := relayed.WriteTo([]byte("hello"), peer); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%v: %v instead of a refusal", peer, err)
		}
	}
}

// TestRoomsAreReachedThroughTheRelayOfTheirServer: nobody has to allow that.
func TestRoomsAreReachedThroughTheRelayOfTheirServer(t *testing.T) {
	clip := readClip(t)
	configuration := relayOnly(t)
	publish(t, "relayed", clip, peerOptions{configuration: configuration})
	waitForStream(t, "relayed")
	viewer := watch(t, "relayed", newPeer(t, peerOptions{configuration: configuration}))
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		video, audio := viewer.received()
		if len(video) > 100 && len(audio) > 50 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d packets of video and %d of audio came", len(video), len(audio))
		}
	}
	pair, err := viewer.pc.SCTP().Transport().ICETransport().GetSelectedCandidatePair()
	check(t, err)
	if pair.Local.Typ != webrtc.ICECandidateTypeRelay {
		t.Errorf("the viewer's way is %v", pair)
	}
}
