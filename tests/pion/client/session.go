package client

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/pion/webrtc/v4"
)

// Refused is an answer that is none.
type Refused struct {
	Endpoint string
	Status   int
	Body     string
}

func (r *Refused) Error() string { return fmt.Sprintf("POST %s: %d\n%s", r.Endpoint, r.Status, r.Body) }

// Connected is closed when the connection stands for the first time. To be asked for before Exchange.
func Connected(pc *webrtc.PeerConnection) <-chan struct{} {
	connected := make(chan struct{})
	var once sync.Once
	pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		// It may be so again, after an interruption.
		if state == webrtc.PeerConnectionStateConnected {
			once.Do(func() { close(connected) })
		}
	})
	return connected
}

// Exchange sends an offer to a WHIP or WHEP endpoint and takes the answer; it returns the session's address.
func Exchange(pc *webrtc.PeerConnection, endpoint string) (string, error) {
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(offer); err != nil {
		return "", err
	}
	<-gathered
	response, err := http.Post(endpoint, "application/sdp", strings.NewReader(pc.LocalDescription().SDP))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusCreated {
		return "", &Refused{Endpoint: endpoint, Status: response.StatusCode, Body: string(answer)}
	}
	if got := response.Header.Get("Content-Type"); got != "application/sdp" {
		return "", fmt.Errorf("POST %s: Content-Type %q", endpoint, got)
	}
	location, err := response.Request.URL.Parse(response.Header.Get("Location"))
	if err != nil {
		return "", err
	}
	return location.String(), pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)})
}

// End deletes a session; it returns the answer's status.
func End(location string) (int, error) {
	request, err := http.NewRequest(http.MethodDelete, location, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
