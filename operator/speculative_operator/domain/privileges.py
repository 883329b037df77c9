"""Privileges that a pod template gets only where the operator's settings allow them. Used by reconcile and settings."""

from __future__ import annotations

from enum import StrEnum


class Privilege(StrEnum):
    """Privileges by the field that asks for them: those that Pod Security's level baseline refuses, and identities."""

    HOST_NETWORK = "hostNetwork"
    HOST_PID = "hostPID"
    HOST_IPC = "hostIPC"
    HOST_PATH = "hostPath"
    HOST_PORT = "hostPort"
    HOST_PROCESS = "hostProcess"
    PROBED_HOST = "host"
    """A probe or hook that the kubelet sends elsewhere than to the pod."""
    PRIVILEGED = "privileged"
    CAPABILITIES = "capabilities"
    PROC_MOUNT = "procMount"
    SECCOMP = "seccompProfile"
    APP_ARMOR = "appArmorProfile"
    SE_LINUX = "seLinuxOptions"
    SYSCTLS = "sysctls"
    SERVICE_ACCOUNT = "serviceAccountName"
    TOKEN = "serviceAccountToken"  # noqa: S105  (the name of a kind of volume)
    """A token of the pod's ServiceAccount, mounted by itself or by a projected volume."""


EVERY = "*"
"""Stands for all names in a list of names."""
