package deploy_test

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTraefikTrustsNoEndUserAndBoundsAnswers: Traefik warns at its start if the size of an answer has no bound. Without
// trustForwardHeader it passes some X-Forwarded-* headers of an end user on. Older versions are silent about both.
func TestTraefikTrustsNoEndUserAndBoundsAnswers(t *testing.T) {
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
