package livekit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// address is where the server under test listens.
var address string

var serverLog = &lockedBuffer{}

// TestMain starts the server that all tests share: $MILLRACE_BIN on free ports of the loopback interface. One that runs already is
// named by $MILLRACE_TEST_LIVEKIT.
func TestMain(m *testing.M) {
	stop := func() {}
	if address = os.Getenv("MILLRACE_TEST_LIVEKIT"); address == "" {
		var err error
		if stop, err = startServer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	status := m.Run()
	stop()
	if status != 0 {
		fmt.Fprintf(os.Stderr, "what the server wrote:\n%s", serverLog)
	}
	os.Exit(status)
}

func startServer() (stop func(), err error) {
	binary := os.Getenv("MILLRACE_BIN")
	if binary == "" {
		binary = "../../target/debug/millrace"
	}
	address = freeAddress()
	server := exec.Command(binary, "serve")
	// No address of loopback is gathered by pion's clients; a server that listens elsewhere than there tells of the others.
	server.Env = append(os.Environ(), "MILLRACE_HTTP_LISTEN="+address, "MILLRACE_AUTH_DEV=true",
		"MILLRACE_WORKERS_UDP_PORT=0", "MILLRACE_LIVEKIT_DEPARTURE_TIMEOUT=0s")
	// A test that panics ends this process without a word; the kernel then ends the server.
	runtime.LockOSThread()
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	server.Stdout, server.Stderr = serverLog, serverLog
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w (cargo build makes it)", binary, err)
	}
	exited := make(chan error, 1)
	go func() { exited <- server.Wait() }()
	stop = func() {
		// The second SIGTERM ends the drain at once.
		for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGTERM, os.Kill} {
			server.Process.Signal(signal)
			select {
			case <-exited:
				return
			case <-time.After(2 * time.Second):
			}
		}
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-exited:
			return nil, fmt.Errorf("the server ended at once: %v\n%s", err, serverLog)
		default:
		}
		if healthy() {
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("the server does not answer\n%s", serverLog)
}

func healthy() bool {
	answer, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// freeAddress is one that nobody has, below those that the kernel gives away meanwhile.
func freeAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
}

type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}
