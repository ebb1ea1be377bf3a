package deploy_test

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTraefikTrustsNoEndUserAndReadsLittle: Traefik warns at its start where the size of an answer is not bounded, and
// where it is not said whom X-Forwarded-* is believed, it passes some of an end user's on. Both are silent with older
// versions.
func TestTraefikTrustsNoEndUserAndReadsLittle(t *testing.T) {
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
	asks := file.HTTP.Middlewares["headgate"].ForwardAuth
	if asks.TrustForwardHeader == nil || *asks.TrustForwardHeader {
		t.Error("trustForwardHeader is not false")
	}
	if n := asks.MaxResponseBodySize; n < 4<<10 || n > 1<<20 {
		t.Errorf("maxResponseBodySize is %d: an answer of Headgate is a few hundred bytes", n)
	}
}
