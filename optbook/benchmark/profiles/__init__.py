"""Profiles: look inside a workload, in passes of their own after an uninstrumented one."""
