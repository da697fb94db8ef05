// SPDX-License-Identifier: MIT

// Package v1alpha1 is what a claim, a claim template or a device class may say to rtxg in the
// parameters of driver gpu.rtxg.io: kind VGPUConfig of gpu.rtxg.io/v1alpha1. It is decoded strictly:
// a field that is not known, or given twice, is an error.
package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/json"
)

const (
	// GroupName is the API group, which is the driver's name as well.
	GroupName = "gpu.rtxg.io"
	// APIVersion and Kind name the only object of this package.
	APIVersion = GroupName + "/v1alpha1"
	Kind       = "VGPUConfig"

	// PPM is a whole GPU in parts per million, the unit of rtxgd's protocol.
	PPM = 1000000
	// PriorityMin and PriorityMax bound a priority; PriorityMax is first.
	PriorityMin, PriorityMax = 1, 99
	// LatencyMin and LatencyMax bound a bound on latency.
	LatencyMin, LatencyMax = 100 * time.Microsecond, 10 * time.Second

	bytesMax = 10240 // what the API server accepts as opaque parameters
)

// VGPUConfig says more about the vGPU of a claim than its share. All fields may be left out.
type VGPUConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Reservation is the share that the claim gets whenever it wants it, as "60%". Default: all of
	// the capacity "share" that the scheduler gave to the claim. It cannot be more than that.
	Reservation *string `json:"reservation,omitempty"`
	// Limit is the share that the claim never passes, as "80%". Default: "100%", so that the claim
	// may use what others leave.
	Limit *string `json:"limit,omitempty"`
	// Priority orders what is left over, 1 to 99, 99 is first. Default: 1.
	Priority *int `json:"priority,omitempty"`
	// Latency is the longest that work waits for the GPU once it arrives, as "5ms", from 100us to
	// 10s. Default: no bound.
	Latency *string `json:"latency,omitempty"`
}

// Settings is a configuration with its defaults, in rtxgd's units.
type Settings struct {
	MinPPM   int64         `json:"minPPM"`
	MaxPPM   int64         `json:"maxPPM"`
	Priority int           `json:"priority"`
	Latency  time.Duration `json:"latency,omitempty"` // 0: no bound
	// Memory of the GPU in bytes, of which a container has no more; 0: no limit. It is the capacity
	// "memory" that the scheduler gave to the claim, and no field of the configuration.
	Memory int64 `json:"memory,omitempty"`
}

var shareForm = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,4})?)%$`)

// Decode reads a configuration from JSON. The error names the field and the value.
func Decode(raw []byte) (*VGPUConfig, error) {
	if len(raw) > bytesMax {
		return nil, fmt.Errorf("the parameters have %d bytes; at most %d are accepted", len(raw), bytesMax)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, fmt.Errorf("the parameters are empty; %s of %s is accepted", Kind, APIVersion)
	}
	config := &VGPUConfig{}
	strict, err := json.UnmarshalStrict(raw, config)
	if err != nil {
		return nil, fmt.Errorf("the parameters cannot be read: %w", err)
	}
	if config.APIVersion != APIVersion || config.Kind != Kind {
		return nil, fmt.Errorf("the parameters are apiVersion %q, kind %q; apiVersion %q, kind %q is accepted",
			config.APIVersion, config.Kind, APIVersion, Kind)
	}
	if len(strict) > 0 {
		return nil, fmt.Errorf("%w; the fields are reservation, limit, priority and latency", errors.Join(strict...))
	}
	return config, nil
}

// ParseShare reads a share in percent, from 0% to 100%, as parts per million.
func ParseShare(field, text string) (int64, error) {
	match := shareForm.FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("%s: %q is not a share; write it in percent, as \"60%%\" or \"12.5%%\"", field, text)
	}
	number, _ := new(big.Rat).SetString(match[1])
	number.Mul(number, big.NewRat(PPM/100, 1))
	if number.Cmp(big.NewRat(PPM, 1)) > 0 {
		return 0, fmt.Errorf("%s: %s is more than one GPU; 0%% to 100%% is accepted", field, text)
	}
	return new(big.Int).Quo(number.Num(), number.Denom()).Int64(), nil
}

// FormatShare writes parts per million as a share in percent.
func FormatShare(ppm int64) string {
	text := strings.TrimRight(fmt.Sprintf("%d.%04d", ppm/(PPM/100), ppm%(PPM/100)), "0")
	return strings.TrimSuffix(text, ".") + "%"
}

func parseLatency(text string) (time.Duration, error) {
	latency, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("latency: %q is not a time; write it with its unit, as \"5ms\" or \"500us\"", text)
	}
	if latency < LatencyMin || latency > LatencyMax {
		return 0, fmt.Errorf("latency: %s is out of range; %s to %s is accepted", text, "100us", "10s")
	}
	return latency, nil
}

// Resolve fills in defaults and checks values. sharePPM is the capacity that the scheduler gave to
// the claim; a negative one is not known yet (the webhook sees no allocation), and is not checked.
// config may be nil.
func Resolve(config *VGPUConfig, sharePPM int64) (*Settings, error) {
	s := &Settings{MinPPM: max(sharePPM, 0), MaxPPM: PPM, Priority: PriorityMin}
	var wrong []error
	var err error

	if config == nil {
		return s, nil
	}
	if config.Reservation != nil {
		s.MinPPM, err = ParseShare("reservation", *config.Reservation)
		wrong = append(wrong, err)
		if err == nil && sharePPM >= 0 && s.MinPPM > sharePPM {
			wrong = append(wrong, fmt.Errorf("reservation: %s is more than the share of %s that the claim asks for; "+
				"ask for capacity share: %d, or reserve less", *config.Reservation, FormatShare(sharePPM),
				(s.MinPPM+PPM/100-1)/(PPM/100)))
		}
	}
	if config.Limit != nil {
		var limit int64

		limit, err = ParseShare("limit", *config.Limit)
		wrong = append(wrong, err)
		if err == nil {
			s.MaxPPM = limit
			if limit == 0 {
				wrong = append(wrong, errors.New("limit: 0% would let nothing run; more than 0% is accepted"))
			}
		}
	}
	if s.MaxPPM > 0 && s.MinPPM > s.MaxPPM {
		wrong = append(wrong, fmt.Errorf("limit: %s is less than the reservation of %s; raise the limit, or reserve less",
			FormatShare(s.MaxPPM), FormatShare(s.MinPPM)))
	}
	if config.Priority != nil {
		s.Priority = *config.Priority
		if s.Priority < PriorityMin || s.Priority > PriorityMax {
			wrong = append(wrong, fmt.Errorf("priority: %d is out of range; %d to %d is accepted", s.Priority, PriorityMin,
				PriorityMax))
		}
	}
	if config.Latency != nil {
		s.Latency, err = parseLatency(*config.Latency)
		wrong = append(wrong, err)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return s, nil
}
