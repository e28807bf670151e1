"""Two hosts on one machine: network, hostname, /dev/shm, /run and /etc/hosts of their own, a cable between them, sshd in each.

Needs root, iproute2, util-linux and openssh-server. Processes and files under /tmp are shared, as a network file system would;
what has a host's network is on that host. All is gone when the context ends."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("node-a", "node-b")
NEEDED = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "mpirun")
SSHD = "/usr/sbin/sshd"
SSHD_CONFIG = """Port 22
HostKey {0}/host_key
AuthorizedKeysFile {0}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
"""
SSH_CONFIG = """Host *
  IdentityFile {0}/user_key
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""
# The first process of a host. $1: its name, $2: the folder.
BOOT = """set -e
hostname "$1"
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
mkdir /run/sshd
mount --bind "$2/hosts" /etc/hosts
ip link set lo up
echo up
exec sleep infinity
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def why_not():
    """What keeps this machine from being two hosts; None if nothing does."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for program in NEEDED:
        if not shutil.which(program):
            return f"no {program}"
    if not os.path.exists(SSHD):
        return "no sshd: install openssh-server"
    try:
        run("unshare", "--net", "--uts", "--mount", "sh", "-c", "hostname probe && mount -t tmpfs none /run && "
            "ip link add probe-a type veth peer name probe-b")
    except RuntimeError as error:
        return f"namespaces cannot be made here: {error}"
    return None


class TwoHosts:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="ftk-hosts-")
        self.first = []  # the processes that hold the namespaces
        try:
            self.write_files()
            for name in NAMES:
                self.first.append(subprocess.Popen(
                    ["unshare", "--net", "--uts", "--mount", "sh", "-c", BOOT, "boot", name, self.folder],
                    stdout=subprocess.PIPE, text=True, start_new_session=True))
                if self.first[-1].stdout.readline() != "up\n":
                    raise RuntimeError(f"{name} did not start")
            self.join()
            for host in (0, 1):
                run(*self.on(host), SSHD, "-f", f"{self.folder}/sshd_config", "-E", f"{self.folder}/sshd-{host}.log")
            self.wait_for_sshd()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, value, trace):
        for host, first in enumerate(self.first):
            for pid in self.processes(host):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            first.wait()
            first.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_files(self):
        for key in ("host_key", "user_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/{key}")
        hosts = "127.0.0.1 localhost\n" + "".join(f"10.213.7.{i + 1} {name}\n" for i, name in enumerate(NAMES))
        for name, text in (("hosts", hosts), ("sshd_config", SSHD_CONFIG.format(self.folder)),
                           ("ssh_config", SSH_CONFIG.format(self.folder))):
            with open(os.path.join(self.folder, name), "w", encoding="ascii") as out:
                out.write(text)

    def join(self):
        """The cable is made within the first host, so that no name of this machine's is taken."""
        run(*self.on(0), "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(self.first[1].pid))
        for host in (0, 1):
            run(*self.on(host), "ip", "address", "add", f"10.213.7.{host + 1}/24", "dev", "eth0")
            run(*self.on(host), "ip", "link", "set", "eth0", "up")

    def wait_for_sshd(self):
        end = time.monotonic() + 20
        while True:
            try:
                return run(*self.on(0), "ssh", "-F", f"{self.folder}/ssh_config", NAMES[1], "true")
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def on(self, host):
        """Words before a command that runs there. It keeps its process id: nsenter does not fork."""
        return ["nsenter", "--target", str(self.first[host].pid), "--net", "--uts", "--mount", "--"]

    def environment(self):
        """For mpirun: ssh as a user would have set it up."""
        return {**os.environ, "OMPI_MCA_plm_rsh_agent": f"ssh -F {self.folder}/ssh_config"}

    def cut(self):
        run(*self.on(1), "ip", "link", "set", "eth0", "down")

    def mend(self):
        run(*self.on(1), "ip", "link", "set", "eth0", "up")

    def processes(self, host):
        """All of a host, those that hold it up and sshd included."""
        net = os.stat(f"/proc/{self.first[host].pid}/ns/net").st_ino
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat(f"/proc/{entry}/ns/net").st_ino == net:
                    found.append(int(entry))
            except OSError:
                pass
        return found

    def shared_memory(self, host):
        return run(*self.on(host), "ls", "-A", "/dev/shm").split()
