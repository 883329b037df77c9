"""Runs one program inside a living enclosure and stands for it outside.

Started by `Cluster.inside` as a plain script, without the package, because every call pays for its imports:
`python -I -S enter.py PID CWD PROGRAM ARGUMENTS...`, PID being a process whose namespaces are joined. nsenter does not
pass signals on, so ending it would leave the program running; here signals, exit codes and deaths cross both ways.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NAMESPACES = ("user", "net", "mnt", "pid_for_children")
_PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}

libc = ctypes.CDLL(None, use_errno=True)


def join(pid: int) -> None:
    """Enter the namespaces of a process; the process table only applies to children."""
    descriptors = []
    for name in _NAMESPACES:
        theirs = f"/proc/{pid}/ns/{name}"
        # Joining the user namespace one is in already is an error, and happens where root needs none of its own.
        if os.stat(theirs).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:  # noqa: PTH116 - pathlib costs an import
            descriptors.append(os.open(theirs, os.O_RDONLY | os.O_CLOEXEC))
    for descriptor in descriptors:
        if libc.setns(descriptor, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        os.close(descriptor)


def become(argv: list[str]) -> None:
    """In the child: die with the parent, then be the program."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - running what the caller names is the purpose
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


def stand_for(child: int) -> int:
    """Pass signals to the child until it ends; its wait status."""
    while True:
        received = signal.sigwaitinfo(_PASSED_ON | {signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif received.si_code <= 0:
            # Sent by a process to this one. A terminal's (code above 0) reaches the child by itself.
            os.kill(child, received.si_signo)


def main() -> None:
    pid, directory, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON | {signal.SIGCHLD})
    try:
        join(pid)
    except OSError as error:
        sys.exit(f"cannot enter the cluster, it has probably ended: {error}")
    os.chdir(directory)
    child = os.fork()
    if child == 0:
        become(argv)
    code = os.waitstatus_to_exitcode(stand_for(child))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
