"""What a hostile client of the router does until it is killed. Run as a program: flooding_client.py KIND HOST PORT SEED.

raw      many connections that speak ZMTP 3.1 by hand: status requests mixed with PINGs, no answer read, then a reset
library  one libzmq client with heartbeats, flooding status, that its parent kills
"""
import random
import socket
import struct
import sys
import time

import msgpack

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
PING = b"\x04\x07\x04PING\x00\x00"
STATUS = msgpack.packb({"op": "status"})


def closed():
    raise ConnectionResetError


def frame(body):
    return b"\x00" + bytes([len(body)]) + body


def raw(host, port, chance):
    while True:
        sockets = []
        for _ in range(8):
            try:
                one = socket.create_connection((host, port), timeout=5)
                one.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
                heard = b""
                while b"READY" not in heard:  # what comes earlier is taken for a part of the handshake
                    heard += one.recv(256) or closed()
            except OSError:
                continue
            one.setblocking(False)
            sockets.append(one)
        flood = (frame(STATUS) * chance.choice([1, 20, 50]) + PING) * 400
        end = time.monotonic() + chance.uniform(0.01, 0.4)
        while time.monotonic() < end:
            for one in sockets:
                try:
                    one.send(flood)
                except OSError:
                    pass
            time.sleep(0.002)
        for one in sockets:
            if chance.random() < 0.8:  # a reset, else an orderly end
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()


def library(host, port, chance):
    import zmq
    client = zmq.Context().socket(zmq.DEALER)
    client.setsockopt(zmq.HEARTBEAT_IVL, chance.choice([1, 5, 20]))
    client.setsockopt(zmq.HEARTBEAT_TIMEOUT, 60_000)
    client.setsockopt(zmq.SNDBUF, 8192)
    client.setsockopt(zmq.SNDHWM, 1000)
    client.connect(f"tcp://{host}:{port}")
    while True:
        client.send(STATUS)


if __name__ == "__main__":
    {"raw": raw, "library": library}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), random.Random(int(sys.argv[4])))
