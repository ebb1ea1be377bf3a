package accesslog

import (
	"strings"
	"testing"
	"time"
)

// sample has three lines of a format as its documentation shows or describes them, and the result of describe for each:
// the time and the values of the fields, or "skip" and the reason, or the error.
type sample struct {
	format Format
	head   string // lines before lines
	lines  [3]string
	want   [3]string
	// damaged is a line that looks like the format, and damagedErr the error of reading it.
	damaged    string
	damagedErr error
}

const nginxAgent = `"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)"`

var samples = []sample{
	{ // nginx.org, ngx_http_log_module: the format "combined"
		format: Combined,
		lines: [3]string{
			`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"`,
			`2001:db8::7 - - [10/Oct/2000:13:55:37 -0700] "POST /login?next=%2F HTTP/1.1" 302 0 "-" ` + nginxAgent,
			`203.0.113.9 - - [10/Oct/2000:20:55:38 +0000] "\x16\x03\x01" 400 157 "-" "-"`,
		},
		want: [3]string{
			"2000-10-10T20:55:36Z 127.0.0.1 GET /apache_pb.gif 200",
			"2000-10-10T20:55:37Z 2001:db8::7 POST /login 302",
			`2000-10-10T20:55:38Z 203.0.113.9 - \x16\x03\x01 400`,
		},
		damaged:    `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.exa`,
		damagedErr: errNoAgent,
	},
	{ // httpd.apache.org, Log Files: Common Log Format
		format: Common,
		lines: [3]string{
			`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
			`192.168.2.20 - - [28/Jul/2006:10:27:10 -0300] "GET /cgi-bin/try/ HTTP/1.0" 200 3395`,
			`127.0.0.1 - - [28/Jul/2006:10:22:04 -0300] "GET / HTTP/1.0" 304 -`,
		},
		want: [3]string{
			"2000-10-10T20:55:36Z 127.0.0.1 GET /apache_pb.gif 200",
			"2006-07-28T13:27:10Z 192.168.2.20 GET /cgi-bin/try/ 200",
			"2006-07-28T13:22:04Z 127.0.0.1 GET / 304",
		},
		damaged:    `127.0.0.1 - - [28/Jul/2006:10:22:04 -0300] "GET / HTTP/1.0" 2216`,
		damagedErr: errCLFStatus,
	},
	{ // Debian's apache2.conf: LogFormat "%v:%p %h %l %u %t ..." vhost_combined
		format: VHost,
		lines: [3]string{
			`www.example.com:80 127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326 "-" "Mozilla/4.08"`,
			`www.example.com:443 2001:db8::7 - - [10/Oct/2000:13:55:37 -0700] "GET / HTTP/1.1" 404 9 "-" "-"`,
			`shop.example.com 203.0.113.9 - - [10/Oct/2000:13:55:38 -0700] "HEAD / HTTP/1.1" 200 - "-" "-"`,
		},
		want: [3]string{
			"2000-10-10T20:55:36Z 127.0.0.1 GET /a 200",
			"2000-10-10T20:55:37Z 2001:db8::7 GET / 404",
			"2000-10-10T20:55:38Z 203.0.113.9 HEAD / 200",
		},
		damaged:    `www.example.com:80 127.0.0.1 - frank [10/Oct/2000:13:55:36] "GET /a HTTP/1.0" 200 2326`,
		damagedErr: errCLFTime,
	},
	{ // doc.traefik.io, access logs: the common format
		format: TraefikCLF,
		lines: [3]string{
			`192.168.1.100 - - [15/May/2025:12:06:30 +0000] "GET /api HTTP/1.1" 200 1024 "-" "Mozilla/5.0" 42 "router@docker" "http://172.19.0.3:80" 150ms`,
			`10.42.0.1 - admin [15/May/2025:12:06:31 +0000] "GET /dashboard/ HTTP/2.0" 401 17 "-" "-" 43 "dash@file" "-" 0ms`,
			`2001:db8::1 - - [15/May/2025:12:06:32 +0000] "GET /x?y=1 HTTP/2.0" 404 19 "-" "curl/8.5.0" 44 "-" "-" 0ms`,
		},
		want: [3]string{
			"2025-05-15T12:06:30Z 192.168.1.100 GET /api 200",
			"2025-05-15T12:06:31Z 10.42.0.1 GET /dashboard/ 401",
			"2025-05-15T12:06:32Z 2001:db8::1 GET /x 404",
		},
		damaged:    `10.42.0.1 - - [15/May/2025:12:06:31 +0000] "GET / HTTP/2.0" 401 17 "-" "-" 43 "dash@file" "htt`,
		damagedErr: errTraefikEnd,
	},
	{ // the HAProxy configuration manual, HTTP log format and Error log format
		format: HAProxy,
		lines: [3]string{
			`Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`,
			`haproxy[18113]: 127.0.0.1:34549 [15/Oct/2003:15:19:06.103] px-http px-http/<NOSRV> -1/-1/-1/-1/+50001 408 +2750 - - cR-- 2/2/2/0/+2 0/0 ""`,
			`Feb  6 12:12:09 localhost haproxy[14385]: Connect from 10.0.1.2:33312 to 10.0.3.31:8012 (www/HTTP)`,
		},
		want: [3]string{
			"2009-02-06T12:14:14.655Z 10.0.1.2 GET /index.html 200",
			"2003-10-15T15:19:06.103Z 127.0.0.1 -  408",
			"skip: is not about a request",
		},
		damaged:    `Feb  6 12:12:56 localhost haproxy[14387]: 10.0.1.2:33313 [06/Feb/2009:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0`,
		damagedErr: errHAProxyRequest,
	},
	{ // docs.aws.amazon.com, access logs for your Application Load Balancer, and for your Classic one
		format: ALB,
		lines: [3]string{
			`http 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - - arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337262-36d228ad5d99923122bbe354" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"`,
			`wss 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 10.0.0.140:44244 10.0.0.171:8010 0.000 0.001 0.000 101 101 218 786 "GET https://10.0.0.30:443/chat?room=1 HTTP/1.1" "-" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337364-23a8c76965a2ef7629b185e3" "-" "-" 1 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.171:8010" "101" "-" "-"`,
			`2015-05-13T23:39:43.945958Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -`,
		},
		want: [3]string{
			"2018-07-02T22:23:00.186641Z 192.168.131.39 GET / 200",
			"2018-07-02T22:23:00.186641Z 10.0.0.140 GET /chat 101",
			"2015-05-13T23:39:43.945958Z 192.168.131.39 GET / 200",
		},
		damaged:    `http 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.000 0.001 0.000 200 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - -`,
		damagedErr: errALBColumns,
	},
	{ // learn.microsoft.com, W3C logging
		format: W3C,
		head: "#Software: Microsoft HTTP Server API 2.0\n#Version: 1.0\n#Date: 2002-05-02 17:42:15\n" +
			"#Fields: date time c-ip cs-username s-ip s-port cs-method cs-uri-stem cs-uri-query sc-status cs(User-Agent) \n",
		lines: [3]string{
			`2002-05-02 17:42:15 172.22.255.255 - 172.30.255.255 80 GET /images/picture.jpg - 200 Mozilla/4.0+(compatible;MSIE+5.5;+Windows+2000+Server)`,
			`2002-05-02 17:42:16 2001:db8::7 ann 172.30.255.255 80 POST /login.aspx a=1 302 -`,
			`#Date: 2002-05-02 17:42:17`,
		},
		want: [3]string{
			"2002-05-02T17:42:15Z 172.22.255.255 GET /images/picture.jpg 200",
			"2002-05-02T17:42:16Z 2001:db8::7 POST /login.aspx 302",
			"skip: is a directive",
		},
		damaged:    `2002-05-02 17:42:15 172.22.255.255 - 172.30.255.255 80 GET /images/picture.jpg 200 Mozilla/4.0`,
		damagedErr: errW3CColumnCount,
	},
	{ // caddyserver.com, How Logging Works: structured logs
		format: Caddy,
		lines: [3]string{
			`{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"127.0.0.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/","headers":{"User-Agent":["curl/7.82.0"]},"tls":{"resumed":false,"version":772}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}`,
			`{"level":"error","ts":1646861402,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"10.0.0.9","client_ip":"2001:db8::7","method":"POST","host":"localhost","uri":"/login?a=b","headers":{}},"size":0,"status":502}`,
			`{"level":"info","ts":1646861403.1,"logger":"tls.cache.maintenance","msg":"started background certificate maintenance"}`,
		},
		want: [3]string{
			"2022-03-09T21:30:01.524102Z 127.0.0.1 GET / 200",
			"2022-03-09T21:30:02Z 2001:db8::7 POST /login 502",
			"skip: is not about a request",
		},
		damaged:    `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled requ`,
		damagedErr: errJSON,
	},
	{ // doc.traefik.io, access logs: format json, and its list of fields
		format: TraefikJSON,
		lines: [3]string{
			`{"ClientAddr":"172.19.0.1:56984","ClientHost":"172.19.0.1","ClientPort":"56984","ClientUsername":"-","DownstreamContentSize":19,"DownstreamStatus":404,"Duration":27000,"RequestHost":"localhost","RequestMethod":"GET","RequestPath":"/a?b=c","StartLocal":"2025-05-01T14:00:00.25+02:00","StartUTC":"2025-05-01T12:00:00.25Z","level":"info","msg":"","time":"2025-05-01T12:00:03Z"}`,
			`{"ClientHost":"1.2.3.4","RequestMethod":"GET","RequestHost":"api.example.com","RequestPath":"/index/v1","DownstreamStatus":200,"request_User-Agent":"curl/7.68.0","time":"2025-05-01T12:00:00Z"}`,
			`{"ClientHost":"2001:db8::7","RequestMethod":"PUT","RequestPath":"/x","DownstreamStatus":201,"StartUTC":"2025-05-01T12:00:01Z"}`,
		},
		want: [3]string{
			"2025-05-01T12:00:00.25Z 172.19.0.1 GET /a 404",
			"2025-05-01T12:00:00Z 1.2.3.4 GET /index/v1 200",
			"2025-05-01T12:00:01Z 2001:db8::7 PUT /x 201",
		},
		damaged:    `{"ClientHost":"1.2.3.4","RequestMethod":"GET","RequestPath":"/index/v1","DownstreamStatus":200}`,
		damagedErr: errNoTime,
	},
	{ // the objects usage of the OpenAI and Anthropic API references, in a line of a log
		format: Usage,
		lines: [3]string{
			`{"ts":"2025-05-01T12:00:00Z","ip":"10.0.0.1","method":"POST","path":"/v1/chat","status":200,"max_tokens":500,"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29},"duration_ms":1500}`,
			`{"start_time":"2025-05-01T12:00:01Z","ip":"10.0.0.2","method":"POST","path":"/v1/messages","status":200,"usage":{"input_tokens":2095,"output_tokens":503},"end_time":"2025-05-01T12:00:09Z"}`,
			`{"created":1746100802,"ip":"10.0.0.3","method":"POST","path":"/v1","status":200,"reserved_tokens":100,"total_tokens":40}`,
		},
		want: [3]string{
			"2025-05-01T12:00:00Z 10.0.0.1 POST /v1/chat 200 reserved 519 used 29 until 12:00:01.5",
			"2025-05-01T12:00:01Z 10.0.0.2 POST /v1/messages 200 reserved 2598 used 2598 until 12:00:09",
			"2025-05-01T12:00:02Z 10.0.0.3 POST /v1 200 reserved 100 used 40",
		},
		damaged:    `{"ts":"2025-05-01T12:00:00Z","ip":"10.0.0.1","usage":{"total_tokens":"many"}}`,
		damagedErr: errBadTokens,
	},
	{ // jsonlines.org, with the names of nginx' documentation of log_format escape=json
		format: JSON,
		lines: [3]string{
			`{"time":"2025-05-01T12:00:00+02:00","remote_addr":"10.0.0.1","request_method":"GET","request_uri":"/a?b","status":"200"}`,
			`{"@timestamp":"2025-05-01T10:00:01.5Z","clientip":"2001:db8::7","method":"GET","url":"/b","status":404}`,
			`{"timestamp":1746093602000,"ip":"10.0.0.3","method":"PUT","path":"/c","status_code":204}`,
		},
		want: [3]string{
			"2025-05-01T10:00:00Z 10.0.0.1 GET /a 200",
			"2025-05-01T10:00:01.5Z 2001:db8::7 GET /b 404",
			"2025-05-01T10:00:02Z 10.0.0.3 PUT /c 204",
		},
		damaged:    `{"time":"yesterday","remote_addr":"10.0.0.1"}`,
		damagedErr: errBadTime,
	},
	{ // RFC 4180
		format: CSV,
		head:   "time,ip,method,path,status,\"user agent\"\n",
		lines: [3]string{
			`2025-05-01T12:00:00Z,10.0.0.1,GET,/a,200,"Mozilla/5.0 (X11, Linux)"`,
			`2025-05-01 12:00:01,"2001:db8::7",GET,"/a?""x""",200,`,
			`1746100802,10.0.0.3,"","/b,c",404,"-"`,
		},
		want: [3]string{
			"2025-05-01T12:00:00Z 10.0.0.1 GET /a 200",
			`2025-05-01T12:00:01Z 2001:db8::7 GET /a 200`,
			"2025-05-01T12:00:02Z 10.0.0.3  /b,c 404",
		},
		damaged:    `2025-05-01T12:00:00Z,10.0.0.1,GET,/a,200,"Mozilla/5.0 (X11`,
		damagedErr: errCSVQuotes,
	},
	{ // the messages of sshd(8) in syslog
		format: SSHD,
		lines: [3]string{
			`Mar 27 14:54:57 h sshd[2967]: Invalid user support from 95.152.57.58`,
			`Mar 29 10:05:01 h sshd[1071]: Failed password for root from 10.0.0.1 port 1 ssh2`,
			`Mar 29 10:05:02 h sshd[1071]: Connection closed by 10.0.0.1 [preauth]`,
		},
		want: [3]string{
			"2015-03-27T14:54:57Z 95.152.57.58",
			"2015-03-29T10:05:01Z 10.0.0.1",
			"skip: is not about a password that failed or an invalid user",
		},
		damaged:    `Mar 27 14:54:57 h sshd[2967]: Invalid user support`,
		damagedErr: errSSHDAddress,
	},
	{ // OpenSSH 9.2, auth_log in auth.c, where PAM asks; journalctl -o short-unix of systemd 252
		format: SSHD,
		lines: [3]string{
			`1427468097.000250 h sshd[2967]: Failed keyboard-interactive/pam for root from 10.0.0.1 port 33568 ssh2`,
			`1427468098.000000 h sshd-session[2968]: Failed keyboard-interactive/pam for invalid user ann for from 10.0.0.2 port 1 ssh2`,
			`1427468099.000000 h sshd[2969]: Failed publickey for root from 10.0.0.1 port 33569 ssh2: RSA SHA256:x`,
		},
		want: [3]string{
			"2015-03-27T14:54:57.00025Z 10.0.0.1",
			"2015-03-27T14:54:58Z 10.0.0.2",
			"skip: is not about a password that failed or an invalid user",
		},
		damaged:    `1427468097 h sshd[2967]: Failed keyboard-interactive/pam for root from 10.0.0.1 port 33568 ssh2`,
		damagedErr: errSyslog,
	},
	{ // envoyproxy.io, v1.36, Access logging: Default format string; and the lines that Envoy writes of itself
		format: Envoy,
		lines: [3]string{
			`[2016-04-15T20:17:00.310Z] "POST /api/v1/locations?x=1 HTTP/2" 204 - 154 0 226 100 "6.6.6.6, 198.51.100.7,10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"`,
			`[2016-04-15T20:17:01.000Z] "GET /a HTTP/1.1" 0 DC 0 0 12 - "2001:db8::7" "-" "cc21d9b0" "[::1]:80" "-"`,
			`[2016-04-15 20:17:02.123][7][info][main] [source/server/server.cc:900] starting main dispatch loop`,
		},
		want: [3]string{
			"2016-04-15T20:17:00.31Z 198.51.100.7 POST /api/v1/locations 204",
			"2016-04-15T20:17:01Z 2001:db8::7 GET /a 0",
			"skip: is not about a request",
		},
		damaged:    `[2016-04-15T20:17:00.310Z] "POST /a HTTP/2" 204 - 154 0 226 100 "::1" "a" b" "c" "d" "-"`,
		damagedErr: errEnvoyColumns,
	},
	{ // istio.io 1.28, EnvoyTextLogFormat of pilot/pkg/model
		format: Envoy,
		lines: [3]string{
			`[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "6.6.6.6" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default`,
			`[2020-11-25T21:26:19.000Z] "GET /b HTTP/1.1" 503 UF upstream_reset{connection_failure} - "delayed connect error: 111" 0 9 3 - "-" "-" "-" "b" "10.44.1.27:80" inbound|80|| - [::1]:80 [2001:db8::7]:4 b.foo default`,
			`[2020-11-25T21:26:20.000Z] "- - -" 0 - - - "-" 10 20 12 - "-" "-" "-" "-" "10.0.0.1:5432" outbound|5432||db 10.0.0.2:1 10.0.0.1:5432 10.0.0.2:3 - -`,
		},
		want: [3]string{
			"2020-11-25T21:26:18.409Z 10.44.1.23 GET /status/418 418",
			"2020-11-25T21:26:19Z 2001:db8::7 GET /b 503",
			"skip: is about a TCP connection",
		},
		damaged:    `[2020-11-25T21:26:18.409Z] "GET / HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "-" "id" "h" "10.44.1.27:80" outbound 10.44.1.23:37652 10.0.45.184:8000 - -`,
		damagedErr: errEnvoyColumns,
	},
	{ // istio.io 1.28, EnvoyJSONLogFormatIstio; cloud.google.com, LogEntry; developers.cloudflare.com, HTTP requests
		format: JSON,
		lines: [3]string{
			`{"start_time":"2026-02-24T10:30:45.123Z","method":"GET","path":"/status?a","authority":"httpbin:8000","response_code":200,"bytes_sent":615,"downstream_remote_address":"10.244.1.3:45678","x_forwarded_for":null}`,
			`{"httpRequest":{"remoteIp":"203.0.113.9","requestMethod":"GET","requestUrl":"https://example.com/a?b=c","status":200,"responseSize":"316","userAgent":"curl","latency":"0.03s"},"timestamp":"2026-02-24T10:30:46.5Z","receiveTimestamp":"2026-02-24T10:30:47Z","severity":"INFO"}`,
			`{"ClientIP":"2001:db8::7","ClientRequestHost":"example.com","ClientRequestMethod":"GET","ClientRequestURI":"/c?d","EdgeResponseStatus":404,"EdgeStartTimestamp":1771929047000000000}`,
		},
		want: [3]string{
			"2026-02-24T10:30:45.123Z 10.244.1.3 GET /status 200",
			"2026-02-24T10:30:46.5Z 203.0.113.9 GET /a 200",
			"2026-02-24T10:30:47Z 2001:db8::7 GET /c 404",
		},
		damaged:    `{"ClientIP":"2001:db8::7","EdgeStartTimestamp":null}`,
		damagedErr: errNoTime,
	},
	{ // kubernetes.io, CRI logging: nginx in a container, whose third line was cut
		format: Combined,
		lines: [3]string{
			`2016-10-06T00:17:09.669794202Z stdout F 198.51.100.7 - - [06/Oct/2016:00:17:09 +0000] "GET /a HTTP/1.1" 200 5 "-" "a"`,
			`2016-10-06T00:17:10.669794202+02:00 stdout F:x 2001:db8::7 - - [06/Oct/2016:00:17:10 +0000] "GET /b HTTP/1.1" 200 5 "-" "a"`,
			`2016-10-06T00:17:11.669794202Z stdout P 10.0.0.1 - - [06/Oct/2016:00:17:10 +0000] "GET /c HTTP/1.1" 200 5 "-" "a`,
		},
		want: [3]string{
			"2016-10-06T00:17:09Z 198.51.100.7 GET /a 200",
			"2016-10-06T00:17:10Z 2001:db8::7 GET /b 200",
			errCutLine.Error(),
		},
		damaged:    `2016-10-06T00:17:11.669794202Z stdout F 10.0.0.1 - - [06/Oct/2016:00:17:10 +0000] "GET /c HTTP/1.1" 200 5 "-" "a"`,
		damagedErr: errCutLine, // it is the rest of the line before
	},
	{ // docs.docker.com, JSON File logging driver: Caddy in a container
		format: Caddy,
		lines: [3]string{
			`{"log":"{\"level\":\"info\",\"ts\":1646861401.5,\"msg\":\"handled request\",\"request\":{\"client_ip\":\"127.0.0.1\",\"method\":\"GET\",\"uri\":\"/\"},\"status\":200}\n","stream":"stdout","time":"2022-03-09T21:30:02.111111111Z"}`,
			`{"log":"{\"level\":\"info\",\"ts\":1646861402,\"request\":{\"client_ip\":\"::1\",\"method\":\"GET\",\"uri\":\"/b\"},\"status\":200}\r\n","stream":"stderr","attrs":{"a":"b"},"time":"2022-03-09T21:30:02.2Z"}`,
			`{"log":"{\"level\":\"info\",\"ts\":1646861403.1,\"logger\":\"tls\",\"msg\":\"certificate\"}\n","stream":"stdout","time":"2022-03-09T21:30:03.2Z"}`,
		},
		want: [3]string{
			"2022-03-09T21:30:01.5Z 127.0.0.1 GET / 200",
			"2022-03-09T21:30:02Z ::1 GET /b 200",
			"skip: is not about a request",
		},
		damaged:    `{"log":"{\"level\":\"info\",\"ts\":1646861401.5","stream":"stdout","time":"2022-03-09T21:30:02.1Z"}`,
		damagedErr: errCutLine,
	},
}

// fields returns the fields of which want has the values.
func (s *sample) fields() []string {
	if s.format == SSHD {
		return []string{"ip"}
	}
	return []string{"ip", "method", "path", "status"}
}

// reader returns a reader of the format that has read the sample's head.
func (s *sample) reader(t testing.TB) Reader {
	t.Helper()
	rd, err := New(s.format, s.fields(), Config{Year: 2015})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(s.head) {
		if rec, err := rd.Read([]byte(strings.TrimSuffix(line, "\n"))); err != nil || rec.Count != 0 {
			t.Fatalf("%s: header %q: %+v, %v", s.format, line, rec, err)
		}
	}
	return rd
}

// describe returns the result of reading a line as text.
func describe(rec Record, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case rec.Count == 0:
		return "skip: " + rec.Skip
	}
	text := timeOf(rec.At).Format(time.RFC3339Nano)
	for _, v := range rec.Values {
		text += " " + string(v.Text)
		if v.Err != nil {
			text += v.Err.Error()
		}
	}
	if rec.Spent.Used != nil {
		text += " reserved " + string(rec.Spent.Reserved) + " used " + string(rec.Spent.Used)
	}
	if rec.Spent.End != 0 {
		text += " until " + timeOf(rec.Spent.End).Format("15:04:05.999999")
	}
	return text
}

// timeOf converts microseconds since the epoch to a time.
func timeOf(us int64) time.Time { return time.UnixMicro(us).UTC() }
