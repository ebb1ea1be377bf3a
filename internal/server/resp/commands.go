package resp

import (
	"bytes"
	"strings"
)

// isCommand reports whether the first of the words is the name of a command, whatever its case.
func isCommand(words [][]byte, name string) bool {
	return len(words[0]) == len(name) && strings.EqualFold(string(words[0]), name)
}

// command runs any command but CL.THROTTLE.
func (c *conn) command(words [][]byte) {
	name := "another command" // the name is logged, and the first word of a client may be a token
	switch args := words[1:]; {
	case isCommand(words, "QUIT"):
		c.simpleString("OK")
		c.closing = true
	case isCommand(words, "AUTH"):
		c.auth(args)
	case isCommand(words, "HELLO"):
		c.hello(args)
	default:
		if _, err := c.authorize(); err != nil {
			c.replyForbidden(name, err)
			return
		}
		c.runPermitted(words)
	}
}

// runPermitted runs the commands that need a known caller.
func (c *conn) runPermitted(words [][]byte) {
	switch args := words[1:]; {
	case isCommand(words, "PING") && len(args) == 0:
		c.simpleString("PONG")
	case isCommand(words, "PING") && len(args) == 1:
		c.bulk(args[0])
	case isCommand(words, "SELECT") && len(args) == 1:
		if string(args[0]) != "0" {
			c.error("ERR DB index is out of range: there is 0 alone")
			return
		}
		c.simpleString("OK")
	case isCommand(words, "INFO"): // some clients use it to test whether the server is ready
		c.bulk([]byte("# Server\r\nredis_mode:standalone\r\nheadgate_version:" + c.server.config.Version +
			"\r\n# Persistence\r\nloading:0\r\n"))
	case isCommand(words, "COMMAND"): // clients use it for completion
		if len(args) == 1 && strings.EqualFold(string(args[0]), "COUNT") {
			c.number(8) // those that the default below names
			return
		}
		c.array(0)
	case isCommand(words, "PING"), isCommand(words, "SELECT"):
		c.wrongArguments(string(words[0]))
	default:
		c.error("ERR unknown command; CL.THROTTLE is served here, and PING, HELLO, AUTH, COMMAND, INFO, SELECT, QUIT")
	}
}

// auth runs AUTH TOKEN and AUTH NAME TOKEN. The name is ignored.
func (c *conn) auth(args [][]byte) {
	if len(args) != 1 && len(args) != 2 {
		c.wrongArguments("AUTH")
		return
	}
	if c.server.config.Tokens == nil {
		c.error("ERR AUTH was called, and the server has no tokens: everybody is let in")
		return
	}
	if c.authenticate(args[len(args)-1]) {
		c.simpleString("OK")
	}
}

// authenticate sets the token of the connection, and reports whether its caller is permitted. If not, it replies with
// an error and keeps the former token.
func (c *conn) authenticate(token []byte) bool {
	before := c.token
	c.token = string(token)
	_, err := c.authorize()
	if err == nil {
		return true
	}
	c.replyForbidden("AUTH", err)
	c.token = before
	return false
}

// hello runs HELLO [VERSION [AUTH NAME TOKEN] [SETNAME NAME]].
func (c *conn) hello(args [][]byte) {
	resp3 := c.resp3
	if len(args) > 0 {
		switch string(args[0]) {
		case "2":
			resp3 = false
		case "3":
			resp3 = true
		default:
			c.error("NOPROTO unsupported protocol version")
			return
		}
		args = args[1:]
	}
	for len(args) > 0 {
		switch {
		case len(args) >= 3 && bytes.EqualFold(args[0], []byte("AUTH")):
			if c.server.config.Tokens != nil && !c.authenticate(args[2]) {
				return
			}
			args = args[3:]
		case len(args) >= 2 && bytes.EqualFold(args[0], []byte("SETNAME")):
			args = args[2:]
		default:
			c.error("ERR syntax error in HELLO")
			return
		}
	}
	if _, err := c.authorize(); err != nil {
		c.replyForbidden("HELLO", err)
		return
	}
	c.resp3 = resp3
	proto := int64(2)
	if resp3 {
		proto = 3
		c.writeHeader('%', 5) // pairs of a name and a value: a map
	} else {
		c.array(2 * 5)
	}
	for _, pair := range [][2]string{
		{"server", "headgate"}, {"version", c.server.config.Version}, {"mode", "standalone"}, {"role", "master"},
	} {
		c.bulk([]byte(pair[0]))
		c.bulk([]byte(pair[1]))
	}
	c.bulk([]byte("proto"))
	c.number(proto)
}

func (c *conn) wrongArguments(name string) {
	c.error("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
}
