// SPDX-License-Identifier: MIT

// Package rtxgd speaks rtxgd's control protocol (docs/reference/protocol.md): one JSON object a
// packet on a Unix socket that keeps packets apart. Each request has a connection of its own, so a
// daemon that starts again in between is not noticed.
//
// May not: decide anything about shares.
package rtxgd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// DefaultSocket is where the system's daemon listens.
	DefaultSocket = "/run/rtxg/rtxgd.sock"

	patience    = 10 * time.Second // for one answer
	requestMax  = 16384
	replyMax    = 65536
	memfdMax    = 64 << 20
	ancillaries = 1024
)

// Client asks the daemon at a socket.
type Client struct {
	Socket string
}

// Refusal is an answer with "ok": false.
type Refusal struct {
	Op      string `json:"op"`
	Errno   int    `json:"errno"`
	Message string `json:"message"`
	Value   *int64 `json:"value"`
	Limit   *int64 `json:"limit"`
}

func (r *Refusal) Error() string { return r.Message }

// Is lets errors.Is compare with a syscall.Errno.
func (r *Refusal) Is(target error) bool {
	number, ok := target.(syscall.Errno)
	return ok && int(number) == r.Errno
}

// ErrNoDaemon is the cause where the daemon does not answer.
var ErrNoDaemon = errors.New("no rtxgd answers")

func (c *Client) silent(err error) error {
	return fmt.Errorf("%w at %s: %v; on the node: systemctl enable --now rtxgd.socket", ErrNoDaemon, c.Socket, err)
}

// Ask sends {"op": op, members...} and decodes the answer into reply, which may be nil.
func (c *Client) Ask(ctx context.Context, op string, members map[string]any, reply any) error {
	request := map[string]any{"op": op}
	for name, value := range members {
		request[name] = value
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if len(text) > requestMax {
		return fmt.Errorf("request %s has %d bytes; at most %d are accepted", op, len(text), requestMax)
	}
	answer, err := c.exchange(ctx, text)
	if err != nil {
		return c.silent(err)
	}
	var head struct {
		OK *bool `json:"ok"`
	}
	if err := json.Unmarshal(answer, &head); err != nil || head.OK == nil {
		return c.silent(fmt.Errorf("its answer to %s is not of the protocol", op))
	}
	if !*head.OK {
		refusal := &Refusal{}
		if err := json.Unmarshal(answer, refusal); err != nil {
			return c.silent(fmt.Errorf("its answer to %s is not of the protocol: %w", op, err))
		}
		return refusal
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(answer, reply); err != nil {
		return c.silent(fmt.Errorf("its answer to %s is not of the protocol: %w", op, err))
	}
	return nil
}

func (c *Client) exchange(ctx context.Context, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unixpacket", c.Socket)
	if err != nil {
		return nil, err
	}
	connection := raw.(*net.UnixConn)
	defer connection.Close()
	end, _ := ctx.Deadline()
	if err := connection.SetDeadline(end); err != nil {
		return nil, err
	}
	if _, err := connection.Write(request); err != nil {
		return nil, err
	}
	answer, rights := make([]byte, replyMax), make([]byte, ancillaries)
	n, m, _, _, err := connection.ReadMsgUnix(answer, rights)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("it closed the connection")
	}
	return long(answer[:n], rights[:m])
}

// A long answer comes as the size of a memory file, with its descriptor.
func long(answer, rights []byte) ([]byte, error) {
	var files []*os.File
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		descriptors, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range descriptors {
			files = append(files, os.NewFile(uintptr(fd), "answer"))
		}
	}
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	var head struct {
		Memfd int64 `json:"memfd"`
	}
	if json.Unmarshal(answer, &head) != nil || head.Memfd == 0 {
		return answer, nil
	}
	if len(files) != 1 || head.Memfd < 0 || head.Memfd > memfdMax {
		return nil, fmt.Errorf("a long answer of %d bytes came with %d descriptors", head.Memfd, len(files))
	}
	whole := make([]byte, head.Memfd)
	if _, err := files[0].ReadAt(whole, 0); err != nil {
		return nil, err
	}
	return whole, nil
}
