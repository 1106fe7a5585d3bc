package pion

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

// baseURL is where the server under test listens.
var baseURL string

var serverLog = &lockedBuffer{}

// TestMain starts the server that all tests share: $MILLRACE_BIN on free ports of the loopback interface.
func TestMain(m *testing.M) {
	stop, err := startServer()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
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
	address := freeAddress()
	baseURL = "http://" + address
	server := exec.Command(binary, "serve")
	server.Env = append(os.Environ(),
		"MILLRACE_HTTP_LISTEN="+address, "MILLRACE_AUTH_DEV=true", "MILLRACE_WORKERS_UDP_PORT=0",
		"MILLRACE_RELAY_LISTEN=127.0.0.1:0", "MILLRACE_RELAY_SECRETS=a secret of some length",
		"MILLRACE_RELAY_TCP_LISTEN=127.0.0.1:0", "MILLRACE_RELAY_TLS_LISTEN=127.0.0.1:0", "MILLRACE_TLS_SELF_SIGNED=true",
		"MILLRACE_RELAY_TCP_ALLOCATIONS=true", "MILLRACE_RELAY_ALLOWED_PEERS=127.0.0.2")
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
	return nil, fmt.Errorf("the server does not answer on %s\n%s", baseURL, serverLog)
}

func healthy() bool {
	response, err := http.Get(baseURL + "/healthz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// freeAddress is one that nobody has, with a port below those that the kernel gives away meanwhile.
func freeAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
}

// lockedBuffer keeps what the server writes, for the case that a test fails.
type lockedBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}
