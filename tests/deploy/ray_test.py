"""deploy/ray without Ray: what an actor does when its program ends. A stand-in for the module has as much of Ray as the adapter
uses; tests/long/ray_test.py runs the adapter with Ray itself.

usage: ray_test.py SOURCE_FOLDER
"""

import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))

# An actor is its object, and what it is asked is done at once; os._exit ends all, as it ends the process of an actor.
STAND_IN = """
    import sys, threading, types

    class ActorError(Exception):
        pass

    killed = []
    ray = types.ModuleType("ray")
    ray.exceptions = types.SimpleNamespace(RayActorError=ActorError)
    ray.remote = lambda **options: lambda actor: actor
    def get(drained):
        if isinstance(drained, Exception):
            raise drained
        return drained
    ray.get, ray.kill = get, killed.append
    sys.modules["ray"] = ray
    sys.path.insert(0, SOURCE + "/deploy/ray")
    import foretoken_ray

    def watched():
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join()
"""


class Adapter(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="foretoken-ray-")
        self.addCleanup(self.folder.cleanup)

    def run_adapter(self, program, steps):
        """The steps in a process of their own, with a program for the role `draft` that is a shell script."""
        path = pathlib.Path(self.folder.name, "foretoken-draft")
        path.write_text("#!/bin/sh\n" + textwrap.dedent(program))
        path.chmod(0o755)
        text = f"SOURCE, PROGRAMS = {str(SOURCE)!r}, {self.folder.name!r}\n" + textwrap.dedent(STAND_IN) + textwrap.dedent(steps)
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)

    def test_a_drain_that_ends_otherwise_than_expected_starts_nothing_again(self):
        for ending, code in (("exit 0", 0), ("exit 1", 1), ("kill -9 $$", -9)):
            done = self.run_adapter(f"""
                trap '{ending}' TERM
                echo up
                while true; do sleep 0.01; done
                """, """
                import subprocess
                popen = subprocess.Popen
                def told_when_up(*words, **more):
                    process = popen(*words, stdout=subprocess.PIPE, **more)
                    process.stdout.readline()
                    return process
                subprocess.Popen = told_when_up
                service = foretoken_ray.Service("draft", 0, programs=PROGRAMS)
                code = service.drain()
                watched()
                print("drained with", code)
                """)
            self.assertEqual((0, f"drained with {code}\n"), (done.returncode, done.stdout), done.stderr)

    def test_a_program_that_fails_ends_its_actor_and_one_that_is_done_does_not(self):
        for code, ended in ((1, 1), (75, 1), (0, 0), (64, 0), (78, 0)):
            done = self.run_adapter(f"exit {code}", """
                foretoken_ray.Service("draft", 0, programs=PROGRAMS)
                watched()
                """)
            self.assertEqual(ended, done.returncode, done.stderr)

    def test_an_actor_that_is_gone_does_not_keep_the_others_from_leaving(self):
        done = self.run_adapter("exit 0", """
            class Actor:
                def __init__(self, drained):
                    self.drain = types.SimpleNamespace(remote=lambda: drained)

            pool = foretoken_ray.Pool("draft")
            stays, gone, last = pool.services = [Actor(0), Actor(ActorError()), Actor(0)]
            print(pool.scale(1), killed == [gone, last], pool.services == [stays])
            """)
        self.assertEqual((0, "[None, 0] True True\n"), (done.returncode, done.stdout), done.stderr)


if __name__ == "__main__":
    unittest.main()
