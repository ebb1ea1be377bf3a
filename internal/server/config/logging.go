package config

import (
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// JSON is the value of LogFormat for lines of JSON.
const JSON = "json"

// Logging has the settings of a server's log.
type Logging struct {
	Format            string // text or JSON
	Level             slog.Level
	Refused, Admitted float64 // shares of the decisions to log, from 0 to 1
}

// Logging returns the settings of the log.
func (r *Reader) Logging() (l Logging) {
	l.Format = read(r, LogFormat, "text", "text or json", func(text string) (string, error) {
		return oneOf(text, "text", JSON)
	})
	l.Level = read(r, LogLevel, slog.LevelInfo, "debug, info, warn or error", func(text string) (slog.Level, error) {
		var level slog.Level
		text, err := oneOf(text, "debug", "info", "warn", "error")
		if err == nil {
			err = level.UnmarshalText([]byte(text))
		}
		return level, err
	})
	l.Refused, l.Admitted = r.share(LogRefused), r.share(LogAdmitted)
	if level := r.Value(LogLevel); l.Level > slog.LevelInfo && l.Refused+l.Admitted > 0 {
		r.fail(headgate.Invalid(level.source(LogLevel), "%q leaves out decisions, which have the level info, and a "+
			"share of them is to be logged", level.Value))
	}
	return l
}

// oneOf returns a text in lower case if it is one of some words, else an error.
func oneOf(text string, words ...string) (string, error) {
	if text = strings.ToLower(text); !slices.Contains(words, text) {
		return "", strconv.ErrSyntax
	}
	return text, nil
}

// Handler returns a handler that writes lines in the format, from the level on.
func (l *Logging) Handler(to io.Writer) slog.Handler {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.Format == JSON {
		return slog.NewJSONHandler(to, o)
	}
	return slog.NewTextHandler(to, o)
}
