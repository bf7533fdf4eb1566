"""Microbenchmarks: programs that print JSON, run by the harness as subprocesses."""
