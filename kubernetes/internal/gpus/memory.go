// SPDX-License-Identifier: MIT

package gpus

import (
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MemoryBySMI asks nvidia-smi once for the memory of all GPUs. Where the program is not to be had,
// no memory is known, and the capacity is not published.
func MemoryBySMI(ctx context.Context, program string) (func(uuid, pci string) int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return parseSMI(string(text))
}

func parseSMI(text string) (func(uuid, pci string) int64, error) {
	reader := csv.NewReader(strings.NewReader(text))
	reader.FieldsPerRecord, reader.TrimLeadingSpace = 2, true
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi said what cannot be read: %w", err)
	}
	known := map[string]int64{}
	for _, row := range rows {
		if mebibytes, err := strconv.ParseInt(row[1], 10, 64); err == nil && mebibytes > 0 {
			known[row[0]] = mebibytes << 20
		}
	}
	return func(uuid, _ string) int64 { return known[uuid] }, nil
}

// FixedMemory is one size for each GPU, as "80Gi".
func FixedMemory(text string) (func(uuid, pci string) int64, error) {
	size, err := resource.ParseQuantity(text)
	if err != nil || size.Value() <= 0 {
		return nil, fmt.Errorf("--gpu-memory: %q is not a size; write it as \"80Gi\"", text)
	}
	return func(string, string) int64 { return size.Value() }, nil
}
