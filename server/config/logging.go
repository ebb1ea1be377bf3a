package config

import (
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// JSON is the value of LogFormat for lines of JSON.
const JSON = "json"

// Logging is how a server logs, and what of its decisions.
type Logging struct {
	Format            string // text or JSON
	Level             slog.Level
	Refused, Admitted float64 // shares of the decisions, from 0 to 1
}

// Logging returns what is said of the log.
func (c *Config) Logging(flags Flags) (l Logging, err error) {
	format, err := c.Get(LogFormat, flags)
	if err != nil {
		return l, err
	}
	if l.Format = strings.ToLower(format.Value); l.Format != "text" && l.Format != JSON {
		return l, headgate.Invalid(format.of(LogFormat), "%.40q is not text or json", format.Value)
	}
	level, err := c.Get(LogLevel, flags)
	if err != nil {
		return l, err
	}
	switch strings.ToLower(level.Value) {
	case "debug":
		l.Level = slog.LevelDebug
	case "info":
		l.Level = slog.LevelInfo
	case "warn":
		l.Level = slog.LevelWarn
	case "error":
		l.Level = slog.LevelError
	default:
		return l, headgate.Invalid(level.of(LogLevel), "%.40q is not debug, info, warn or error", level.Value)
	}
	if l.Refused, err = c.share(LogRefused, flags); err == nil {
		l.Admitted, err = c.share(LogAdmitted, flags)
	}
	if err == nil && l.Level > slog.LevelInfo && l.Refused+l.Admitted > 0 {
		return l, headgate.Invalid(level.of(LogLevel), "%q leaves out decisions, which have the level info, and a "+
			"share of them is to be logged", level.Value)
	}
	return l, err
}

// share returns a number from 0 to 1; 0 where nothing was said.
func (c *Config) share(s Setting, flags Flags) (float64, error) {
	said, err := c.Get(s, flags)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseFloat(said.Value, 64)
	if err != nil || !(n >= 0 && n <= 1) {
		return 0, headgate.Invalid(said.of(s), "%.40q is not a number from 0 to 1, such as 0.01", said.Value)
	}
	return n, nil
}

// Handler returns one that writes lines.
func (l *Logging) Handler(to io.Writer) slog.Handler {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.Format == JSON {
		return slog.NewJSONHandler(to, o)
	}
	return slog.NewTextHandler(to, o)
}
