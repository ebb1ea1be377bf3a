package replay

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// maxPeriods is the maximum number of periods that ParseSuggestOptions accepts.
const maxPeriods = 6

// ParseSuggestOptions reads the share that suggested limits may refuse, such as 0.2% or 0.002, the unit of the share
// (requests or keys), and the periods of the limits.
func ParseSuggestOptions(refuse, unit string, periods []string) (o SuggestOptions, err error) {
	number, isPercent := strings.CutSuffix(refuse, "%")
	o.Refuse, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		o.Refuse /= 100
	}
	if err != nil || !(o.Refuse >= 0 && o.Refuse < 1) {
		return o, headgate.Invalid("refuse", "%.40q is not a share such as 0.2%% or 0.002", refuse)
	}
	switch unit {
	case "requests":
	case "keys":
		o.OfKeys = true
	default:
		return o, headgate.Invalid("of", "%.40q is neither requests nor keys", unit)
	}
	seen := map[time.Duration]bool{}
	for _, text := range periods {
		d, err := headgate.ParsePeriod(text)
		if err != nil {
			return o, err
		}
		if !seen[d] {
			o.Periods = append(o.Periods, d)
		}
		seen[d] = true
	}
	if len(o.Periods) == 0 || len(o.Periods) > maxPeriods {
		return o, headgate.Invalid("period", "%d periods; name 1 to %d", len(o.Periods), maxPeriods)
	}
	return o, nil
}

// ParseTime reads a time for Since or Until; an error names field. A time without a zone is in UTC, and an empty text
// is the zero time.
func ParseTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{
		time.RFC3339, time.DateOnly, time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04",
	} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() > 1970 {
			return t, nil
		}
	}
	return time.Time{}, headgate.Invalid(field, "%.60q is not a time such as 2026-05-01 or 2026-05-01T12:00:00Z", text)
}
