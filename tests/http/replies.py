"""Reads HTTP replies as strictly as h11 does, and looks into what they claim to be."""

import json

import h11


class Replies:
    """The replies of one connection, fed with bytes as they come."""

    def __init__(self, is_head=False):
        self.is_head = is_head
        self.n_whole = 0
        self.fresh()

    def fresh(self, rest=b""):
        self.parser = h11.Connection(h11.CLIENT)
        self.parser.send(h11.Request(method="HEAD" if self.is_head else "GET", target="/", headers=[("Host", "x")]))
        self.parser.send(h11.EndOfMessage())
        self.reply, self.body, self.may_go_on = None, b"", False
        self.fed = bool(rest)
        if rest:
            self.parser.receive_data(rest)

    def feed(self, data):
        """False once the server has closed the connection. Raises for what is no HTTP, or not what it claims."""
        self.fed = self.fed or bool(data)
        if not data and not self.fed:
            return False  # between two replies
        self.parser.receive_data(data)
        while True:
            try:
                event = self.parser.next_event()
            except h11.RemoteProtocolError:
                # A stream that an error ended is not whole on purpose.
                if not data and b'"error"' in self.body and b"event-stream" in self.header(b"content-type"):
                    return False
                # Told to send its body, and then it took too long or sent none that can be read.
                if not data and self.may_go_on and self.reply is None:
                    return False
                raise
            if event is h11.NEED_DATA:
                return bool(data)
            if isinstance(event, h11.InformationalResponse):
                self.may_go_on = True
            elif isinstance(event, h11.Response):
                self.reply = event
            elif isinstance(event, h11.Data):
                self.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self.n_whole += 1
                check(self.reply.status_code, self.header(b"content-type"), self.body, self.is_head)
                rest = self.parser.trailing_data[0]
                self.is_head = False  # of the first request alone
                self.fresh(rest)
                if not rest:
                    return bool(data)
            elif isinstance(event, h11.ConnectionClosed):
                return False

    def header(self, name):
        return next((value for key, value in self.reply.headers if key == name), b"") if self.reply else b""


def strict(text):
    def refuse(word):
        raise ValueError(f"{word} is no JSON")
    return json.loads(text, parse_constant=refuse)


def check(status, kind, body, is_head):
    if is_head or status == 204:
        assert not body, body
        return
    if kind.startswith(b"application/json"):
        answer = strict(body.decode())
        assert status < 400 or "error" in answer, answer
    elif kind.startswith(b"text/event-stream"):
        assert status == 200, status
        for line in body.decode().split("\n"):
            if line.startswith("data: ") and line != "data: [DONE]":
                strict(line[6:])
    else:
        assert not body or kind.startswith((b"text/plain", b"text/html")), (status, kind, body[:200])
        assert status in (200, 400), (status, kind)
