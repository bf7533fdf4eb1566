"""Servers as processes: what to start, who keeps it, who uses it, what its log says."""
