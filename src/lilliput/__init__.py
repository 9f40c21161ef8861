"""Lilliput: Kimi K3 on one ordinary machine, with the same bits everywhere."""
