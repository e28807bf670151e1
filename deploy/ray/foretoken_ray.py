"""Foretoken's services as Ray actors: each actor runs one program, and a pool of them grows and shrinks while the others
serve. Ray decides on which node a service runs, shows it its GPUs, and starts it again when its program or its node fails.
What the services say to one another stays ZeroMQ's. Over several nodes bus.router and bus.draft are TCP addresses with keys
(docs/operations.md); on one node the defaults do. Start Ray with RAY_worker_niceness=0 in the environment: it gives its
workers, and so these programs, a niceness of 15 otherwise, and every other process of the node goes first.
"""

import ctypes
import os
import signal
import subprocess
import threading

import ray

PR_SET_PDEATHSIG = 1
# Drained, or a mistake of usage or configuration that a new start would not mend.
FINAL_EXIT_CODES = (0, 64, 78)


def _end_with_the_actor():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@ray.remote(max_restarts=-1)
class Service:
    """One program, `foretoken-ROLE --id ID`."""

    def __init__(self, role, number, arguments=(), programs="", environment=None):
        self.draining = False
        self.process = subprocess.Popen([os.path.join(programs, f"foretoken-{role}"), "--id", str(number), *arguments],
                                        env={**os.environ, **(environment or {})}, preexec_fn=_end_with_the_actor)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        # However it ends that was told to: what leaves is not started again.
        if self.process.wait() not in FINAL_EXIT_CODES and not self.draining:
            os._exit(1)  # Ray starts the actor, and so the program, again

    def exit_code(self):
        """None while it runs."""
        return self.process.poll()

    def drain(self):
        """SIGTERM: what runs ends first, within limits.drain_s. The exit code; it stays down, whatever that is."""
        self.draining = True
        self.process.terminate()
        return self.process.wait()


def _exit_code(drained):
    try:
        return ray.get(drained)
    except ray.exceptions.RayActorError:  # its program failed just before, or its node did
        return None


class Pool:
    """The services of one role, numbered from 0. model: NAME of [model.NAME], where the configuration has several, for a tokenizer,
    draft or target. resources: what ray.remote takes, such as num_gpus=1."""

    def __init__(self, role, arguments=(), programs="", environment=None, model="", **resources):
        self.made_of = (tuple(arguments), programs, environment)
        self.role, self.resources, self.services = role, {"num_cpus": 0, **resources}, []
        self.ids = f"{model}-" if model else ""

    def scale(self, n):
        """Starts services, or drains those with the highest numbers. The others serve on. The exit codes of those that left;
        None for one whose actor ended before it could tell."""
        while len(self.services) < n:
            own = f"{self.ids}{len(self.services)}"
            actor = Service.options(**self.resources, name=f"foretoken-{self.role}-{own}")
            self.services.append(actor.remote(self.role, own, *self.made_of))
        leaving, self.services = self.services[n:], self.services[:n]
        draining = [service.drain.remote() for service in leaving]
        exit_codes = [_exit_code(code) for code in draining]
        for service in leaving:
            ray.kill(service)
        return exit_codes
