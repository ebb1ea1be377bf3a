package deploy_test

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTraefikForwardAuthSettings checks two settings. Without trustForwardHeader: false, Traefik passes some
// X-Forwarded-* headers of an end user on. Without a bound on the size of an answer, Traefik 3.7 warns at its start.
func TestTraefikForwardAuthSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("traefik/headgate.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					TrustForwardHeader  *bool `yaml:"trustForwardHeader"`
					MaxResponseBodySize int64 `yaml:"maxResponseBodySize"`
				} `yaml:"forwardAuth"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	forwardAuth := file.HTTP.Middlewares["headgate"].ForwardAuth
	if forwardAuth.TrustForwardHeader == nil || *forwardAuth.TrustForwardHeader {
		t.Error("got no trustForwardHeader, or true, want false")
	}
	if n := forwardAuth.MaxResponseBodySize; n < 4<<10 || n > 1<<20 {
		t.Errorf("got maxResponseBodySize %d, want 4 KiB to 1 MiB: an answer has a few hundred bytes", n)
	}
}
