"""Kimi K3, exactly: configuration, layers, state."""
