"""What this machine has: memory, processors, control groups, places for our files."""
