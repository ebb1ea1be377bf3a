package main

import "os"

// forwardedSignals are the signals that must not end this process while its command runs. Windows forwards none.
var forwardedSignals = []os.Signal{os.Interrupt}

// exitBySIGINT does nothing: on Windows the exit code is enough.
func exitBySIGINT() {}

// terminate kills a process: Windows has no signal that asks it to end.
func terminate(p *os.Process) error { return p.Kill() }

// alreadyDelivered returns true: the console sends Ctrl-C to all its processes.
func alreadyDelivered(os.Signal) bool { return true }
