// SPDX-License-Identifier: MIT

package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Phases of a claim in the checkpoint. A claim is noted before anything of it is made, and forgotten
// after everything of it is gone.
const (
	Preparing   = "preparing"
	Prepared    = "prepared"
	Unpreparing = "unpreparing"
)

const (
	checkpointVersion = "v1"
	checkpointFile    = "checkpoint.json"
	lockFile          = "checkpoint.lock"
)

// Entry is a claim in the checkpoint.
type Entry struct {
	Phase  string `json:"phase"`
	Wanted Wanted `json:"wanted"`
}

type checkpoint struct {
	Version string               `json:"version"`
	Sum     uint32               `json:"sum"` // CRC-32 of the claims
	Claims  map[types.UID]*Entry `json:"claims"`
}

// errDamaged is a checkpoint that cannot be read.
var errDamaged = errors.New("the checkpoint is damaged")

func (s *State) path() string { return filepath.Join(s.Folder, checkpointFile) }

// lock keeps out this plugin's other threads, and another plugin's while one replaces the other.
func (s *State) lock() (func(), error) {
	s.mutex.Lock()
	file, err := os.OpenFile(filepath.Join(s.Folder, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
			file.Close()
		}
	}
	if err != nil {
		s.mutex.Unlock()
		return nil, fmt.Errorf("lock of the checkpoint: %w", err)
	}
	return func() {
		file.Close()
		s.mutex.Unlock()
	}, nil
}

// lockAndLoad reads the checkpoint, which is the caller's alone until unlock.
func (s *State) lockAndLoad() (known map[types.UID]*Entry, unlock func(), err error) {
	if unlock, err = s.lock(); err != nil {
		return nil, nil, err
	}
	if known, err = s.load(); err != nil {
		unlock()
		return nil, nil, err
	}
	return known, unlock, nil
}

func sum(claims map[types.UID]*Entry) uint32 {
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return crc32.ChecksumIEEE(text)
}

// load reads the checkpoint. A damaged one is set aside and an empty one takes its place: names of
// vGPUs and files follow from the claims, so the kubelet's next requests find what is there.
func (s *State) load() (map[types.UID]*Entry, error) {
	claims, err := readCheckpoint(s.path())
	if errors.Is(err, errDamaged) {
		s.Log.Error(err, "A new checkpoint is begun", "setAside", s.path()+".damaged")
		if err := os.Rename(s.path(), s.path()+".damaged"); err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		return map[types.UID]*Entry{}, nil
	}
	return claims, err
}

func readCheckpoint(path string) (map[types.UID]*Entry, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[types.UID]*Entry{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var c checkpoint
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errDamaged, path, err)
	}
	if c.Version != checkpointVersion {
		return nil, fmt.Errorf("checkpoint %s has version %q, and this plugin reads %q: run the version that wrote it until its claims "+
			"have ended", path, c.Version, checkpointVersion)
	}
	for uid, entry := range c.Claims {
		if entry == nil || entry.Wanted.UID != uid || validUID(uid) != nil {
			return nil, fmt.Errorf("%w: %s: claim %q", errDamaged, path, uid)
		}
	}
	if c.Claims == nil {
		c.Claims = map[types.UID]*Entry{}
	}
	if sum(c.Claims) != c.Sum {
		return nil, fmt.Errorf("%w: %s: its sum is %d, and %d is right", errDamaged, path, c.Sum, sum(c.Claims))
	}
	return c.Claims, nil
}

// save replaces the checkpoint: after a crash the old one or the new one is there, and whole.
func (s *State) save(claims map[types.UID]*Entry) error {
	text, err := json.MarshalIndent(checkpoint{Version: checkpointVersion, Sum: sum(claims), Claims: claims}, "", "  ")
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	file, err := os.OpenFile(s.path()+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if failed := file.Close(); err == nil {
		err = failed
	}
	if err == nil {
		s.step("checkpoint written")
		err = os.Rename(s.path()+".new", s.path())
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	folder, err := os.Open(s.Folder)
	if err == nil {
		err = folder.Sync()
		folder.Close()
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
