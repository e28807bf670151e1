"""Ports for tests that run at once: none is given to two of them, and with its default settings the kernel gives none away for
outgoing connections."""
import random
import socket

# Below what the kernel takes for connections and for port 0 (net.ipv4.ip_local_port_range), above what is well known.
FIRST, LAST = 20_000, 32_000
HELD = []  # open sockets without a file, whose names say that a port is taken; they end with this process, however it ends


def free_port():
    """A port of 127.0.0.1 where nothing listens. It stays this process's: no other test takes it, bound or not."""
    for port in random.SystemRandom().sample(range(FIRST, LAST), 1000):
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0foretoken-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            continue
        HELD.append(held.detach())
        return port
    raise AssertionError(f"no port from {FIRST} to {LAST} is free")
