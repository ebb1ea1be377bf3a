//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwardedSignals are the signals that run passes on to its command, unless they were alreadyDelivered.
var forwardedSignals = []os.Signal{
	os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// exitBySIGINT ends this process by SIGINT: only then does a shell end the script that runs it.
func exitBySIGINT() {
	signal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // until the signal is delivered
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// alreadyDelivered reports whether the command has got a signal too, if a key caused it: a terminal sends signals of
// its keys to all processes in the foreground. Many programs end at once when the same signal comes twice.
func alreadyDelivered(s os.Signal) bool {
	if s != os.Interrupt && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false // there is no terminal
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
