package main

import "github.com/spf13/cobra"

func newReplayCommand() *cobra.Command { return &cobra.Command{Use: "replay"} }
