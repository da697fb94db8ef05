// SPDX-License-Identifier: MIT

package v1alpha1

import (
	"strings"
	"testing"
	"time"
)

func object(fields string) []byte {
	return []byte(`{"apiVersion": "gpu.rtxg.io/v1alpha1", "kind": "VGPUConfig"` + fields + `}`)
}

func TestDefaultsReserveWhatTheSchedulerGave(t *testing.T) {
	for _, raw := range [][]byte{nil, object("")} {
		var config *VGPUConfig
		var err error
		if raw != nil {
			if config, err = Decode(raw); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Resolve(config, 600000)
		if err != nil || *s != (Settings{MinPPM: 600000, MaxPPM: PPM, Priority: 1}) {
			t.Errorf("%s: %+v, %v", raw, s, err)
		}
	}
}

func TestEachFieldIsTaken(t *testing.T) {
	config, err := Decode(object(`, "reservation": "12.5%", "limit": "80%", "priority": 99, "latency": "500us"`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Resolve(config, 200000)
	if err != nil || *s != (Settings{MinPPM: 125000, MaxPPM: 800000, Priority: 99, Latency: 500 * time.Microsecond}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestWhatIsNoConfigurationIsRefusedByName(t *testing.T) {
	for raw, says := range map[string]string{
		"":     "empty",
		"  ":   "empty",
		"null": "apiVersion",
		"[]":   "cannot be read",
		"{":    "cannot be read",
		`{"apiVersion": "gpu.rtxg.io/v1", "kind": "VGPUConfig"}`:           `"gpu.rtxg.io/v1"`,
		`{"apiVersion": "gpu.rtxg.io/v1alpha1", "kind": "GpuConfig"}`:      `"GpuConfig"`,
		string(object(`, "reservations": "60%"`)):                          "reservations",
		string(object(`, "Limit": "60%"`)):                                 "Limit",
		string(object(`, "priority": 1, "priority": 2`)):                   "priority",
		string(object(`, "priority": "high"`)):                             "priority",
		string(object(`, "priority": 1.5`)):                                "priority",
		string(object(`, "limit": 60`)):                                    "limit",
		string(object(`, "limit": "` + strings.Repeat("6", 11000) + `%"`)): "at most 10240",
	} {
		if _, err := Decode([]byte(raw)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80s: %v; %q is to be said", raw, err, says)
		}
	}
}

func TestValuesOutOfRangeAreRefusedWithTheRemedy(t *testing.T) {
	for fields, says := range map[string][]string{
		`, "reservation": "60"`:            {`"60"`, "percent"},
		`, "reservation": "-1%"`:           {`"-1%"`},
		`, "reservation": "101%"`:          {"101%", "100%"},
		`, "reservation": "60.00001%"`:     {"60.00001%"},
		`, "reservation": "70%"`:           {"70%", "60%", "share: 70"},
		`, "reservation": "60.5%"`:         {"share: 61"},
		`, "limit": "0%"`:                  {"0%", "more than 0%"},
		`, "limit": "50%"`:                 {"50%", "60%", "raise the limit"},
		`, "priority": 0`:                  {"0", "1 to 99"},
		`, "priority": 100`:                {"100", "1 to 99"},
		`, "latency": "5"`:                 {`"5"`, "unit"},
		`, "latency": "99us"`:              {"99us", "100us to 10s"},
		`, "latency": "11s"`:               {"11s", "100us to 10s"},
		`, "latency": "-5ms"`:              {"-5ms"},
		`, "limit": "101%", "priority": 0`: {"limit", "priority"}, // both are named
	} {
		config, err := Decode(object(fields))
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		_, err = Resolve(config, 600000)
		for _, word := range says {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v; %q is to be said", fields, err, word)
			}
		}
	}
}

func TestWithoutAnAllocationAReservationIsNotCompared(t *testing.T) {
	config, err := Decode(object(`, "reservation": "70%"`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(config, -1); err != nil {
		t.Error(err)
	}
}

func TestSharesAreWrittenAsTheyAreRead(t *testing.T) {
	for text, ppm := range map[string]int64{"0%": 0, "100%": PPM, "12.5%": 125000, "0.0001%": 1, "60%": 600000} {
		got, err := ParseShare("limit", text)
		if err != nil || got != ppm || FormatShare(got) != text {
			t.Errorf("%s: %d, %v, %s", text, got, err, FormatShare(got))
		}
	}
}
