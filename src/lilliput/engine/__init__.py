"""From a checkpoint to text: `Engine` (weights, one per process) and `Session` (one sequence)."""
