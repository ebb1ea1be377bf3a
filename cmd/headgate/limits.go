package main

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/config"
)

// resolveLimit returns the limit that a person at the command line means: a
// name of the config file, or a notation, with or without a file.
func resolveLimit(configPath, nameOrNotation string) (headgate.Limit, error) {
	c, err := loadConfig(configPath)
	if err != nil {
		return headgate.Limit{}, err
	}
	return c.Resolve(nameOrNotation)
}

// loadConfig reads the file for the command line, where notations are always
// accepted.
func loadConfig(path string) (*config.Config, error) {
	c, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	yes := true
	c.AllowNotations = &yes
	return c, nil
}
