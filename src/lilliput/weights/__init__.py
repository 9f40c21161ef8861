"""Where the weights are and how they reach the arithmetic."""
