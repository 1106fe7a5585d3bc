package pion

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
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
	return made
}

// relayOnly is a configuration that leaves pion no other way. Its WebRTC does not take a certificate that nobody else has signed.
func relayOnly(t *testing.T, way string) webrtc.Configuration {
	made := relayCredential(t)
	uri := fmt.Sprintf("turn:%s?transport=%s", made.address(t, way), way)
	server := webrtc.ICEServer{URLs: []string{uri}, Username: made.Username, Credential: made.Password}
	return webrtc.Configuration{ICEServers: []webrtc.ICEServer{server}, ICETransportPolicy: webrtc.ICETransportPolicyRelay}
}

// The ways to the relay, and what its URIs of each begin and end with.
var (
	ways    = []string{"udp", "tcp", "tls"}
	schemes = map[string][2]string{
		"udp": {"turn:", "?transport=udp"}, "tcp": {"turn:", "?transport=tcp"}, "tls": {"turns:", "?transport=tcp"},
	}
)

// address is where the relay is by one of them, as the server says.
func (made credential) address(t *testing.T, way string) string {
	t.Helper()
	for _, uri := range made.URIs {
		rest, is_scheme := strings.CutPrefix(uri, schemes[way][0])
		if address, is_way := strings.CutSuffix(rest, schemes[way][1]); is_scheme && is_way {
			return address
		}
	}
	t.Fatalf("no relay by %s among %v", way, made.URIs)
	return ""
}

// turnClient is pion's; it has no allocation yet.
func turnClient(t *testing.T, way string) *turn.Client {
	t.Helper()
	made := relayCredential(t)
	server := made.address(t, way)
	var conn net.PacketConn
	switch way {
	case "udp":
		socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
		check(t, err)
		conn = socket
	case "tcp":
		stream, err := net.Dial("tcp", server)
		check(t, err)
		conn = turn.NewSTUNConn(stream)
	case "tls":
		// The server has signed its certificate itself.
		stream, err := tls.Dial("tcp", server, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"stun.turn"}})
		check(t, err)
		conn = turn.NewSTUNConn(stream)
	}
	t.Cleanup(func() { conn.Close() })
	client, err := turn.NewClient(&turn.ClientConfig{
		STUNServerAddr: server, TURNServerAddr: server, Conn: conn, Username: made.Username, Password: made.Password,
		LoggerFactory: logging.NewDefaultLoggerFactory(),
	})
	check(t, err)
	t.Cleanup(client.Close)
	check(t, client.Listen())
	return client
}

// allocated is such a client's relayed address.
func allocated(t *testing.T, way string) net.PacketConn {
	t.Helper()
	relayed, err := turnClient(t, way).Allocate()
	check(t, err)
	t.Cleanup(func() { relayed.Close() })
	return relayed
}

// TestRelayCarriesDatagramsToAPeerAndBack is pion's client, first by indications and then, as it has it, by a channel.
func TestRelayCarriesDatagramsToAPeerAndBack(t *testing.T) {
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
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			relayed := allocated(t, way)
			buffer := make([]byte, 2000)
			for i := range 100 {
				// Of any length, so that there is padding too.
				sent := fmt.Sprintf("message %d%s", i, strings.Repeat(".", i*13%1400))
				_, err := relayed.WriteTo([]byte(sent), peer.LocalAddr())
				check(t, err)
				check(t, relayed.SetReadDeadline(time.Now().Add(20*time.Second)))
				n, from, err := relayed.ReadFrom(buffer)
				check(t, err)
				if string(buffer[:n]) != sent || from.String() != peer.LocalAddr().String() {
					t.Fatalf("%q from %v instead of %q", buffer[:n], from, sent)
				}
			}
		})
	}
}

// TestRelayConnectsToPeersByTCP: RFC 6062, to a peer that sends back what comes.
func TestRelayConnectsToPeersByTCP(t *testing.T) {
	peer, err := net.Listen("tcp4", "127.0.0.2:0")
	check(t, err)
	defer peer.Close()
	go func() {
		for {
			conn, err := peer.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	allocation, err := turnClient(t, "tcp").AllocateTCP()
	check(t, err)
	defer allocation.Close()
	data, err := allocation.Dial("tcp4", peer.Addr().String())
	check(t, err)
	defer data.Close()
	check(t, data.SetDeadline(time.Now().Add(20*time.Second)))
	sent := []byte(strings.Repeat("all that is said comes back. ", 10_000))
	go data.Write(sent)
	came := make([]byte, len(sent))
	_, err = io.ReadFull(data, came)
	check(t, err)
	if !bytes.Equal(came, sent) {
		t.Error("something else came back")
	}
}

// TestRelayRefusesLoopback: the hosts that nobody has allowed. At 127.0.0.1 the server's rooms are allowed, and no other port.
func TestRelayRefusesLoopback(t *testing.T) {
	relayed := allocated(t, "udp")
	for _, peer := range []*net.UDPAddr{{IP: net.IPv4(127, 0, 0, 3), Port: 53}, {IP: net.IPv4(10, 0, 0, 1), Port: 53}} {
		if _, err := relayed.WriteTo([]byte("hello"), peer); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%v: %v instead of a refusal", peer, err)
		}
	}
}

// TestRoomsAreReachedThroughTheRelayOfTheirServer: nobody has to allow that.
func TestRoomsAreReachedThroughTheRelayOfTheirServer(t *testing.T) {
	clip := readClip(t)
	for _, way := range []string{"udp", "tcp"} {
		t.Run(way, func(t *testing.T) {
			configuration, name := relayOnly(t, way), "relayed-"+way
			publish(t, name, clip, peerOptions{configuration: configuration})
			waitForStream(t, name)
			viewer := watch(t, name, newPeer(t, peerOptions{configuration: configuration}))
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
		})
	}
}
